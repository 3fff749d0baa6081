"""Whether a harness is fit to be posted: it must pass the poster's own reference, twice, with the same numbers.

A harness and a reference come in; problems in words go out, none if it is fit. A broken harness is found here, before
any money is escrowed, and not after the deadline.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from clara_eval.execution.machine import Machine
from clara_eval.execution.model import Executed, Harness, Limits, Outcome, Submission, feature_name


@dataclass(frozen=True, slots=True)
class Checked:
    executed: Executed
    problems: tuple[str, ...]


def check_harness(machine: Machine, harness: Harness, reference: str, limits: Limits | None = None) -> Checked:
    submission = Submission(harness.language, reference)
    first = machine.run(harness, submission, limits)
    second = machine.run(harness, submission, limits)
    return Checked(first, tuple(_problems(first, second)))


def _problems(first: Executed, second: Executed) -> list[str]:
    if not first.is_measured or not second.is_measured:
        return [f"The harness could not be run here: {first.detail or second.detail}"]
    found: list[str] = []
    if first.outcome != Outcome.PASSED:
        failed = [call.name for call in first.calls if call.outcome != Outcome.PASSED]
        names = f" ({', '.join(failed)})" if failed else ""
        found.append(f"The reference does not pass: {first.outcome.value}{names}. {first.detail}".strip())
    if first.to_json() != second.to_json():
        found.append("Two runs of the same reference gave different numbers.")
    functions = [call.name for call in first.calls if call.kind != "setUp"]
    if first.outcome == Outcome.PASSED and not functions:
        found.append("The harness has no test_… and no metric_… function: it measures nothing.")
    for name, count in Counter(_names(first.unit, functions)).items():
        if count > 1:
            found.append(f"Two functions would both be the feature {name}. Give them different names.")
    return found


def _names(unit: str, functions: list[str]) -> list[str]:
    costs = [feature_name(f"{unit}_{name.partition('_')[2]}") for name in functions]
    return [feature_name(name) for name in functions] + costs
