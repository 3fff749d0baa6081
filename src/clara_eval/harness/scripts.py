"""Run JavaScript and Python harnesses: each function in a fresh pair of instances."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path

from clara_eval.core.codec import to_camel_json
from clara_eval.core.hashing import sha256_hex
from clara_eval.harness import cpython, quickjs, wasm
from clara_eval.harness.model import (
    Call,
    Executed,
    HarnessSubmission,
    Kind,
    Language,
    ProgramText,
    RunLimits,
    RunOutcome,
    flatten,
    function_kind,
    overall_outcome,
)

ENGINES = {"javascript": quickjs, "python": cpython}
NAMES = {"javascript": "JavaScript", "python": "Python"}
HARNESS_FACTOR = 4  # a harness may use this many times the fuel and output of a submission
MAX_EXHAUSTED = 3  # functions out of fuel, after which the rest is not run and counts as out of fuel too
_BY_ERROR = {
    "out of memory": RunOutcome.OUT_OF_MEMORY,
    "string too long": RunOutcome.OUT_OF_MEMORY,
    "Maximum call stack": RunOutcome.STACK_OVERFLOW,
    "MemoryError": RunOutcome.OUT_OF_MEMORY,
    "RecursionError": RunOutcome.STACK_OVERFLOW,
}
_NO_MODULE = ("could not load module", "ModuleNotFoundError")  # how the engines report an import that does not exist
_MOST_DIGITS = 100

Guest = quickjs.JavaScriptGuest | cpython.PythonGuest
Opener = Callable[[ProgramText, str, RunLimits, wasm.Ask | None], Guest]


def script_machine(submission: HarnessSubmission, limits: RunLimits) -> dict[str, object]:
    """Return all versions and settings that the measured numbers depend on."""
    engine, is_tree = ENGINES[submission.language], not isinstance(submission.source, str)
    guests = (*engine.GUESTS, quickjs.TREE) if is_tree else engine.GUESTS
    settings = {
        "engine": f"wasmtime {version('wasmtime')}",
        "module": engine.SHA256,
        "guest": sha256_hex(b"".join(file.read_bytes() for file in guests)),
        "world": {"clock": wasm.CLOCK_SECONDS, "seed": wasm.SEED},
        "charges": {"hostCall": wasm.HOST_CALL_FUEL, "hostByte": wasm.HOST_BYTE_FUEL},
        "limits": {
            **{name: value for name, value in to_camel_json(limits).items() if name not in {"gas", "seconds"}},
            "stackBytes": engine.STACK_BYTES,
            "messageBytes": wasm.MAX_MESSAGE_BYTES,
            "leastWriteBytes": wasm.LEAST_WRITE_BYTES,
            "harnessFactor": HARNESS_FACTOR,
            "exhaustedFunctions": MAX_EXHAUSTED,
            **({"lookups": quickjs.MOST_LOOKUPS} if is_tree else {}),
        },
    }
    return flatten(settings)


def run_job(
    language: Language,
    module: str,
    cache: str,
    harness: str | None,
    submission: ProgramText,
    seed: str,
    limits: dict[str, int],
) -> Executed:
    """Load the submission alone, then run every function of the harness on it."""
    open_guest, bounds = _engine(language, module, cache), RunLimits(**limits)
    try:
        alone = open_guest(submission, "submission", bounds, None)
    except wasm.LoadFailed as failed:
        is_import = any(words in str(failed) for words in _NO_MODULE)
        outcome = RunOutcome.FORBIDDEN_IMPORT if is_import else _limit_outcome(str(failed)) or RunOutcome.DOES_NOT_LOAD
        return Executed(language, outcome, str(failed), facts={"loads": False})
    except wasm.Stopped as stopped:
        return Executed(language, stopped.outcome, "It ran into a limit while it was loaded.", facts={"loads": False})
    alone.close()
    found = partial(Executed, language, facts={"loads": True}, logs=tuple(alone.logs))
    if harness is None:
        return found(RunOutcome.PASSED)
    try:
        kinds = _list_functions(open_guest, harness, bounds)
    except (wasm.LoadFailed, wasm.Stopped) as bad:
        return found(RunOutcome.DOES_NOT_FIT, f"The harness does not load: {bad}")
    calls, logs = _run_all(partial(_Pair, open_guest, harness, submission, seed, bounds), kinds, bounds.fuel)
    return found(overall_outcome(calls), calls=tuple(calls), logs=tuple(logs))


def _run_all(open_pair: Callable[[bool], _Pair], kinds: dict[str, Kind], fuel: int) -> tuple[list[Call], list[str]]:
    calls, logs, has_set_up = list[Call](), list[str](), "setUp" in kinds
    in_order: dict[str, Kind] = {"setUp": "setUp", **kinds}
    for name, kind in in_order.items():
        if sum(call.outcome == RunOutcome.OUT_OF_FUEL for call in calls) >= MAX_EXHAUSTED:
            calls.append(Call(name, kind, RunOutcome.OUT_OF_FUEL, fuel))
        elif kind == "setUp" and not has_set_up:
            calls.append(Call(name, kind, RunOutcome.PASSED, 0))
        else:
            pair = open_pair(has_set_up)
            calls.append(pair.run(name, kind))
            logs += [f"{name}: {line}" for line in pair.logs]
            if kind == "setUp" and calls[0].outcome != RunOutcome.PASSED:
                break
    return calls, logs


@lru_cache(maxsize=2)
def _engine(language: str, module: str, cache: str) -> Opener:
    engine = ENGINES[language]
    return partial(engine.open_guest, engine.load(Path(module), Path(cache)))


def _limit_outcome(text: str) -> RunOutcome | None:
    return next((outcome for words, outcome in _BY_ERROR.items() if words in text), None)


@lru_cache(maxsize=8)
def _list_functions(open_guest: Opener, harness: str, limits: RunLimits) -> dict[str, Kind]:
    guest = open_guest(harness, "harness", _harness_limits(limits), lambda _: json.dumps({"value": None}))
    found = json.loads(guest.exchange('{"do": "loaded"}'))
    guest.close()
    names = sorted(item for item in found["value"]["v"] if isinstance(item, str))
    return {name: kind for name in names if (kind := function_kind(name)) is not None}


def _harness_limits(limits: RunLimits) -> RunLimits:
    return replace(limits, fuel=HARNESS_FACTOR * limits.fuel, output_bytes=HARNESS_FACTOR * limits.output_bytes)


class _Pair:
    """A harness and a submission, both fresh, for one function."""

    def __init__(
        self, open_guest: Opener, harness: str, submission: ProgramText, seed: str, limits: RunLimits, has_set_up: bool
    ) -> None:
        self.limits, self.seed, self.has_set_up = limits, seed, has_set_up
        self.logs: list[str] = []
        self._submission = open_guest(submission, "submission", limits, None)
        self._harness = open_guest(harness, "harness", _harness_limits(limits), self._ask_submission)
        self._limit_hit: RunOutcome | None = None

    def run(self, name: str, kind: Kind) -> Call:
        outcome, value = self._call("setUp")[0] if self.has_set_up else RunOutcome.PASSED, None
        if outcome == RunOutcome.FAILED:
            outcome = RunOutcome.SET_UP_FAILED
        if kind != "setUp" and outcome == RunOutcome.PASSED:
            outcome, value = self._call(name)
        used = self.limits.fuel - self._submission.fuel_left
        self.logs += [*self._submission.logs, *self._harness.logs]
        self._harness.close()
        self._submission.close()
        if kind != "metric" or outcome != RunOutcome.PASSED:
            return Call(name, kind, outcome, used)
        number = _metric_value(value)
        return Call(name, kind, RunOutcome.PASSED if number is not None else RunOutcome.NOT_A_NUMBER, used, number)

    def _call(self, name: str) -> tuple[RunOutcome, object]:
        self._limit_hit = None
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
        text = f"{error['name']}: {error['message']}"
        self.logs.append(text)
        return self._limit_hit or _limit_outcome(text) or RunOutcome.FAILED, None

    def _ask_submission(self, message: str) -> str:
        try:
            answered = self._submission.exchange(message)
        except wasm.LoadFailed as failed:
            answered = json.dumps({"error": {"name": "Error", "message": str(failed)}})
        found = json.loads(answered)
        if "pending" in found:
            return json.dumps({"error": {"name": "Error", "message": "The submission's promise never settles."}})
        if "error" in found:
            self._limit_hit = _limit_outcome(f"{found['error'].get('name')}: {found['error'].get('message')}")
        return answered


def _metric_value(value: object) -> int | float | None:
    """Return the value of a metric if it is a finite number; a whole one as an integer."""
    if isinstance(value, dict) and value.get("$") == "bigint":
        return int(value["v"]) if len(str(value["v"])) <= _MOST_DIGITS else None
    if isinstance(value, int):
        return int(value) if abs(value) < 10**_MOST_DIGITS else None
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value
