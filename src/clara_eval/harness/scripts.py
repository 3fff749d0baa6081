"""Run JavaScript and Python harnesses: a fresh pair of instances for every function; fuel is the submission's alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from clara_eval.core.hashing import sha256_hex
from clara_eval.harness import cpython, quickjs, wasm
from clara_eval.harness.model import (
    Call,
    Harness,
    HarnessSubmission,
    Kind,
    Language,
    ProgramText,
    RunLimits,
    RunOutcome,
    flat,
    function_kind,
)
from clara_eval.harness.workers import ScriptAnswer, ScriptJob

HARNESS_FACTOR = 4
"""A harness may use this many times the fuel and output of a submission: it is the poster's, and still ends."""
MAX_EXHAUSTED = 3
"""After this many functions that ran out of fuel the rest is not run and counts as out of fuel too."""
_BY_ERROR = {
    "out of memory": RunOutcome.OUT_OF_MEMORY,
    "string too long": RunOutcome.OUT_OF_MEMORY,
    "Maximum call stack": RunOutcome.STACK_OVERFLOW,
    "MemoryError": RunOutcome.OUT_OF_MEMORY,
    "RecursionError": RunOutcome.STACK_OVERFLOW,
}
_NO_MODULE = ("could not load module", "ModuleNotFoundError")
"""How the engines name an import that nobody gives them."""
_MOST_DIGITS = 100


Open = Callable[[ProgramText, str, RunLimits, Callable[[str], str] | None], wasm.Guest]


def missing(language: Language) -> tuple[str, str] | None:
    """What is missing to run this language, and the remedy; None if nothing is."""
    engine, name = (quickjs, "JavaScript") if language == "javascript" else (cpython, "Python")
    if find_spec("wasmtime") is None or engine.find_module() is None:
        return f"The {name} engine is not installed.", engine.REMEDY
    return None


def script_job(harness: Harness | None, submission: HarnessSubmission, limits: RunLimits, cache: Path) -> ScriptJob:
    engine = quickjs if submission.language == "javascript" else cpython
    return {
        "kind": "script",
        "language": submission.language,
        "module": str(engine.find_module()),
        "cache": str(cache),
        "harness": harness.source if harness else None,
        "submission": submission.source if isinstance(submission.source, str) else dict(submission.source),
        "seed": harness.seed if harness else "",
        "limits": asdict(limits),
    }


def script_machine(submission: HarnessSubmission, limits: RunLimits) -> dict[str, object]:
    """Versions and settings that the numbers depend on: the same here and there, the same numbers."""
    engine = quickjs if submission.language == "javascript" else cpython
    guests = engine.GUESTS if isinstance(submission.source, str) else (*engine.GUESTS, quickjs.TREE)
    told = {
        "engine": f"wasmtime {wasm.wasmtime_version()}",
        "module": engine.SHA256,
        "guest": sha256_hex(b"".join(file.read_bytes() for file in guests)),
        "world": {"clock": wasm.CLOCK_SECONDS, "seed": wasm.SEED},
        "charges": {"hostCall": wasm.HOST_CALL_FUEL, "hostByte": wasm.HOST_BYTE_FUEL},
        "limits": {
            **{name: value for name, value in limits.to_json().items() if name != "gas"},
            "stackBytes": engine.STACK_BYTES,
            "messageBytes": wasm.MAX_MESSAGE_BYTES,
            "leastWriteBytes": wasm.LEAST_WRITE_BYTES,
            "harnessFactor": HARNESS_FACTOR,
            "exhaustedFunctions": MAX_EXHAUSTED,
            **({} if isinstance(submission.source, str) else {"lookups": quickjs.MOST_LOOKUPS}),
        },
    }
    return flat(told)


def answer(job: ScriptJob) -> ScriptAnswer:
    """Load the submission alone, then run every function of the harness on it."""
    open_guest = _engine(job["language"], job["module"], job["cache"])
    limits = RunLimits(**job["limits"])
    found: ScriptAnswer = {"outcome": None, "detail": "", "loads": False, "calls": [], "logs": []}
    try:
        alone = open_guest(job["submission"], "submission", limits, None)
    except wasm.LoadFailed as failed:
        is_import = any(words in str(failed) for words in _NO_MODULE)
        outcome = RunOutcome.FORBIDDEN_IMPORT if is_import else _limit(str(failed)) or RunOutcome.DOES_NOT_LOAD
        return {**found, "outcome": outcome.value, "detail": str(failed)}
    except wasm.Stopped as stopped:
        return {**found, "outcome": stopped.outcome.value, "detail": "It ran into a limit while it was loaded."}
    alone.close()
    found = {**found, "loads": True, "logs": alone.printed.lines()}
    if job["harness"] is None:
        return {**found, "outcome": RunOutcome.PASSED.value}
    runs = _Runs(open_guest, job["harness"], job["submission"], job["seed"], limits)
    try:
        names = runs.names()
    except (wasm.LoadFailed, wasm.Stopped) as bad:
        detail = f"The harness does not load: {bad}"
        return {**found, "outcome": RunOutcome.DOES_NOT_FIT.value, "detail": detail}
    calls, logs = runs.all(names)
    return {**found, "calls": [call.to_json() for call in calls], "logs": logs}


@lru_cache(maxsize=2)
def _engine(language: str, module: str, cache: str) -> Open:
    if language == "javascript":
        return quickjs.QuickJs(Path(module), Path(cache)).open
    return cpython.CPython(Path(module), Path(cache)).open


def _limit(text: str) -> RunOutcome | None:
    return next((outcome for words, outcome in _BY_ERROR.items() if words in text), None)


@dataclass(slots=True)
class _Runs:
    open_guest: Open
    harness: str
    submission: ProgramText
    seed: str
    limits: RunLimits

    def all(self, names: list[str]) -> tuple[list[Call], list[str]]:
        logs: list[str] = []
        calls: list[Call] = []
        has_set_up = "setUp" in names
        for name in ["setUp", *(one for one in names if one != "setUp")]:
            kind = function_kind(name)
            if kind is None:
                continue
            if sum(call.outcome == RunOutcome.OUT_OF_FUEL for call in calls) >= MAX_EXHAUSTED:
                calls.append(Call(name, kind, RunOutcome.OUT_OF_FUEL, self.limits.fuel))
                continue
            if kind == "setUp" and not has_set_up:
                calls.append(Call(name, "setUp", RunOutcome.PASSED, 0))
                continue
            pair = _Pair(self, has_set_up=has_set_up)
            calls.append(pair.run(name, kind))
            pair.close()
            logs += [f"{name}: {line}" for line in pair.logs]
            if kind == "setUp" and calls[0].outcome != RunOutcome.PASSED:
                break
        return calls, logs

    def names(self) -> list[str]:
        wide = _wide(self.limits)
        guest = self.open_guest(self.harness, "harness", wide, lambda _: json.dumps({"value": None}))
        found = json.loads(guest.exchange('{"do": "loaded"}'))
        guest.close()
        return sorted(item for item in found["value"]["v"] if isinstance(item, str))


def _wide(limits: RunLimits) -> RunLimits:
    return RunLimits(
        fuel=HARNESS_FACTOR * limits.fuel,
        memory_bytes=limits.memory_bytes,
        output_bytes=HARNESS_FACTOR * limits.output_bytes,
    )


class _Pair:
    """A harness and a submission, both fresh, for one function."""

    def __init__(self, runs: _Runs, *, has_set_up: bool) -> None:
        self.limits, self.seed, self.has_set_up = runs.limits, runs.seed, has_set_up
        self.logs: list[str] = []
        self._submission = runs.open_guest(runs.submission, "submission", runs.limits, None)
        self._harness = runs.open_guest(runs.harness, "harness", _wide(runs.limits), self._answer)
        self._limit: RunOutcome | None = None

    def run(self, name: str, kind: Kind) -> Call:
        outcome = RunOutcome.PASSED
        value: object = None
        if self.has_set_up:
            outcome, _ = self._function("setUp")
            if outcome == RunOutcome.FAILED:
                outcome = RunOutcome.SET_UP_FAILED
        if kind != "setUp" and outcome == RunOutcome.PASSED:
            outcome, value = self._function(name)
        used = self.limits.fuel - self._submission.fuel_left
        self.logs += [*self._submission.printed.lines(), *self._harness.printed.lines()]
        if kind != "metric" or outcome != RunOutcome.PASSED:
            return Call(name, kind, outcome, used)
        number = _number(value)
        return Call(name, kind, RunOutcome.PASSED if number is not None else RunOutcome.NOT_A_NUMBER, used, number)

    def close(self) -> None:
        self._harness.close()
        self._submission.close()

    def _function(self, name: str) -> tuple[RunOutcome, object]:
        self._limit = None
        self._harness.refuel(HARNESS_FACTOR * self.limits.fuel)
        try:
            found = json.loads(self._harness.exchange(json.dumps({"do": "run", "name": name, "seed": self.seed})))
        except wasm.Stopped as stopped:
            return stopped.outcome, None
        except wasm.LoadFailed as failed:
            self.logs.append(str(failed))
            return RunOutcome.FAILED, None
        if "value" in found:
            return RunOutcome.PASSED, found["value"]
        error = found.get("error", {"name": "Error", "message": "It never comes to an end."})
        self.logs.append(f"{error['name']}: {error['message']}")
        return self._limit or _limit(f"{error['name']}: {error['message']}") or RunOutcome.FAILED, None

    def _answer(self, message: str) -> str:
        try:
            answered = self._submission.exchange(message)
        except wasm.LoadFailed as failed:
            answered = json.dumps({"error": {"name": "Error", "message": str(failed)}})
        found = json.loads(answered)
        if "pending" in found:
            return json.dumps({"error": {"name": "Error", "message": "The submission's promise never settles."}})
        if "error" in found:
            self._limit = _limit(f"{found['error'].get('name')}: {found['error'].get('message')}")
        return answered


def _number(value: object) -> int | float | None:
    """A metric's value: a finite number, a whole one as an integer."""
    if isinstance(value, dict) and value.get("$") == "bigint":
        return int(value["v"]) if len(str(value["v"])) <= _MOST_DIGITS else None
    if isinstance(value, int):
        return int(value) if abs(value) < 10**_MOST_DIGITS else None
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value
