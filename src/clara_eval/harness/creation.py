"""Measure what the dearest creation of the submission costs where the harness builds it.

The transaction runs once more in a child process: revm's Python binding writes its steps to standard output only.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pyrevm import EVM

MOST_BYTES = 64 * 1024 * 1024
"""Of steps that are read for one transaction."""
TRANSACTION_GAS = 21_000
_STEP = re.compile(rb'"op":(\d+),.*"depth":(\d+)')
_CREATE, _CREATE2, _CODECOPY = 0xF0, 0xF5, 0x39
_ASKED = frozenset({_CREATE, _CREATE2})


class TooManySteps(Exception):
    """Not everything was built within `MOST_BYTES`."""


def dearest_creation(evm: EVM, run: Callable[[EVM], object], code: str, built: frozenset[str]) -> int | None:
    """Gas of the dearest transaction that builds `code` as it was built here; None if it was not."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(write, 1)
            evm.tracing = True  # type: ignore[misc] # its stub names the setter wrongly
            run(evm)
        finally:
            os._exit(0)
    os.close(write)
    try:
        with os.fdopen(read, "rb") as steps:
            costs = _costs(steps, len(code) // 2, built)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    data = bytes.fromhex(code)
    carried = sum(16 if byte else 4 for byte in data)
    return TRANSACTION_GAS + carried + max(costs) if costs else None


@dataclass(slots=True)
class _Frame:
    copied: int | None = None
    """Where code of the submission's length was last copied to."""
    creating: tuple[int, list[int]] | None = None
    """The gas before a creation, and the list of costs that it belongs to."""


@dataclass(slots=True)
class _Reader:
    length: int
    frames: dict[int, _Frame] = field(default_factory=dict)
    sure: list[int] = field(default_factory=list)
    likely: list[int] = field(default_factory=list)
    """By their size alone: the harness moved the code before it built it."""
    others: list[int] = field(default_factory=list)

    def step(self, op: int, depth: int, line: bytes) -> str | None:
        """Take one step in; the address that it shows to be built."""
        frame = self.frames.setdefault(depth, _Frame())
        for deeper in [one for one in self.frames if one > depth]:
            del self.frames[deeper]
        if frame.creating is None and op not in _ASKED and op != _CODECOPY:
            return None
        found = json.loads(line)
        stack = [int(one, 16) for one in found["stack"][-4:]]
        built = self._ended(frame, int(found["gas"], 16), stack)
        if len(stack) < 3:  # code of a submission may ask for more than there is; the machine halts it
            return built
        if op == _CODECOPY and stack[-3] == self.length:
            frame.copied = stack[-1]
        elif op in _ASKED:
            frame.creating = int(found["gas"], 16), self._kind(frame, stack[-2], stack[-3] - self.length)
        return built

    def _kind(self, frame: _Frame, offset: int, more: int) -> list[int]:
        if frame.copied is None or more < 0 or more % 32:  # a constructor is given words of 32 bytes
            return self.others
        return self.sure if frame.copied == offset else self.likely

    def _ended(self, frame: _Frame, gas: int, stack: list[int]) -> str | None:
        if frame.creating is None:
            return None
        before, costs = frame.creating
        frame.creating = None
        if not stack or not stack[-1]:
            return None
        costs.append(before - gas)
        return f"0x{stack[-1]:040x}"


def _costs(steps: IO[bytes], length: int, built: frozenset[str]) -> list[int]:
    reader, left, missing = _Reader(length), MOST_BYTES, set(built)
    while missing and (line := steps.readline(left)):
        left -= len(line)
        if left <= 0:
            raise TooManySteps
        if found := _STEP.search(line):
            missing.discard(reader.step(int(found[1]), int(found[2]), line) or "")
    return reader.sure or reader.likely
