"""Paid answers that arrive together are written together; each caller goes on when its own is in the database.

In: one answer a caller. Out: whether it is the first of its request. Must hold: nobody goes on before the answer is
written, an answer of which the database takes no notice keeps its neighbours from nothing, and a caller that went away
stops no writing. One statement for all that came in the same turn of the event loop, or while the one before was on its
way, costs about as much as one for a single answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from clara_eval.core.errors import Temporary
from clara_eval.judge.port import PaidAnswer

MOST_AT_ONCE = 80
"""Six values each: below the 999 that SQLite takes at the least."""

Write = Callable[[Sequence[PaidAnswer]], Awaitable[set[str]]]
"""Writes all or none; gives the requests that had no answer before."""
Place = tuple[PaidAnswer, "asyncio.Future[bool]"]


class WriteBatcher:
    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[Place] = []
        self._task: asyncio.Task[None] | None = None

    async def is_first(self, paid: PaidAnswer) -> bool:
        """Written now, or False where this request was answered before."""
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((paid, place))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await place

    async def _work(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                await self._settle(together)
        finally:
            self._task = None
            for _, place in self._waiting:  # only when this task is ended from outside
                place.cancel()
            self._waiting = []

    async def _settle(self, together: Sequence[Place]) -> None:
        try:
            new = await self._write([paid for paid, _ in together])
        except asyncio.CancelledError:
            for _, place in together:
                place.cancel()
            raise
        except Exception as bad:  # noqa: BLE001 - it is each caller's own
            if len(together) > 1 and not isinstance(bad, Temporary):
                for alone in together:
                    await self._settle((alone,))
                return
            for _, place in together:
                _end(place, bad)
            return
        for paid, place in together:
            _end(place, paid.request in new)
            new.discard(paid.request)  # the same request a second time is not the first


def _end(place: asyncio.Future[bool], how: bool | Exception) -> None:
    if place.done():
        return
    if isinstance(how, Exception):
        place.set_exception(how)
    else:
        place.set_result(how)
