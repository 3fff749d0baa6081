"""Worker processes: their JSON jobs and answers, a few processes kept between jobs, and one replaced if it is lost."""

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
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

from clara_eval.harness.model import CallDocument, Kind, Language, ProgramText


class Compiler(NamedTuple):
    """Where the compiler is: a native binary, or node with the npm package."""

    native: str | None
    node: str | None = None
    package: str | None = None
    seconds: float = 120.0


class CompileJob(TypedDict):
    kind: Literal["compile"]
    compiler: Compiler
    """A list, once it was JSON."""
    submission: str
    harness: str | None


class HarnessFunction(TypedDict):
    name: str
    kind: Kind
    selector: str
    returns: list[str]


class CompiledHarness(TypedDict):
    code: str
    functions: list[HarnessFunction]


class Compiled(TypedDict):
    outcome: str | None
    """None where all of it compiled."""
    detail: str
    compiler: str
    submission: str | None
    runtimeBytes: int
    harness: CompiledHarness | None


class EvmJob(TypedDict):
    kind: Literal["evm"]
    submission: str | None
    runtimeBytes: int
    harness: CompiledHarness | None
    limits: dict[str, int]
    """The fields of `RunLimits`; `seconds` may have a fraction."""


class EvmAnswer(TypedDict):
    deployGas: int | None
    calls: list[CallDocument]
    logs: list[str]


class PrepareJob(TypedDict):
    kind: Literal["prepare"]
    module: str
    cache: str


class ScriptJob(TypedDict):
    kind: Literal["script"]
    language: Language
    module: str
    cache: str
    harness: str | None
    submission: ProgramText
    seed: str
    limits: dict[str, int]


class ScriptAnswer(TypedDict):
    outcome: str | None
    """None where the functions say it."""
    detail: str
    loads: bool
    calls: list[CallDocument]
    logs: list[str]


Job: TypeAlias = CompileJob | EvmJob | PrepareJob | ScriptJob


MAX_ANSWER_BYTES = 64 * 1024 * 1024
JOBS_PER_WORKER = 200
"""Then a new process takes over, so that nothing a library leaks adds up."""


class WorkerLost(Exception):
    """No answer; the text says what happened to the process."""


class Workers:
    """At most `count` processes; more callers wait for their turn."""

    def __init__(self, count: int | None = None) -> None:
        self._turn = threading.BoundedSemaphore(count or max(1, min(4, os.cpu_count() or 1)))
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._finalizer = weakref.finalize(self, _stop_all, self._idle, self._lock)

    def ask(self, job: Job, seconds: float) -> Any:
        with self._turn:
            with self._lock:
                worker = self._idle.pop() if self._idle else _Worker()
            try:
                found = worker.ask(job, seconds)
            except BaseException:
                worker.stop()
                raise
            if worker.jobs >= JOBS_PER_WORKER or not self._finalizer.alive:
                worker.stop()
                return found
            with self._lock:
                self._idle.append(worker)
            return found

    def close(self) -> None:
        self._finalizer()


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

    def ask(self, job: Job, seconds: float) -> Any:
        self.jobs += 1
        assert self._process.stdin is not None, "started with a pipe"
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as bad:
            raise WorkerLost(f"The worker has ended: {bad.strerror}.") from None
        return json.loads(self._line(time.monotonic() + seconds, seconds))

    def _line(self, until: float, seconds: float) -> bytes:
        assert self._process.stdout is not None, "started with a pipe"
        pipe = self._process.stdout.fileno()
        found = bytearray()
        while not found.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise WorkerLost(f"The run took longer than {seconds:g} s on this machine.")
            part = os.read(pipe, 1 << 16)
            if not part or len(found) > MAX_ANSWER_BYTES:
                code = self._process.poll()
                raise WorkerLost(f"The worker ended with code {code} before it answered.")
            found += part
        return bytes(found)

    def stop(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self._process.poll()  # it has ended by itself
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "started with pipes"
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # a job that nobody reads any more
        self._process.wait()
        self._folder.cleanup()
