"""A model whose answers are kept: each request is paid for once, looked up in few queries, saved before use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from clara_eval.core.errors import ClaraError, ConfigError, Temporary
from clara_eval.judge.port import AnswerBook, PaidAnswer, Prompt, request_hash
from clara_eval.judge.retrying_llm import Charged, RetryingLlm

READ_AT_ONCE = 500
"""Recorded answers that are read ahead of their questions: signed answers are too large to hold all of a round."""
AnswerAhead = Callable[[Sequence[Prompt]], Awaitable[None]]
"""Answers prompts before they are asked for, for example in batches."""


class CachedLlm:
    """One model for one run; an `Asker`. Equal requests at the same time share one call."""

    def __init__(self, llm: RetryingLlm, book: AnswerBook, run: str, ahead: AnswerAhead | None = None) -> None:
        self.llm, self.name, self._book, self._run, self._ahead = llm, llm.llm.name, book, run, ahead
        llm.keep = self._save
        self._in_flight: dict[str, asyncio.Future[PaidAnswer]] = {}
        self._read: dict[str, PaidAnswer] = {}
        self._unread: dict[str, None] = {}
        """Requests that the book has answered and that were not read yet, in the order in which they will be asked."""
        self._absent: set[str] = set()
        self._reading = asyncio.Lock()

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        if self._ahead is not None:
            await self._ahead(prompts)
        await self.look_up(prompts)

    async def look_up(self, prompts: Sequence[Prompt]) -> int:
        """Look up which of these are answered, and read the first answers; return how many are answered."""
        requests = list(dict.fromkeys(request_hash(self.name, prompt) for prompt in prompts))
        self._hold(found := await self._book.answers(requests[:READ_AT_ONCE]))
        later = await self._book.answered(rest) if (rest := requests[READ_AT_ONCE:]) else set()
        self._unread = {request: None for request in rest if request in later}
        known = later.union(found)
        self._absent.difference_update(known)
        self._absent.update(request for request in requests if request not in known)
        return len(known)

    async def recorded(self, request: str) -> PaidAnswer | None:
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

    def _hold(self, found: Mapping[str, PaidAnswer]) -> None:
        """Hold answers until they are asked for; the oldest go first and are read again if they are needed."""
        self._read.update(found)
        while len(self._read) > 2 * READ_AT_ONCE:
            del self._read[next(iter(self._read))]

    async def ask(self, prompt: Prompt, attempt: int = 0, *, yields: bool = False) -> PaidAnswer:
        """Return the recorded answer, or a new one that is saved. `yields`: as for `RetryingLlm.complete`."""
        request = request_hash(self.name, prompt, attempt)
        while (shared := self._in_flight.get(request)) is not None:
            try:
                return await asyncio.shield(shared)
            except _Abandoned:
                continue
        promise = self._in_flight[request] = asyncio.get_running_loop().create_future()
        try:
            found = await self.recorded(request)
            paid = found or await self._save(prompt, await self.llm.complete(prompt, yields=yields), attempt)
        except BaseException as bad:
            promise.set_exception(bad if isinstance(bad, ClaraError) else _Abandoned())
            promise.exception()  # avoids "exception was never retrieved" when no other caller waits
            raise
        else:
            promise.set_result(paid)
            return paid
        finally:
            del self._in_flight[request]

    async def _save(self, prompt: Prompt, charged: Charged, attempt: int = 0) -> PaidAnswer:
        """Save a paid answer, trying again while the store fails; return what the store holds now."""
        request = request_hash(self.name, prompt, attempt)
        paid = PaidAnswer(request, self._run, self.name, prompt.purpose, *charged)
        policy, number = self.llm.policy, 1
        while True:
            saving = asyncio.ensure_future(self._book.save_answer(paid))
            try:
                saved = await asyncio.shield(saving)
                break
            except asyncio.CancelledError:
                await asyncio.wait((saving,))  # a cancelled caller goes only when its paid answer is saved
                raise
            except Temporary:
                if number == policy.tries:
                    raise
                await self.llm.sleep(policy.save_pause(number))
                number += 1
        self._absent.discard(request)
        if not self._absent:
            self._absent.clear()  # frees its table, which has room for the largest batch
        return saved


class FallbackLlm:
    """Several models in order: the next takes over if one cannot answer; an `Asker`.

    An answer is recorded under the model that gave it. Recorded answers of any of them are used first, so a restart
    after a takeover pays for nothing twice.
    """

    def __init__(self, models: Sequence[CachedLlm]) -> None:
        self.name = ", else ".join(model.name for model in models)
        self._models = tuple(models)

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        await self._models[0].prefetch(prompts)
        for model in self._models[1:]:
            await model.look_up(prompts)

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        for model in self._models:
            if (known := await model.recorded(request_hash(model.name, prompt, attempt))) is not None:
                return known
        for model in self._models[:-1]:
            with suppress(Temporary, ConfigError):
                return await model.ask(prompt, attempt, yields=True)
        return await self._models[-1].ask(prompt, attempt)


class _Abandoned(Exception):
    """The caller that held the request was cancelled; a caller that waits for it asks itself."""
