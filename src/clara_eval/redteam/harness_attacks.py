"""Attack carelessly written harnesses (`attacks/`) in the real sandboxes, and measure what was gained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import resources

from clara_eval.harness import Executed, Harness, HarnessSubmission, Language, Machine, RunOutcome
from clara_eval.harness.model import NO_SEED
from clara_eval.harness.solidity import MARK
from clara_eval.redteam.report import Figure, share

ROUND_SEED = "0x" + "c1a4ae5a" * 8
_ENDINGS: dict[Language, str] = {"solidity": "sol", "python": "py.txt", "javascript": "mjs"}
_HEADER = re.compile(r"^(?:////|####) (idle|works) (\w+): (.*)\n", re.MULTILINE)
_LICENCE = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"


@dataclass(frozen=True, slots=True)
class HarnessAttack:
    name: str
    """Short and unique within its language: `shadowed_require`."""
    what: str
    """What the attack does, in one line for the table in docs/security.md."""
    source: str
    works: bool
    """Whether it does the work, and tries to make it look cheaper."""


@dataclass(frozen=True, slots=True)
class AttackedHarness:
    language: Language
    source: str
    honest: str
    attacks: tuple[HarnessAttack, ...]

    def run(self, machine: Machine, submission: str) -> Executed:
        """Run one submission, in a script with a seed that no attack knows."""
        seed = NO_SEED if self.language == "solidity" else ROUND_SEED
        return machine.run(Harness(self.language, self.source, seed), HarnessSubmission(self.language, submission))


def _file(language: Language, name: str) -> str:
    path = resources.files("clara_eval.redteam").joinpath("attacks", f"{name}.{_ENDINGS[language]}")
    return path.read_text(encoding="utf-8")


def _read(language: Language) -> AttackedHarness:
    honest = _file(language, "honest")
    _, *parts = _HEADER.split(_file(language, "attacks"))
    attacks = []
    for kind, name, what, body in zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True):
        works = kind == "works"
        if language == "solidity":
            source = _LICENCE + body.replace("0xMARK", f"0x{MARK}")
        else:
            source = honest + body if works else body
        attacks.append(HarnessAttack(name, what, source, works))
    return AttackedHarness(language, _file(language, "harness"), honest, tuple(attacks))


HARNESSES: dict[Language, AttackedHarness] = {language: _read(language) for language in _ENDINGS}


def gain_of(attack: HarnessAttack, found: Executed, honest: Executed) -> tuple[list[str], list[str]]:
    """Name the tests and numbers that an attack did not earn."""
    if found.language == "solidity":
        passed = [] if attack.works or found.features.get("tests_passed") == 0.0 else ["tests_passed"]
        return passed, sorted(_cheaper(honest, found))
    calls = {call.name: call for call in found.calls if call.outcome == RunOutcome.PASSED and call.kind != "setUp"}
    if not attack.works:
        tests = [name for name in calls if name.startswith("test_")]
        return tests, [name for name in calls if name.startswith("metric_")]
    fair = {call.name: call for call in honest.calls}
    better = [n for n, call in calls.items() if call.used < fair[n].used or call.value != fair[n].value]
    return [], better


def _cheaper(honest: Executed, attack: Executed) -> Iterator[str]:
    """Numbers of an attack that count and are lower than the honest ones; without the tests no number counts."""
    counted = ("metric_gas", "gas_gas", "gas_many", "deploy_gas")
    for name in counted if attack.features.get("tests_passed") == 1.0 else ("metric_gas",):
        due, got = honest.features[name], attack.features.get(name)
        if due is not None and got is not None and got < due:
            yield name


def measure_harnesses() -> list[Figure]:
    with closing(Machine()) as machine:
        return [figure for harness in HARNESSES.values() for figure in _measured(machine, harness)]


def _measured(machine: Machine, harness: AttackedHarness) -> list[Figure]:
    honest = harness.run(machine, harness.honest)
    gains = {one.name: gain_of(one, harness.run(machine, one.source), honest) for one in harness.attacks}
    tests, metrics = ([name for name, gain in gains.items() if gain[kind]] for kind in (0, 1))
    # A harness that the honest solution does not pass proves nothing.
    counted = harness.attacks if honest.outcome == RunOutcome.PASSED else ()
    idle = sum(not one.works for one in counted)
    attacks = f"attacks on a {harness.language} harness that"
    return [
        share(f"{harness.language}_undeserved_tests", f"{attacks} pass a test unearned", len(tests), idle,
              at_most=0.0, attacks=tests),
        share(f"{harness.language}_undeserved_metric", f"{attacks} get a number unearned", len(metrics), len(counted),
              at_most=0.0, attacks=metrics, honestFuel=honest.features.get("fuel_work")),
    ]  # fmt: skip
