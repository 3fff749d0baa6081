"""Paid answers of one run: looked up in few queries, saved before they are used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from itertools import islice

from clara_eval.core.errors import Temporary
from clara_eval.judge.admission import Sleep
from clara_eval.judge.port import AnswerBook, PaidAnswer
from clara_eval.judge.retry import RetryPolicy

READ_AT_ONCE = 500
"""Recorded answers that are read ahead of their questions: signed answers are too large to hold all of a round."""


class AnswerCache:
    def __init__(self, book: AnswerBook, policy: RetryPolicy, sleep: Sleep) -> None:
        self._book, self._policy, self._sleep = book, policy, sleep
        self._read: dict[str, PaidAnswer] = {}
        self._unread: dict[str, None] = {}
        """Requests that the book has answered and that were not read yet, in the order in which they will be asked."""
        self._absent: set[str] = set()
        self._reading = asyncio.Lock()

    async def prefetch(self, requests: Sequence[str]) -> int:
        """Look up which of these are answered, and read the first answers; return how many are answered."""
        self._hold(found := await self._book.answers(requests[:READ_AT_ONCE]))
        later = await self._book.answered(rest) if (rest := requests[READ_AT_ONCE:]) else set()
        self._unread = {request: None for request in rest if request in later}
        known = later.union(found)
        self._absent.difference_update(known)
        self._absent.update(request for request in requests if request not in known)
        return len(known)

    async def find(self, request: str) -> PaidAnswer | None:
        if request in self._absent:
            return None
        if self._unread:
            async with self._reading:  # a caller that waits here finds what the first one reads
                if request in self._unread:
                    part = [request, *islice((r for r in self._unread if r != request), READ_AT_ONCE - 1)]
                    self._hold(await self._book.answers(part))
                    for one in part:
                        del self._unread[one]
        return self._read.pop(request, None) or (await self._book.answers((request,))).get(request)

    async def save(self, paid: PaidAnswer) -> PaidAnswer:
        """Save a paid answer, trying again while the store fails; return what the store holds now."""
        for number in range(1, self._policy.tries + 1):
            try:
                saved = await _despite_cancellation(self._book.save_answer(paid))
            except Temporary:
                if number == self._policy.tries:
                    raise
                await self._sleep(self._policy.save_pause(number))
            else:
                self._absent.discard(paid.request)
                if not self._absent:
                    self._absent.clear()  # frees its table, which has room for the largest batch
                return saved
        raise AssertionError("the last try returns or raises")

    def _hold(self, found: Mapping[str, PaidAnswer]) -> None:
        """Hold answers until they are asked for; the oldest go first and are read again if they are needed."""
        self._read.update(found)
        while len(self._read) > 2 * READ_AT_ONCE:
            del self._read[next(iter(self._read))]


async def _despite_cancellation(saving: Awaitable[PaidAnswer]) -> PaidAnswer:
    """Let a cancelled caller go only when its paid answer is saved."""
    task = asyncio.ensure_future(saving)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
