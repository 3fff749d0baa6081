"""Run a submission, under a harness or alone, in the engine of its language; blocks, thread-safe."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.harness import cpython, evm, scripts, solc
from clara_eval.harness.model import Executed, Harness, HarnessSubmission, Language, RunLimits, RunOutcome, flatten
from clara_eval.harness.solc import CompileCache, Compiler, compiler_identity, find_compiler
from clara_eval.harness.wasm import is_private_file

DEFAULT_CACHE = Path("~/.cache/clara-eval")  # for compiled engines; Solidity results are cached only in a given folder
PREPARE_SECONDS = 1_800.0
MAX_LOGS = 50
MAX_LOG_CHARS = 4_000
MAX_DETAIL_CHARS = 300
SMALLEST_PROGRAMS: dict[Language, str] = {
    "solidity": "// SPDX-License-Identifier: MIT\npragma solidity >=0.8.0;\ncontract Submission {}\n",
    "javascript": "export const nothing = null;\n",
    "python": "nothing = None\n",
}
State = Literal["ready", "slow", "failed", "missing"]  # `slow`: compiled again for every run; `failed`: did not run
MAX_ANSWER_BYTES = 64 * 1024 * 1024
JOBS_PER_WORKER = 200  # then the process is replaced, so that leaks in libraries do not add up


class MissingEngine(ConfigError):
    """The engine of this language is not installed; the remedy says how to install it."""


class Machine:
    def __init__(self, *, solc: str | None = None, cache: Path | None = None, workers: int | None = None) -> None:
        self._solc = solc
        self.cache_folder = cache or DEFAULT_CACHE.expanduser()
        self._cache = CompileCache(cache / "solidity" if cache else None)
        self._engines = self.cache_folder / "wasm"
        self._preparing = threading.Lock()
        self._workers = Workers(workers)
        self.close = self._workers.close
        self._compiler: tuple[Compiler, str] | None = None

    def run(self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits | None = None) -> Executed:
        limits, language = limits or RunLimits(), submission.language
        if harness is not None and harness.language != language:
            problem = f"The harness is in {harness.language}, the submission in {language}."
            raise BadInput(problem, remedy="Both must be in the same language.")
        self.require(language)
        run, fact = (self._run_solidity, "compiles") if language == "solidity" else (self._run_script, "loads")
        too_large = f"The submission is larger than {limits.source_bytes:,} bytes."
        found = Executed(language, RunOutcome.TOO_LARGE, too_large, facts={fact: False})
        try:
            if submission.size <= limits.source_bytes:
                found = run(harness, submission, limits)
        except WorkerLost as lost:
            found = Executed(language, RunOutcome.INFRASTRUCTURE, str(lost))
        detail, logs = _printable(found.detail[:MAX_DETAIL_CHARS]), _cap_logs(found.logs)
        return replace(found, detail=detail, logs=logs, with_harness=harness is not None)

    def require(self, language: Language) -> None:
        if language == "solidity":
            self._solidity_compiler()
        elif find_spec("wasmtime") is None or scripts.ENGINES[language].find_module() is None:
            name, remedy = scripts.NAMES[language], scripts.ENGINES[language].REMEDY
            raise MissingEngine(f"The {name} engine is not installed.", remedy=remedy)

    def is_prepared(self, language: Language) -> bool:
        return language != "python" or is_private_file(cpython.compiled_module_path(self._engines))

    def _solidity_compiler(self) -> tuple[Compiler, str]:
        if self._compiler is None:
            if find_spec("pyrevm") is None:
                raise MissingEngine("The EVM is not installed.", remedy="Run `pip install pyrevm`.")
            if (compiler := find_compiler(self._solc)) is None:
                raise MissingEngine("There is no Solidity compiler here.", remedy=solc.REMEDY)
            self._compiler = compiler, compiler_identity(compiler)
        return self._compiler

    def _run_solidity(self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits) -> Executed:
        compiler, identity = self._solidity_compiler()
        source, tests = str(submission.source), harness.source if harness else None
        key = self._cache.key(identity, source, tests)
        if (compiled := self._cache.get(key)) is None:
            seconds = 4 * compiler.seconds + limits.seconds
            compiled = self._workers.call(solc.run_job, seconds, compiler=compiler, submission=source, harness=tests)
            if compiled["outcome"] == RunOutcome.INFRASTRUCTURE:
                return Executed("solidity", RunOutcome.INFRASTRUCTURE, compiled["detail"])
            self._cache.put(key, compiled)
        machine = {
            "engine": f"pyrevm {version('pyrevm')}",
            "compiler": compiled["compiler"],
            "compiling": solc.COMPILE_RULES,
            "settings": solc.SOLC_SETTINGS,
            "world": evm.WORLD,
            "limits": {"sourceBytes": limits.source_bytes, "gas": limits.gas},
        }
        return self._run_in_worker(evm.run_job, flatten(machine), limits, compiled=compiled)

    def _run_script(self, harness: Harness | None, submission: HarnessSubmission, limits: RunLimits) -> Executed:
        module = str(scripts.ENGINES[submission.language].find_module())
        if not self.is_prepared(submission.language):
            with self._preparing, suppress(WorkerLost):  # then every run compiles again
                if not self.is_prepared(submission.language):
                    self._workers.call(cpython.prepare, PREPARE_SECONDS, module=module, cache=str(self._engines))
        return self._run_in_worker(
            scripts.run_job,
            scripts.script_machine(submission, limits),
            limits,
            language=submission.language,
            module=module,
            cache=str(self._engines),
            harness=harness.source if harness else None,
            submission=submission.source if isinstance(submission.source, str) else dict(submission.source),
            seed=harness.seed if harness else "",
        )

    def _run_in_worker(
        self, function: Callable[..., Executed], machine: dict[str, object], limits: RunLimits, **job: object
    ) -> Executed:
        found = self._workers.call(function, limits.seconds, limits=asdict(limits), **job)
        return replace(Executed.from_json(found), detail=found["detail"], logs=found["logs"], machine=machine)


def _cap_logs(lines: Sequence[str]) -> tuple[str, ...]:
    kept, left = list[str](), MAX_LOG_CHARS
    for line in lines[:MAX_LOGS]:
        if left > 0:
            kept.append(_printable(line[:left]))
            left -= len(kept[-1])
    return tuple(kept)


def _printable(text: str) -> str:
    """Escape all but printable ASCII, because logs reach terminals and pages."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Readiness:
    state: State
    reason: str = ""
    remedy: str = ""


def look_at(machine: Machine, language: Language) -> Readiness:
    """Run the smallest program, and say whether the engine of a language is ready."""
    try:
        executed = machine.run(None, HarnessSubmission(language, SMALLEST_PROGRAMS[language]))
    except MissingEngine as missing:
        return Readiness("missing", missing.message, missing.remedy)
    if executed.outcome != "passed":
        remedy = "Free memory or processor time and run `clara-eval check --engines` again."
        return Readiness("failed", executed.detail or f"The smallest program ended as {executed.outcome}.", remedy)
    if language == "javascript":
        return Readiness("ready")  # compiles in a moment, so it is never cached
    folder = machine.cache_folder
    problem = f"Others may write to {folder}: what was compiled there is not used."
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            if machine.is_prepared(language):
                return Readiness("ready")
    except OSError as bad:
        problem = f"Nothing can be kept in {folder} ({bad.strerror or bad}): it is compiled anew every time."
    remedy = f"Let only this user write to {folder}, or name another folder with CLARA_CACHE_DIR."
    return Readiness("slow", problem, remedy)


class WorkerLost(Exception):
    """A worker process gave no answer; the text says why."""


class Workers:
    """A pool of at most `count` worker processes; further callers wait."""

    def __init__(self, count: int | None = None) -> None:
        self._slots = threading.BoundedSemaphore(count or max(1, min(4, os.cpu_count() or 1)))
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self.close = weakref.finalize(self, _stop_all, self._idle, self._lock)

    def call(self, function: Callable[..., object], seconds: float, **job: object) -> Any:
        """Call one of our functions in a worker, with JSON arguments and result; raises WorkerLost."""
        with self._slots:
            with self._lock:
                worker = self._idle.pop() if self._idle else _Worker()
            try:
                found = worker.call([function.__module__, function.__name__, job], seconds)
            except BaseException:
                worker.stop()
                raise
            if worker.jobs >= JOBS_PER_WORKER or not self.close.alive:
                worker.stop()
            else:
                with self._lock:
                    self._idle.append(worker)
            return found


def _stop_all(idle: list[_Worker], lock: threading.Lock) -> None:
    with lock:
        while idle:
            idle.pop().stop()


class _Worker:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="clara-run-")
        self._process = subprocess.Popen(  # our own module
            [sys.executable, "-I", "-m", "clara_eval.harness.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.name,
            env={},
            start_new_session=True,
        )
        self.jobs = 0

    def call(self, job: list[object], seconds: float) -> object:
        self.jobs += 1
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "started with pipes"
        assert stdout is not None, "started with pipes"
        try:
            stdin.write(json.dumps(job).encode() + b"\n")
            stdin.flush()
        except OSError as bad:
            raise WorkerLost(f"The worker has ended: {bad.strerror}.") from None
        found, until = bytearray(), time.monotonic() + seconds
        while not found.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise WorkerLost(f"The run took longer than {seconds:g} s on this machine.")
            part = os.read(stdout.fileno(), 1 << 16)
            if not part or len(found) > MAX_ANSWER_BYTES:
                raise WorkerLost(f"The worker gave no usable answer (exit code {self._process.poll()}).")
            found += part
        return json.loads(found)

    def stop(self) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "started with pipes"
            with suppress(BrokenPipeError):  # an unread job
                pipe.close()
        self._process.wait()
        self._folder.cleanup()
