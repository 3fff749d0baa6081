"""Check that a harness passes its reference twice with equal numbers, and pays for no empty work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from clara_eval.actions.hollow import ANSWERS, hollow
from clara_eval.harness import Executed, Harness, HarnessSubmission, Machine, RunLimits, RunOutcome
from clara_eval.harness.model import feature_name

_NOT_TRIED = frozenset(
    {RunOutcome.INFRASTRUCTURE, RunOutcome.DOES_NOT_COMPILE, RunOutcome.DOES_NOT_LOAD, RunOutcome.DOES_NOT_FIT}
)


@dataclass(frozen=True, slots=True)
class HarnessCheck:
    executed: Executed
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """What lets a submission be paid for work that it does not do, each with its remedy."""


_NOT_A_USE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\bimport\b[^;]*;|\bnew\s+Submission\b|\btype\s*\(\s*Submission\b", re.DOTALL
)
_TYPED_BY_SUBMISSION = re.compile(r"\bSubmission\b")
REMEDY = "Check the result after the measured call, and revert or throw where it is wrong: then there is no number."
SEED_REMEDY = "Draw its inputs from `seed`, the second argument of the function, or hide the harness."
OTHER_SEED = "0x" + "5e" * 32


def check_harness(
    machine: Machine, harness: Harness, reference: str, limits: RunLimits | None = None, *, is_hidden: bool = False
) -> HarnessCheck:
    submission = HarnessSubmission(harness.language, reference)
    first = machine.run(harness, submission, limits)
    second = machine.run(harness, submission, limits)
    problems = tuple(_problems(first, second))
    if problems:
        return HarnessCheck(first, problems)
    warnings = [*_unearned(machine, harness, reference, limits), *_typed_by_submission(harness)]
    if harness.language != "solidity" and not is_hidden:
        other = machine.run(replace(harness, seed=OTHER_SEED), submission, limits)
        warnings += _known(first, other)
    return HarnessCheck(first, (), tuple(warnings))


def _known(first: Executed, other: Executed) -> Iterator[str]:
    """Metrics with a known input: another seed changes neither value nor cost."""
    for call, again in zip(first.calls, other.calls, strict=True):
        if call.kind == "metric" and call == again:
            yield f"{call.name} has an input that everybody knows: a table of its answers costs no work. {SEED_REMEDY}"
    if other.outcome != RunOutcome.PASSED:
        yield f"With another seed the reference does not pass: {other.outcome.value}."


def _unearned(machine: Machine, harness: Harness, reference: str, limits: RunLimits | None) -> Iterator[str]:
    """Find what the harness gives to submissions whose functions do no work."""
    seen: set[str] = set()
    for words, answer in ANSWERS[harness.language].items():
        source = hollow(reference, harness.language, answer)
        found = (
            machine.run(harness, HarnessSubmission(harness.language, source), limits) if source is not None else None
        )
        if found is None or found.outcome in _NOT_TRIED:
            if not answer:
                why = found.detail if found else "its reference cannot be read"
                yield f"Whether its metrics check what they measure could not be tried: {why}".rstrip(".") + "."
            continue
        for call in found.calls:
            if call.kind == "metric" and call.outcome == RunOutcome.PASSED and call.name not in seen:
                seen.add(call.name)
                yield f"{call.name} gives {call.value:,} to a submission whose functions {words}. {REMEDY}"
        tests = [call.outcome for call in found.calls if call.kind == "test"]
        if tests and set(tests) == {RunOutcome.PASSED} and "tests" not in seen:
            seen.add("tests")
            yield f"A submission whose functions {words} passes every test. Add one that it fails."


def _typed_by_submission(harness: Harness) -> Iterator[str]:
    if harness.language == "solidity" and _TYPED_BY_SUBMISSION.search(_NOT_A_USE.sub("", harness.source)):
        yield (
            "The harness calls the submission by types that the submission declares (`Submission it`): an answer may be"
            " signed or smaller than you think. Declare an interface in the harness and hold the submission as that:"
            " `Task it = Task(address(new Submission()));`."
        )


def _problems(first: Executed, second: Executed) -> list[str]:
    if not first.is_measured or not second.is_measured:
        return [f"The harness could not be run here: {first.detail or second.detail}"]
    found: list[str] = []
    if first.outcome != RunOutcome.PASSED:
        failed = [call.name for call in first.calls if call.outcome != RunOutcome.PASSED]
        names = f" ({', '.join(failed)})" if failed else ""
        found.append(f"The reference does not pass: {first.outcome.value}{names}. {first.detail}".strip())
    if first.to_json() != second.to_json():
        found.append("Two runs of the same reference gave different numbers.")
    functions = [call.name for call in first.calls if call.kind != "setUp"]
    if first.outcome == RunOutcome.PASSED and not functions:
        found.append("The harness has no test_… and no metric_… function: it measures nothing.")
    for name, count in Counter(_names(first.unit, functions)).items():
        if count > 1:
            found.append(f"Two functions would both be the feature {name}. Give them different names.")
    return found


def _names(unit: str, functions: list[str]) -> list[str]:
    costs = [feature_name(f"{unit}_{name.partition('_')[2]}") for name in functions]
    return [feature_name(name) for name in functions] + costs
