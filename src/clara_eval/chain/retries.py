"""How often and how long nodes are asked again: one policy for every question to them.

Invariant: a question ends within `total_seconds`, with every node, request, pause and repeated look that it takes.
Waiting for a transaction to be mined is not a question: `SendTimeouts` of the sender bounds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_deadline: ContextVar[float | None] = ContextVar("node_deadline", default=None)


@dataclass(frozen=True, slots=True)
class NodeRetries:
    pauses: tuple[float, ...] = (0.1, 0.3, 0.6, 2.0)
    """Seconds before each further round over all nodes, while none answers: 3 s bridge a restart or a rate limit."""
    late_rounds: int = 3
    """Further rounds while a node answers but is behind the others: a second, half of Base's block time."""
    timeout_seconds: float = 20.0
    """For one HTTP request."""
    total_seconds: float = 60.0
    """The longest wait for one question."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Let everything asked inside share one `total_seconds`; an outer limit stays the limit."""
        if _deadline.get() is not None:
            yield
            return
        token = _deadline.set(time.monotonic() + self.total_seconds)
        try:
            yield
        finally:
            _deadline.reset(token)

    def request_seconds(self) -> float:
        """How long the next request may take; 0 if the question has no time left."""
        deadline = _deadline.get()
        left = self.total_seconds if deadline is None else deadline - time.monotonic()
        return max(0.0, min(self.timeout_seconds, left))

    async def pause(self, seconds: float) -> bool:
        """Wait before the next round; False if the question has no time for one."""
        if self.request_seconds() <= seconds:
            return False
        await self.sleep(seconds)
        return True

    async def until(self, is_settled: Callable[[T], bool], ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again while a node is behind; return the last answer if it never settles."""
        with self.limited():
            for seconds in self.pauses[: self.late_rounds]:
                answer = await ask()
                if is_settled(answer) or not await self.pause(seconds):
                    return answer
            return await ask()
