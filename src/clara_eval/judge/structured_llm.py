"""Ask models for typed values: retry until an answer is usable, and pay for each request only once.

A retry has a larger token limit if the answer was cut, and a changed prompt if it was unusable.
Invariant: the next request depends only on the limits and the recorded answers, so a replay repeats them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Generic, TypeVar

from clara_eval.core.errors import BadAnswer, ClaraError, ConfigError, Temporary
from clara_eval.judge.costs.budgets import EntryShare
from clara_eval.judge.port import Answer, AnswerBook, AnswerCut, Asker, GoneWithout, PaidAnswer, Prompt, request_hash
from clara_eval.judge.reading import TokenLimits, is_cut, shown, without_thinking
from clara_eval.judge.retrying_llm import Charged, RetryingLlm

T = TypeVar("T")
TRIES = 3
AGAIN = "\nAsked again ({attempt}): return ONLY the JSON object, complete, with exactly the stated fields.\n"
"""Appended to a retry: at temperature 0 an equal request gets an equal answer. Quotes no model output."""
AGAIN_GRAMMAR = "(?:" + re.escape(AGAIN).replace(re.escape("{attempt}"), r"\d") + ")?"


@dataclass(frozen=True, slots=True)
class AskOutcome(Generic[T]):
    """A value, or None with the reason; `requests` are the hashes of all requests that were answered."""

    value: T | None
    reason: str
    requests: tuple[str, ...]
    outage: Temporary | None = None  # why no answer came; a later run may get one


@dataclass(slots=True)
class AnswerLog:
    """The requests of a round."""

    keep: Callable[[PaidAnswer], None]  # called with every answer
    closed: Mapping[str, str]  # requests that are not sent, with the reason
    unanswered: dict[str, str] = field(default_factory=dict)  # requests without an answer, with the reason


@dataclass(frozen=True, slots=True)
class StructuredLlm:
    """Asks a model for typed values."""

    asker: Asker
    limits: TokenLimits | None = None  # None in plans of old versions: a cut answer is retried like an unusable one
    others: tuple[Asker, ...] = ()  # asked in turn if every answer so far was cut at the largest limit
    log: AnswerLog | None = None
    share: EntryShare | None = None  # bounds all answers about one entry, in tokens and in money

    @property
    def name(self) -> str:
        return self.asker.name

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        limits, closed = self.limits, self.log.closed if self.log else {}
        asked = [replace(p, max_tokens=limits.first(p.max_tokens)) if limits else p for p in dict.fromkeys(prompts)]
        if asked:
            await self.asker.prefetch([p for p in asked if not closed or request_hash(self.name, p) not in closed])

    async def ask(self, prompt: Prompt, read: Callable[[str], T], tries: int = TRIES) -> AskOutcome[T]:
        """Ask at most `tries` times for an answer that `read` accepts; an outage is returned, not retried."""
        requests: list[str] = []
        reason, closed = "", self.log.closed if self.log else {}
        for attempt in range(tries):
            own: list[str] = []
            retried = replace(prompt, user=prompt.user + AGAIN.format(attempt=attempt)) if attempt else prompt
            steps, paid = self._requests(retried, own), None
            while True:
                try:
                    asker, asked = steps.send(paid)
                    if closed and (why := closed.get(request_hash(asker.name, asked, attempt))) is not None:
                        raise GoneWithout(why)
                    paid = await asker.ask(asked, attempt)
                except StopIteration as whole:
                    answer: Answer = whole.value
                    break
                except AnswerCut as cut:
                    return AskOutcome(None, str(cut), (*requests, *cut.requests), cut)
                except Temporary as outage:
                    if self.log:
                        self.log.unanswered[request_hash(asker.name, asked, attempt)] = outage.message
                    return AskOutcome(None, f"No answer: {outage.message}", (*requests, *own), outage)
                own.append(paid.request)
                if self.log:
                    self.log.keep(paid)
            requests += own
            try:
                return AskOutcome(read(_usable_text(answer)), "", tuple(requests))
            except BadAnswer as bad:
                reason = bad.message
        return AskOutcome(None, f"No usable answer in {tries} tries; the last: {reason}", tuple(requests))

    def _requests(self, prompt: Prompt, own: list[str]) -> Generator[tuple[Asker, Prompt], PaidAnswer | None, Answer]:
        """Yield (asker, request), receive each answer, and return the first that is complete.

        Each asker is asked with growing limits. A provider may refuse a request because the tokens for thinking exceed
        its context: it is asked again for the bare answer. A refusal after a cut means that it takes no larger limit.
        Raises AnswerCut if no asker is left, with the requests so far, which the caller appends to `own`.
        """
        limits, share, bare, limit = self.limits, self.share, prompt.max_tokens, 0
        for asker in (self.asker, *self.others):
            if limits and share and share.tokens > 2 * sum(limits.all(bare)):
                used = f"{self.name} used {share.tokens:,} tokens for one entry, thinking included"
                raise AnswerCut(used, own)
            following: int | None = limits.first(bare) if limits else bare
            was_cut = False
            while following is not None:
                limit = following
                asked = prompt if limit == bare else replace(prompt, max_tokens=limit)
                if share:
                    share.check_money(asked, own, limit if was_cut else None)
                paid = yield asker, asked
                assert paid is not None
                answer = paid.answer
                if limits is None:
                    return answer
                if share:
                    share.count(asked, answer)
                if is_cut(answer):
                    was_cut, following = True, limits.larger(limit)
                elif answer.stop == "refusal" and not answer.output_tokens and (was_cut or limit > bare):
                    following = None if was_cut else bare
                else:
                    return replace(answer, text=without_thinking(answer.text)) if answer.stop == "end" else answer
        raise AnswerCut(f"{self.name} did not end its answer within {limit:,} tokens, thinking included", own)


def _usable_text(answer: Answer) -> str:
    if answer.stop == "refusal":
        if not answer.output_tokens:  # no model saw the prompt: it is too long, or a filter rejected it
            raise BadAnswer(f"The question was refused: {shown(answer.text, 300)}")
        raise BadAnswer("The model refused to answer.")
    if answer.stop == "max_tokens":
        raise BadAnswer("The answer was cut at the token limit.")
    return answer.text


READ_AT_ONCE = 500  # recorded answers per query: signed ones are too large to hold those of a whole round
AnswerAhead = Callable[[Sequence[Prompt]], Awaitable[None]]  # answers prompts in advance, for example in batches


class CachedLlm:
    """One model for one run; an `Asker`. Concurrent equal requests share one call."""

    def __init__(self, llm: RetryingLlm, book: AnswerBook, run: str, ahead: AnswerAhead | None = None) -> None:
        self.llm, self.name, self._book, self._run, self._ahead = llm, llm.llm.name, book, run, ahead
        llm.keep = self._save
        self._in_flight: dict[str, asyncio.Future[PaidAnswer]] = {}
        self._read: dict[str, PaidAnswer | None] = {}  # prefetched from the book; None: it has no answer
        self._unread: dict[str, None] = {}  # requests to prefetch, in the order in which they will be asked
        self._read_lock = asyncio.Lock()

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        if self._ahead is not None:
            await self._ahead(prompts)
        self.expect(prompts)

    def expect(self, prompts: Sequence[Prompt]) -> None:
        """Register the next prompts, so that their recorded answers are read many at a time."""
        self._unread |= dict.fromkeys(request_hash(self.name, prompt) for prompt in prompts)

    async def recorded(self, request: str) -> PaidAnswer | None:
        async with self._read_lock:  # callers that wait here find their answers in what the first one reads
            if request in self._unread:
                part = [request, *islice((r for r in self._unread if r != request), READ_AT_ONCE - 1)]
                self._read.update(dict.fromkeys(part) | await self._book.answers(part))
                for one in part:
                    del self._unread[one]
                self._unread = self._unread or {}  # an empty dict keeps its memory, so replace it
                while len(self._read) > 2 * READ_AT_ONCE:  # drops the oldest; they are read again if needed
                    del self._read[next(iter(self._read))]
        if request not in self._read:
            return (await self._book.answers((request,))).get(request)
        if (paid := self._read[request]) is not None:
            del self._read[request]
        return paid

    async def ask(self, prompt: Prompt, attempt: int = 0, *, fail_fast: bool = False) -> PaidAnswer:
        """Return the recorded answer, or call the model and save. `fail_fast`: see `RetryingLlm.complete`."""
        request = request_hash(self.name, prompt, attempt)
        while (shared := self._in_flight.get(request)) is not None:
            try:
                return await asyncio.shield(shared)
            except _Abandoned:
                continue
        promise = self._in_flight[request] = asyncio.get_running_loop().create_future()
        try:
            found = await self.recorded(request)
            paid = found or await self._save(prompt, await self.llm.complete(prompt, fail_fast=fail_fast), request)
        except BaseException as bad:
            promise.set_exception(bad if isinstance(bad, ClaraError) else _Abandoned())
            promise.exception()  # avoids "exception was never retrieved" when no other caller waits
            raise
        else:
            promise.set_result(paid)
            return paid
        finally:
            del self._in_flight[request]

    async def _save(self, prompt: Prompt, charged: Charged, request: str = "") -> PaidAnswer:
        """Save a paid answer, with retries if the store fails; return what the store holds now."""
        request = request or request_hash(self.name, prompt)
        paid = PaidAnswer(request, self._run, self.name, prompt.purpose, *charged)
        policy = self.llm.policy
        for number in range(1, policy.tries + 1):
            saving = asyncio.ensure_future(self._book.save_answer(paid))
            try:
                saved = await asyncio.shield(saving)
                break
            except asyncio.CancelledError:
                await asyncio.wait((saving,))  # a paid answer is saved even if the caller is cancelled
                raise
            except Temporary:
                if number == policy.tries:
                    raise
                await self.llm.sleep(policy.first_pause_seconds * number)
        self._read.pop(request, None)
        self._read = self._read or {}
        return saved


class FallbackLlm:
    """Several models in order: the next answers if one cannot; an `Asker`.

    An answer is recorded under the model that gave it. Recorded answers of any model are used first, so a restart
    pays for nothing twice.
    """

    def __init__(self, models: Sequence[CachedLlm]) -> None:
        self.name = ", else ".join(model.name for model in models)
        self._models = tuple(models)

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        await self._models[0].prefetch(prompts)
        for model in self._models[1:]:
            model.expect(prompts)

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        for model in self._models:
            if (known := await model.recorded(request_hash(model.name, prompt, attempt))) is not None:
                return known
        for model in self._models[:-1]:
            with suppress(Temporary, ConfigError):
                return await model.ask(prompt, attempt, fail_fast=True)
        return await self._models[-1].ask(prompt, attempt)


class _Abandoned(Exception):
    """The caller that made the shared request was cancelled or crashed; those that wait retry."""
