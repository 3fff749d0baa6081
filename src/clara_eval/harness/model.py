"""The inputs and results of a run in any language, and harnesses hidden behind a hash.

Invariant: an outcome is a measurement that every machine reproduces, or `infrastructure`, which is no verdict.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias, get_args

from typing_extensions import TypedDict

from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import canonical_json, keccak_hex
from clara_eval.core.model import LARGEST_NUMBER, HarnessLanguage
from clara_eval.core.strict_json import JsonLimits, read_strict_json

Language: TypeAlias = HarnessLanguage
LANGUAGES: tuple[Language, ...] = get_args(Language)
Kind: TypeAlias = Literal["setUp", "test", "metric"]
Unit: TypeAlias = Literal["gas", "fuel"]
Fact: TypeAlias = float | int | bool | None
ProgramText: TypeAlias = str | Mapping[str, str]  # one text, or JavaScript files by path; the first is run

SUFFIXES: dict[str, Language] = {".sol": "solidity", ".js": "javascript", ".mjs": "javascript", ".py": "python"}
_LANGUAGE_NAMES = {one: one for one in LANGUAGES} | {one: SUFFIXES[f".{one}"] for one in ("js", "py", "sol")}
NO_SEED = "0x" + "9e3779b97f4a7c15" * 4  # for local runs; a round has its own seed
NAME_LENGTH = 40
MOST_FAILED = 20  # failed functions that a summary lists
VERSION = 1
KEYS = {"version", "language", "source", "salt"}
SALT = re.compile(r"0x[0-9a-f]{64}")
MAX_DOCUMENT_BYTES = 262_144


class RunOutcome(StrEnum):
    """How a run or one of its functions ended: equal on every machine, except `infrastructure`."""

    PASSED = "passed"
    FAILED = "failed"
    DOES_NOT_COMPILE = "does_not_compile"
    DOES_NOT_LOAD = "does_not_load"
    DOES_NOT_FIT = "does_not_fit"  # it compiles, but not with the harness: a name or signature is missing or taken
    FORBIDDEN_IMPORT = "forbidden_import"
    TOO_LARGE = "too_large"
    SET_UP_FAILED = "set_up_failed"
    OUT_OF_GAS = "out_of_gas"
    OUT_OF_FUEL = "out_of_fuel"
    OUT_OF_MEMORY = "out_of_memory"
    STACK_OVERFLOW = "stack_overflow"
    TOO_MUCH_OUTPUT = "too_much_output"
    ILLEGAL_INSTRUCTION = "illegal_instruction"
    NOT_A_NUMBER = "not_a_number"
    INFRASTRUCTURE = "infrastructure"  # a crash or the wall-clock limit of this machine; never a verdict


_FINISHED = frozenset({RunOutcome.PASSED, RunOutcome.FAILED, RunOutcome.NOT_A_NUMBER})  # within the limits


@dataclass(frozen=True, slots=True)
class Harness:
    language: Language
    source: str
    seed: str = NO_SEED  # second argument of JavaScript and Python functions; unknown before the deadline


@dataclass(frozen=True, slots=True)
class HarnessSubmission:
    language: Language
    source: ProgramText

    @property
    def size(self) -> int:
        texts = [self.source] if isinstance(self.source, str) else [*self.source, *self.source.values()]
        return sum(len(text.encode("utf-8", "replace")) for text in texts)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of one function. Only `seconds` depends on the machine, and it decides no outcome."""

    source_bytes: int = 131_072
    gas: int = 30_000_000
    fuel: int = 2_000_000_000
    memory_bytes: int = 64 * 1024 * 1024
    output_bytes: int = 65_536
    seconds: float = 120.0


class CallDocument(TypedDict):
    name: str
    kind: Kind
    outcome: str
    used: int
    value: str | float | None  # integers are decimal strings, because JSON numbers are not exact above 2^53


class ExecutedDocument(TypedDict):
    language: str
    outcome: str
    withHarness: bool
    calls: list[CallDocument]
    facts: dict[str, Fact]
    machine: dict[str, object]


@dataclass(frozen=True, slots=True)
class Call:
    """One function of the harness, run from the state that `setUp` left."""

    name: str
    kind: Kind
    outcome: RunOutcome
    used: int  # gas, or fuel of the submission
    value: int | float | None = None

    def to_json(self) -> CallDocument:
        value = str(self.value) if isinstance(self.value, int) else self.value
        return CallDocument(name=self.name, kind=self.kind, outcome=self.outcome.value, used=self.used, value=value)

    @classmethod
    def from_json(cls, found: CallDocument) -> Call:
        value = found["value"]
        exact = int(value) if isinstance(value, str) else value
        return cls(found["name"], found["kind"], RunOutcome(found["outcome"]), found["used"], exact)


@dataclass(frozen=True, slots=True)
class Executed:
    language: Language
    outcome: RunOutcome
    detail: str = ""  # one line for people, from the compiler or the engine
    calls: tuple[Call, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)  # known without a harness, for example `compiles`, `loads`
    logs: tuple[str, ...] = ()  # output and revert reasons, capped and escaped; never in a trace
    machine: Mapping[str, object] = field(default_factory=dict)
    with_harness: bool = True

    @property
    def is_measured(self) -> bool:
        return self.outcome != RunOutcome.INFRASTRUCTURE

    @property
    def unit(self) -> Unit:
        return "gas" if self.language == "solidity" else "fuel"

    @property
    def used(self) -> int:
        return sum(call.used for call in self.calls)

    @property
    def features(self) -> dict[str, Fact]:
        """Return the measured features; none if the machine failed."""
        found = dict(self.facts) if self.is_measured else {}
        if not self.is_measured or not self.with_harness:
            return found
        tests = [call.outcome == RunOutcome.PASSED for call in self.calls if call.kind == "test"]
        runs = bool(self.calls) and all(call.outcome in _FINISHED for call in self.calls)
        found |= {"runs": runs, "tests_passed": sum(tests) / len(tests) if tests else None if runs else 0.0}
        for call in self.calls:
            if call.kind != "setUp":
                # A cost counts only if the function passed: failing early must not look cheap.
                is_passed = call.outcome == RunOutcome.PASSED
                cost = feature_name(f"{self.unit}_{call.name.partition('_')[2]}")
                found[feature_name(call.name)] = is_passed if call.kind == "test" else _bounded(call.value)
                found[cost] = call.used if is_passed else None
        return found

    def summary(self) -> dict[str, object]:
        """Return a run as one row of a table: outcome, tests, gas or fuel, metrics, failures."""
        tests = [call.outcome == RunOutcome.PASSED for call in self.calls if call.kind == "test"]
        ran = self.is_measured and bool(self.calls)
        return {
            "outcome": self.outcome.value,
            "testsPassed": sum(tests) if ran else None,
            "tests": len(tests) if ran else None,
            "gas": self.used if ran and self.unit == "gas" else None,
            "fuel": self.used if ran and self.unit == "fuel" else None,
            "metrics": {
                feature_name(call.name.partition("_")[2]): _bounded(call.value)
                for call in self.calls
                if call.kind == "metric"
            },
            "failed": {
                feature_name(call.name): call.outcome.value.replace("_", " ")
                for call in [call for call in self.calls if call.outcome != RunOutcome.PASSED][:MOST_FAILED]
            },
        }

    def to_json(self) -> ExecutedDocument:
        """Return what a trace keeps: all that another machine must reproduce, and no untrusted text."""
        return {
            "language": self.language,
            "outcome": self.outcome.value,
            "withHarness": self.with_harness,
            "calls": [call.to_json() for call in self.calls],
            "facts": dict(sorted(self.facts.items())),
            "machine": dict(self.machine),
        }

    def to_worker_json(self) -> dict[str, object]:
        """Return what a worker reports: `to_json` and the texts for people."""
        return {**self.to_json(), "detail": self.detail, "logs": self.logs}

    @classmethod
    def from_json(cls, found: ExecutedDocument) -> Executed:
        return cls(
            language=language_of(found["language"], "The language"),
            outcome=RunOutcome(found["outcome"]),
            calls=tuple(Call.from_json(one) for one in found["calls"]),
            facts=dict(found["facts"]),
            machine=dict(found["machine"]),
            with_harness=bool(found["withHarness"]),
        )


def flatten(value: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten nested settings to dotted names such as `optimizer.runs`."""
    found: dict[str, object] = {}
    for key, item in value.items():
        found |= flatten(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return found


def function_kind(name: str) -> Kind | None:
    """Return the kind of a harness function by its name; None for a helper."""
    if name == "setUp":
        return "setUp"
    if name.startswith("test_"):
        return "test"
    return "metric" if name.startswith("metric_") else None


def feature_name(name: str) -> str:
    return re.sub(r"[^a-z0-9_]", "_", name.lower())[:NAME_LENGTH]


def _bounded(value: float | None) -> float | int | None:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if abs(value) <= LARGEST_NUMBER:
        return value
    return float(LARGEST_NUMBER if value > 0 else -LARGEST_NUMBER)


def overall_outcome(calls: Sequence[Call]) -> RunOutcome:
    """Return the outcome of a run: what broke first, a limit before a failed test."""
    found = [call.outcome for call in calls]
    broken = [outcome for outcome in found if outcome not in _FINISHED]
    order = (RunOutcome.INFRASTRUCTURE, RunOutcome.SET_UP_FAILED, *broken, RunOutcome.NOT_A_NUMBER, RunOutcome.FAILED)
    return next((outcome for outcome in order if outcome in found), RunOutcome.PASSED)


def language_of(name: str, where: str) -> Language:
    """Return the executable language of this name; `where` begins the error message."""
    if found := _LANGUAGE_NAMES.get(name.strip().lower()):
        return found
    raise BadInput(f"{where} {name[:40]!r} cannot be executed.", value=name, remedy=f"One of {', '.join(LANGUAGES)}.")


@dataclass(frozen=True, slots=True)
class HarnessDocument:
    """A harness with its salt, and the bytes that are hashed."""

    harness: Harness
    salt: str
    content: bytes

    @property
    def private_set_hash(self) -> str:
        return keccak_hex(self.content)


def hide(harness: Harness, salt: str | None = None) -> HarnessDocument:
    """Make the document of a harness, with a random salt unless one is given."""
    chosen = salt or "0x" + secrets.token_hex(32)
    if not SALT.fullmatch(chosen):
        raise BadInput(f"{chosen[:80]!r} is not a salt.", value=chosen, remedy="Give 32 bytes as 0x and 64 hex digits.")
    document = {"version": VERSION, "language": harness.language, "source": harness.source, "salt": chosen}
    content = canonical_json(document)
    if len(content) > MAX_DOCUMENT_BYTES:
        problem = f"The harness is {len(content):,} bytes as a document; above {MAX_DOCUMENT_BYTES:,} none is revealed."
        raise BadInput(problem, remedy="Shorten it: data that tests need can be computed in them.")
    return HarnessDocument(harness, chosen, content)


def read_harness_document(content: bytes) -> HarnessDocument:
    found = read_strict_json(content, JsonLimits(bytes=MAX_DOCUMENT_BYTES), what="The harness document")
    if not isinstance(found, dict) or set(found) != KEYS or found["version"] != VERSION:
        problem = "This is not a harness document: it has other keys or another version."
        raise BadInput(problem, remedy="Make one with `clara-eval harness hash`.")
    if not all(isinstance(found[key], str) for key in KEYS - {"version"}) or not SALT.fullmatch(found["salt"]):
        raise BadInput("The harness document has a value of the wrong type, or no salt of 32 bytes.")
    language = language_of(found["language"], "The harness language")
    return HarnessDocument(Harness(language, found["source"]), found["salt"], content)
