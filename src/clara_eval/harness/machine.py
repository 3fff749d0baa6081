"""Run one submission, under a harness or alone, in the machine of its language, from any thread; the call blocks."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.harness.model import (
    Call,
    Executed,
    Fact,
    Harness,
    HarnessSubmission,
    Language,
    RunLimits,
    RunOutcome,
    flat,
    overall,
)
from clara_eval.harness.solc import (
    COMPILE_RULES,
    REMEDY,
    SOLC_SETTINGS,
    CompileCache,
    compiler_identity,
    find_compiler,
)
from clara_eval.harness.workers import (
    Compiled,
    CompileJob,
    Compiler,
    EvmAnswer,
    EvmJob,
    PrepareJob,
    ScriptAnswer,
    WorkerLost,
    Workers,
)

DEFAULT_CACHE = Path("~/.cache/clara-eval")
"""Where compiled engines are kept also where answers of the compiler are not: they hold nothing of anybody."""
PREPARE_SECONDS = 1_800.0
MAX_LOGS = 50
MAX_LOG_CHARS = 4_000
MAX_DETAIL_CHARS = 300


class MissingEngine(ConfigError):
    """The engine of this language is not installed here; the remedy is one line."""

    def __init__(self, language: Language, message: str, remedy: str) -> None:
        super().__init__(message, remedy=remedy)
        self.language = language


class Machine:
    def __init__(self, *, solc: str | None = None, cache: Path | None = None, workers: int | None = None) -> None:
        self._solc = solc
        self.cache_folder = cache or DEFAULT_CACHE.expanduser()
        self._cache = CompileCache(cache / "solidity" if cache else None)
        self._engines = self.cache_folder / "wasm"
        self._preparing = threading.Lock()
        self._workers = Workers(workers)
        self._compiler: tuple[Compiler, str] | None = None

    def run(self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits | None = None) -> Executed:
        limits = limits or RunLimits()
        if harness is not None and harness.language != submission.language:
            raise BadInput(
                f"The harness is in {harness.language}, the submission in {submission.language}.",
                remedy="Both must be in the same language.",
            )
        self.require(submission.language)
        if submission.size > limits.source_bytes:
            fact = "compiles" if submission.language == "solidity" else "loads"
            found = f"The submission is larger than {limits.source_bytes:,} bytes."
            return _executed(harness, submission, RunOutcome.TOO_LARGE, found, {fact: False})
        run = self._solidity if submission.language == "solidity" else self._script
        try:
            return run(harness, submission, limits)
        except WorkerLost as lost:
            return _executed(harness, submission, RunOutcome.INFRASTRUCTURE, str(lost))

    def close(self) -> None:
        self._workers.close()

    def require(self, language: Language) -> None:
        """Raise `MissingEngine` where this language cannot be executed here."""
        if language == "solidity":
            self._solidity_compiler()
            return
        from clara_eval.harness.scripts import missing

        if problem := missing(language):
            raise MissingEngine(language, *problem)

    def prepare(self, language: Language) -> bool:
        """Compile the engine of this language for this machine, which takes a while; whether it is kept ready."""
        self.require(language)
        if self.is_prepared(language):
            return True
        from clara_eval.harness.cpython import find_module

        job = PrepareJob(kind="prepare", module=str(find_module()), cache=str(self._engines))
        with self._preparing:
            if not self.is_prepared(language):
                with suppress(WorkerLost):  # the next line says whether it is ready
                    self._workers.ask(job, PREPARE_SECONDS)
        return self.is_prepared(language)

    def is_prepared(self, language: Language) -> bool:
        if language != "python":
            return True
        from clara_eval.harness.cpython import kept_module
        from clara_eval.harness.wasm import is_own

        return is_own(kept_module(self._engines))

    def _solidity_compiler(self) -> tuple[Compiler, str]:
        if self._compiler is not None:
            return self._compiler
        if find_spec("pyrevm") is None:
            raise MissingEngine("solidity", "The EVM is not installed.", "Run `pip install pyrevm`.")
        compiler = find_compiler(self._solc)
        if compiler is None:
            raise MissingEngine("solidity", "There is no Solidity compiler here.", REMEDY)
        self._compiler = (compiler, compiler_identity(compiler))
        return self._compiler

    def _solidity(self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits) -> Executed:
        compiled = self._compiled(harness, submission, limits)
        if compiled["outcome"] == RunOutcome.INFRASTRUCTURE:
            return _executed(harness, submission, RunOutcome.INFRASTRUCTURE, compiled["detail"])
        code = compiled["submission"]
        facts: dict[str, Fact] = {
            "compiles": code is not None or compiled["outcome"] in {None, RunOutcome.DOES_NOT_FIT}
        }
        facts |= {"bytecode_bytes": len(code) // 2 if code else None, "deploy_gas": None}
        found: EvmAnswer = {"deployGas": None, "calls": [], "logs": []}
        if code or compiled["harness"]:
            job = EvmJob(
                kind="evm",
                submission=code,
                runtimeBytes=compiled["runtimeBytes"],
                harness=compiled["harness"],
                limits=asdict(limits),
            )
            found = self._workers.ask(job, limits.seconds)
        facts["deploy_gas"] = found["deployGas"]
        outcome, detail = compiled["outcome"], compiled["detail"]
        return _executed(harness, submission, outcome, detail, facts, found, _evm_machine(compiled["compiler"], limits))

    def _compiled(self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits) -> Compiled:
        compiler, identity = self._solidity_compiler()
        text, source = str(submission.source), harness.source if harness else None
        key = self._cache.key(identity, text, source)
        if kept := self._cache.get(key):
            return kept
        job = CompileJob(kind="compile", compiler=compiler, submission=text, harness=source)
        found: Compiled = self._workers.ask(job, 4 * compiler.seconds + limits.seconds)
        if found["outcome"] != RunOutcome.INFRASTRUCTURE:
            self._cache.put(key, found)
        return found

    def _script(self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits) -> Executed:
        from clara_eval.harness.scripts import script_job, script_machine

        self.prepare(submission.language)
        found: ScriptAnswer = self._workers.ask(script_job(harness, submission, limits, self._engines), limits.seconds)
        facts, machine = {"loads": found["loads"]}, script_machine(submission, limits)
        return _executed(harness, submission, found["outcome"], found["detail"], facts, found, machine)


def _evm_machine(compiler: str, limits: RunLimits) -> dict[str, object]:
    from clara_eval.harness.evm import WORLD, engine_version

    told = {
        "engine": engine_version(),
        "compiler": compiler,
        "compiling": COMPILE_RULES,
        "settings": SOLC_SETTINGS,
        "world": WORLD,
        "limits": {"sourceBytes": limits.source_bytes, "gas": limits.gas},
    }
    return flat(told)


def _executed(
    harness: Harness | None,
    submission: HarnessSubmission,
    outcome: str | None,
    detail: str,
    facts: Mapping[str, Fact] | None = None,
    ran: EvmAnswer | ScriptAnswer | None = None,
    machine: Mapping[str, object] | None = None,
) -> Executed:
    """Without an outcome the functions that ran say it."""
    calls = tuple(Call.from_json(one) for one in ran["calls"]) if ran else ()
    return Executed(
        language=submission.language,
        outcome=RunOutcome(outcome) if outcome else overall(calls),
        detail=_printable(detail[:MAX_DETAIL_CHARS]),
        calls=calls,
        facts=facts or {},
        logs=_capped(ran["logs"]) if ran else (),
        machine=machine or {},
        with_harness=harness is not None,
    )


def _capped(lines: list[str]) -> tuple[str, ...]:
    kept: list[str] = []
    left = MAX_LOG_CHARS
    for line in lines[:MAX_LOGS]:
        if left <= 0:
            break
        kept.append(_printable(line[:left]))
        left -= len(kept[-1])
    return tuple(kept)


def _printable(text: str) -> str:
    """Plain ASCII: everything else is spelled out, because it goes to terminals and pages."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


SMALLEST: dict[Language, str] = {
    "solidity": "// SPDX-License-Identifier: MIT\npragma solidity >=0.8.0;\ncontract Submission {}\n",
    "javascript": "export const nothing = null;\n",
    "python": "nothing = None\n",
}
State = Literal["ready", "slow", "failed", "missing"]
"""`slow`: it runs, and compiles anew every time; `failed`: it is installed and did not run."""


@dataclass(frozen=True, slots=True)
class Readiness:
    state: State
    reason: str = ""
    remedy: str = ""


def look_at(machine: Machine, language: Language) -> Readiness:
    try:
        executed = machine.run(None, HarnessSubmission(language, SMALLEST[language]))
    except MissingEngine as missing:
        return Readiness("missing", missing.message, missing.remedy)
    if executed.outcome != "passed":
        again = "Free memory or processor time and run `clara-eval check --engines` again."
        return Readiness("failed", executed.detail or f"The smallest program ended as {executed.outcome}.", again)
    if problem := _unkept(machine, language):
        keep = f"Let only this user write to {machine.cache_folder}, or name another folder with CLARA_CACHE_DIR."
        return Readiness("slow", problem, keep)
    return Readiness("ready")


def _unkept(machine: Machine, language: Language) -> str | None:
    """Why what was compiled is not found next time; None if it is."""
    if language == "javascript":
        return None  # compiled in a moment, never kept
    if problem := _unwritable(machine.cache_folder):
        return f"Nothing can be kept in {machine.cache_folder} ({problem}): it is compiled anew every time."
    if not machine.is_prepared(language):
        return f"Others may write to {machine.cache_folder}: what was compiled there is not used."
    return None


def _unwritable(folder: Path) -> str | None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            return None
    except OSError as bad:
        return bad.strerror or str(bad)
