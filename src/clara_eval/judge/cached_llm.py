"""A model whose answers are kept: each request is paid for once, looked up in few queries, saved before use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice

from clara_eval.core.errors import ClaraError, ConfigError, Temporary
from clara_eval.judge.admission import Admission, Gate, RetryPolicy, Sleep
from clara_eval.judge.costs.budgets import RunBudget
from clara_eval.judge.costs.prices import PriceCard
from clara_eval.judge.port import AnswerBook, Llm, PaidAnswer, Prompt, request_hash
from clara_eval.judge.retrying_llm import CallListener, Charged, RetryingLlm

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


AnswerAhead = Callable[[Sequence[Prompt]], Awaitable[None]]
"""Answers prompts before they are asked for, for example in batches."""


class CachedLlm:
    """One model for one run; an `Asker`. Equal requests at the same time share one call."""

    def __init__(
        self,
        llm: Llm,
        book: AnswerBook,
        *,
        run: str,
        budget: RunBudget,
        card: PriceCard | None,
        policy: RetryPolicy | None = None,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] | None = None,
        watch: CallListener | None = None,
        ahead: AnswerAhead | None = None,
        gate: Gate | None = None,
        beyond_limit: int = 0,
    ) -> None:
        policy, clock = policy or RetryPolicy(), clock or asyncio.get_running_loop().time
        self.name = llm.name
        self._run, self._ahead = run, ahead
        self._cache = AnswerCache(book, policy, sleep)
        self.admission = Admission(llm.name, policy, gate or Gate(policy.most_in_flight, clock=clock), clock, sleep)
        self.gate, self.breaker = self.admission.gate, self.admission.breaker
        self._llm = RetryingLlm(
            llm, self.admission, budget=budget, card=card, watch=watch, beyond_limit=beyond_limit, keep=self._save
        )
        self._in_flight: dict[str, asyncio.Future[PaidAnswer]] = {}

    @property
    def answered(self) -> int:
        return self._llm.answered

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        if self._ahead is not None:
            await self._ahead(prompts)
        await self.look_up(prompts)

    async def look_up(self, prompts: Sequence[Prompt]) -> int:
        requests = dict.fromkeys(request_hash(self.name, prompt) for prompt in prompts)
        return await self._cache.prefetch(list(requests))

    async def recorded(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer | None:
        return await self._cache.find(request_hash(self.name, prompt, attempt))

    async def ask(self, prompt: Prompt, attempt: int = 0, *, yields: bool = False) -> PaidAnswer:
        """Return the recorded answer, or a new one that is saved. `yields`: as for `RetryingLlm.complete`."""
        request = request_hash(self.name, prompt, attempt)
        while (shared := self._in_flight.get(request)) is not None:
            try:
                paid = await asyncio.shield(shared)
            except _Abandoned:
                continue
            return paid
        promise: asyncio.Future[PaidAnswer] = asyncio.get_running_loop().create_future()
        self._in_flight[request] = promise
        try:
            found = await self._cache.find(request)
            paid = found or await self._save(prompt, await self._llm.complete(prompt, yields=yields), attempt)
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
        request = request_hash(self.name, prompt, attempt)
        paid = PaidAnswer(request, self._run, self.name, prompt.purpose, charged.answer, charged.cost)
        return await self._cache.save(paid)


class FallbackLlm:
    """Several models in order: the next takes over if one cannot answer; an `Asker`.

    An answer is recorded under the model that gave it. Recorded answers of any of them are used first, so a restart
    after a takeover pays for nothing twice. `failures` has the last reason by model.
    """

    def __init__(self, models: Sequence[CachedLlm]) -> None:
        if not models:
            raise ConfigError("No judge is left to ask.", remedy="Name at least one model in CLARA_JUDGES.")
        self.name = ", else ".join(model.name for model in models)
        self._models = tuple(models)
        self.failures: dict[str, str] = {}

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        await self._models[0].prefetch(prompts)
        for model in self._models[1:]:
            await model.look_up(prompts)

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        for model in self._models:
            known = await model.recorded(prompt, attempt)
            if known is not None:
                return known
        for model in self._models[:-1]:
            try:
                return await model.ask(prompt, attempt, yields=True)
            except (Temporary, ConfigError) as bad:
                self.failures[model.name] = bad.message
        return await self._models[-1].ask(prompt, attempt)


class _Abandoned(Exception):
    """The caller that held the request was cancelled; a caller that waits for it asks itself."""
