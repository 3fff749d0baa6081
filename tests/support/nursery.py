"""One process that has imported everything and forks the workers of a chaos run: a kill costs no start of Python.

Comes in: a worker's environment and where it logs. Goes out: `Forked`, whose end is known with its moment, as the
nursery saw it. The process starts with the first fork and ends with the context, and no worker outlives it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class End:
    pid: int
    code: int
    at: float
    """By the machine's monotonic clock, which all its processes share."""


class Nursery:
    """Use inside `running`; starts `chaos_worker --nursery` when the first worker is wanted."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pids: asyncio.Queue[int] = asyncio.Queue()
        self._one_at_a_time = asyncio.Lock()
        self.ended: list[End] = []

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Nursery]:
        made = cls()
        try:
            yield made
        finally:
            if made._process is not None and made._reader is not None:
                made._process.terminate()
                await made._process.wait()
                await made._reader

    async def fork(self, environ: dict[str, str], log: Path, *script: str) -> Forked:
        """A worker, or with its path and words a script, which has this environment alone."""
        async with self._one_at_a_time:
            process = self._process or await self._start()
            assert process.stdin is not None
            after = len(self.ended)
            process.stdin.write(json.dumps({"environ": environ, "log": str(log), "script": script}).encode() + b"\n")
            await process.stdin.drain()
            pid = await asyncio.wait_for(self._pids.get(), 600)
            return Forked(pid, self, after)

    async def _start(self) -> asyncio.subprocess.Process:
        command = (sys.executable, "-m", "tests.support.chaos_worker", "--nursery")
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        self._reader = asyncio.create_task(self._read(self._process))
        return self._process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            said = json.loads(line)
            if "pid" in said:
                self._pids.put_nowait(said["pid"])
            else:
                self.ended.append(End(said["ended"], said["code"], said["at"]))


@dataclass(frozen=True, slots=True)
class Forked:
    """A worker's process, as its nursery knows it."""

    pid: int
    nursery: Nursery
    after: int
    """Ends that were known before it began: numbers come again."""

    @property
    def end(self) -> End | None:
        return next((end for end in self.nursery.ended[self.after :] if end.pid == self.pid), None)

    @property
    def returncode(self) -> int | None:
        return self.end.code if self.end else None

    def send_signal(self, number: int) -> None:
        if self.end is None:
            os.kill(self.pid, number)

    async def wait(self) -> int:
        while (code := self.returncode) is None:  # noqa: ASYNC110 - another process's child
            await asyncio.sleep(0.02)
        return code
