"""Run one submission, under a harness or alone, in the machine of its language, from any thread; the call blocks."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.harness import cpython, evm, scripts, solc
from clara_eval.harness.model import (
    Call,
    Executed,
    Harness,
    HarnessSubmission,
    Language,
    RunAnswer,
    RunLimits,
    RunOutcome,
    flat,
    overall,
    run_answer,
)
from clara_eval.harness.solc import CompileCache, Compiled, Compiler, compiler_identity, find_compiler
from clara_eval.harness.wasm import is_own
from clara_eval.harness.workers import WorkerLost, Workers

DEFAULT_CACHE = Path("~/.cache/clara-eval")
"""Where compiled engines are kept also where answers of the compiler are not: they hold nothing of anybody."""
PREPARE_SECONDS = 1_800.0
MAX_LOGS = 50
MAX_LOG_CHARS = 4_000
MAX_DETAIL_CHARS = 300


class MissingEngine(ConfigError):
    """The engine of this language is not installed here; the remedy is one line."""


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
        limits, language = limits or RunLimits(), submission.language
        if harness is not None and harness.language != language:
            raise BadInput(
                f"The harness is in {harness.language}, the submission in {language}.",
                remedy="Both must be in the same language.",
            )
        self.require(language)
        machine: Mapping[str, object] = {}
        try:
            if submission.size > limits.source_bytes:
                detail = f"The submission is larger than {limits.source_bytes:,} bytes."
                fact = "compiles" if language == "solidity" else "loads"
                found = run_answer(RunOutcome.TOO_LARGE, detail, {fact: False})
            else:
                run = self._solidity if language == "solidity" else self._script
                found, machine = run(harness, submission, limits)
        except WorkerLost as lost:
            found = run_answer(RunOutcome.INFRASTRUCTURE, str(lost))
        calls = tuple(Call.from_json(one) for one in found["calls"])
        return Executed(
            language=language,
            outcome=RunOutcome(found["outcome"]) if found["outcome"] else overall(calls),
            detail=_printable(found["detail"][:MAX_DETAIL_CHARS]),
            calls=calls,
            facts=found["facts"],
            logs=_capped(found["logs"]),
            machine=machine,
            with_harness=harness is not None,
        )

    def close(self) -> None:
        self._workers.close()

    def require(self, language: Language) -> None:
        """Raise `MissingEngine` where this language cannot be executed here."""
        if language == "solidity":
            self._solidity_compiler()
        elif find_spec("wasmtime") is None or scripts.ENGINES[language].find_module() is None:
            name, remedy = scripts.NAMES[language], scripts.ENGINES[language].REMEDY
            raise MissingEngine(f"The {name} engine is not installed.", remedy=remedy)

    def prepare(self, language: Language) -> bool:
        """Compile the engine of this language for this machine, which takes a while; whether it is kept ready."""
        self.require(language)
        with self._preparing:
            if not self.is_prepared(language):
                job = {"module": str(cpython.find_module()), "cache": str(self._engines)}
                with suppress(WorkerLost):  # the next line says whether it is ready
                    self._workers.ask(cpython.prepare, PREPARE_SECONDS, **job)
        return self.is_prepared(language)

    def is_prepared(self, language: Language) -> bool:
        return language != "python" or is_own(cpython.kept_module(self._engines))

    def _solidity_compiler(self) -> tuple[Compiler, str]:
        if self._compiler is not None:
            return self._compiler
        if find_spec("pyrevm") is None:
            raise MissingEngine("The EVM is not installed.", remedy="Run `pip install pyrevm`.")
        compiler = find_compiler(self._solc)
        if compiler is None:
            raise MissingEngine("There is no Solidity compiler here.", remedy=solc.REMEDY)
        self._compiler = (compiler, compiler_identity(compiler))
        return self._compiler

    def _solidity(
        self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits
    ) -> tuple[RunAnswer, Mapping[str, object]]:
        compiled = self._compiled(str(submission.source), harness.source if harness else None, limits)
        if compiled["outcome"] == RunOutcome.INFRASTRUCTURE:
            return run_answer(compiled["outcome"], compiled["detail"]), {}
        told = {
            "engine": f"pyrevm {version('pyrevm')}",
            "compiler": compiled["compiler"],
            "compiling": solc.COMPILE_RULES,
            "settings": solc.SOLC_SETTINGS,
            "world": evm.WORLD,
            "limits": {"sourceBytes": limits.source_bytes, "gas": limits.gas},
        }
        job = {"compiled": compiled, "limits": asdict(limits)}
        return self._workers.ask(evm.answer, limits.seconds, **job), flat(told)

    def _compiled(self, submission: str, harness: str | None, limits: RunLimits) -> Compiled:
        compiler, identity = self._solidity_compiler()
        key = self._cache.key(identity, submission, harness)
        if kept := self._cache.get(key):
            return kept
        job = {"compiler": compiler, "submission": submission, "harness": harness}
        found = self._workers.ask(solc.answer, 4 * compiler.seconds + limits.seconds, **job)
        if found["outcome"] != RunOutcome.INFRASTRUCTURE:
            self._cache.put(key, found)
        return found

    def _script(
        self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits
    ) -> tuple[RunAnswer, Mapping[str, object]]:
        if not self.is_prepared(submission.language):
            self.prepare(submission.language)
        found = self._workers.ask(
            scripts.answer,
            limits.seconds,
            language=submission.language,
            module=str(scripts.ENGINES[submission.language].find_module()),
            cache=str(self._engines),
            harness=harness.source if harness else None,
            submission=submission.source if isinstance(submission.source, str) else dict(submission.source),
            seed=harness.seed if harness else "",
            limits=asdict(limits),
        )
        return found, scripts.script_machine(submission, limits)


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
    folder = machine.cache_folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            is_kept = machine.is_prepared(language)
    except OSError as bad:
        return f"Nothing can be kept in {folder} ({bad.strerror or bad}): it is compiled anew every time."
    return None if is_kept else f"Others may write to {folder}: what was compiled there is not used."
