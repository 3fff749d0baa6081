"""Worker processes: a few are kept between jobs, and one that is lost is replaced."""

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
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
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

    def ask(self, function: Callable[..., T], seconds: float, **job: object) -> T:
        """Call a function of ours in another process; arguments and answer are JSON. Raises WorkerLost."""
        with self._turn:
            with self._lock:
                worker = self._idle.pop() if self._idle else _Worker()
            try:
                found: T = worker.ask([function.__module__, function.__name__, job], seconds)
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

    def ask(self, job: list[object], seconds: float) -> Any:
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
                raise WorkerLost(f"The worker ended with code {self._process.poll()} before it answered.")
            found += part
        return json.loads(found)

    def stop(self) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "started with pipes"
            with suppress(BrokenPipeError):  # a job that nobody reads any more
                pipe.close()
        self._process.wait()
        self._folder.cleanup()
