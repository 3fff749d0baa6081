"""Attack the code that runs and unpacks submissions: harnesses in real sandboxes, and archives."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import resources

from clara_eval.core.errors import BadSubmission
from clara_eval.harness import Executed, Harness, HarnessSubmission, Language, Machine, RunOutcome
from clara_eval.harness.model import NO_SEED
from clara_eval.harness.solidity import MARK
from clara_eval.redteam.report import Figure, share
from clara_eval.submissions.files import read_archive

_HUGE = b"x = 1\n" * 700_000
_LINK = 0o120777
ROUND_SEED = "0x" + "c1a4ae5a" * 8
_ENDINGS: dict[Language, str] = {"solidity": "sol", "python": "py.txt", "javascript": "mjs"}
_HEADER = re.compile(r"^(?:////|####) (idle|works) (\w+): (.*)\n", re.MULTILINE)
_LICENCE = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"


@dataclass(frozen=True, slots=True)
class HarnessAttack:
    name: str  # Short and unique within its language: `shadowed_require`
    what: str  # What the attack does, in one line for the table in docs/security.md
    source: str
    works: bool  # It does the work, and tries to make it look cheaper


@dataclass(frozen=True, slots=True)
class AttackedHarness:
    language: Language
    source: str
    honest: str
    attacks: tuple[HarnessAttack, ...]

    def run(self, machine: Machine, submission: str) -> Executed:
        """Run one submission; scripts get a seed that no attack knows."""
        seed = NO_SEED if self.language == "solidity" else ROUND_SEED
        return machine.run(Harness(self.language, self.source, seed), HarnessSubmission(self.language, submission))


def _resource(language: Language, name: str) -> str:
    path = resources.files("clara_eval.redteam").joinpath("attacks", f"{name}.{_ENDINGS[language]}")
    return path.read_text(encoding="utf-8")


def _load_harness(language: Language) -> AttackedHarness:
    honest = _resource(language, "honest")
    _, *parts = _HEADER.split(_resource(language, "attacks"))
    attacks = []
    for kind, name, what, body in zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True):
        works = kind == "works"
        if language == "solidity":
            source = _LICENCE + body.replace("0xMARK", f"0x{MARK}")
        else:
            source = honest + body if works else body
        attacks.append(HarnessAttack(name, what, source, works))
    return AttackedHarness(language, _resource(language, "harness"), honest, tuple(attacks))


HARNESSES: dict[Language, AttackedHarness] = {language: _load_harness(language) for language in _ENDINGS}


def gain_of(attack: HarnessAttack, found: Executed, honest: Executed) -> tuple[list[str], list[str]]:
    """Return the tests and metrics that an attack got without earning them."""
    if found.language == "solidity":
        passed = [] if attack.works or found.features.get("tests_passed") == 0.0 else ["tests_passed"]
        return passed, sorted(_cheaper_metrics(honest, found))
    calls = {call.name: call for call in found.calls if call.outcome == RunOutcome.PASSED and call.kind != "setUp"}
    if not attack.works:
        tests = [name for name in calls if name.startswith("test_")]
        return tests, [name for name in calls if name.startswith("metric_")]
    fair = {call.name: call for call in honest.calls}
    better = [n for n, call in calls.items() if call.used < fair[n].used or call.value != fair[n].value]
    return [], better


def _cheaper_metrics(honest: Executed, attack: Executed) -> Iterator[str]:
    """Yield the metrics that count and are lower than the honest ones; most count only with all tests."""
    counted = ("metric_gas", "gas_gas", "gas_many", "deploy_gas")
    for name in counted if attack.features.get("tests_passed") == 1.0 else ("metric_gas",):
        fair, got = honest.features[name], attack.features.get(name)
        if fair is not None and got is not None and got < fair:
            yield name


def measure_harnesses() -> list[Figure]:
    with closing(Machine()) as machine:
        return [figure for harness in HARNESSES.values() for figure in _measure_harness(machine, harness)]


def _measure_harness(machine: Machine, harness: AttackedHarness) -> list[Figure]:
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


def tarred(files: dict[str, bytes], *, form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return out.getvalue()


def zipped(files: dict[str, bytes], *, mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, body in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr, entry.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, body)
    return out.getvalue()


ATTACKS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "zip bomb": (lambda: zipped({"a.py": _HUGE}), "too_large", "unpacked it has more than"),
    "gzip bomb": (lambda: gzip.compress(tarred({"a.py": _HUGE})), "too_large", "unpacked it has more than"),
    # 50 times the headers of 2,000 files, so that it is made at once
    "100,000 files": (
        lambda: tarred({f"{n}.py": b"" for n in range(2_000)})[: 2_000 * 512] * 50 + bytes(1024),
        "too_large",
        "more than",
    ),
    "link": (lambda: zipped({"a.py": b"/etc"}, mode=_LINK), "bad_archive", "is a link or no plain file"),
    "absolute name": (lambda: tarred({"/etc/cron.d/a": b"a"}), "bad_archive", "not a path inside"),
    "name outside": (lambda: gzip.compress(tarred({"a/../../b.py": b"a"})), "bad_archive", "not a path inside"),
    "twins": (lambda: zipped({"a.py": b"a", "A.py": b"b"}), "bad_archive", "only in case"),
    "duplicate": (lambda: tarred({"a.py": b"a"})[:1024] + tarred({"a.py": b"b"}), "bad_archive", "occurs twice"),
    "not UTF-8": (lambda: tarred({"b\udcff.py": b"a"}, form=tarfile.GNU_FORMAT), "bad_archive", "not UTF-8"),
    "nested": (lambda: zipped({"a.zip": zipped({"a.py": b"a"})}), "bad_archive", "is an archive too"),
}
"""By name: a function that builds the archive, the code of its rejection, and part of the reason."""


def measure_archives() -> list[Figure]:
    accepted = [name for name, attack in ATTACKS.items() if not _is_refused(*attack)]
    what = "archives with bombs, links, names outside or twins that are not refused in words"
    trials = 0 if _is_refused(lambda: zipped({"a.py": b"a"}), "", "") else len(ATTACKS)  # an honest one must pass
    return [share("archive_attacks", what, len(accepted), trials, at_most=0.0, attacks=accepted)]


def _is_refused(make: Callable[[], bytes], code: str, words: str) -> bool:
    try:
        read_archive(make())
    except BadSubmission as refused:
        return code in {"", refused.code} and words in str(refused)
    return False
