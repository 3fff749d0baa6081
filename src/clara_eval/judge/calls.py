"""Asking a model once per distinct request, whatever happens.

A `Prompt` comes in; the recorded answer of exactly this request goes out, or a new one that is in the answer book
before anybody sees it. Equal requests at the same time share one call. Outages are waited out with jitter, for at most
`tries` calls and never beyond the round's one deadline; then a `Temporary` says who failed and how.
A prompt that the provider refuses, or fails on every time, while it answers others like it, is recorded as a refusal:
that concerns one question and not the round. One that takes too long twice, while others are answered, is recorded as
cut: it is asked for again with a larger limit and more time, or not at all. An answer that makes no sense is recorded
where others do make sense; a provider that talks nothing but nonsense is down like any other, and nothing of it is
recorded. `FallbackLlm` lets the next judge take over, and looks for what any of them has already answered before it
asks.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from clara_eval.core.errors import BadAnswer, ClaraError, ConfigError, OutOfBudget, Temporary
from clara_eval.judge.concurrency import Breaker, Gate
from clara_eval.judge.costs.prices import PriceCard
from clara_eval.judge.costs.run_budget import RunBudget
from clara_eval.judge.limits import is_cut, without_thinking
from clara_eval.judge.outages import (
    Garbled,
    JudgeDown,
    JudgeWaits,
    OutOfTime,
    RateLimited,
    RequestRefused,
    ServerFailed,
    TooSlow,
    Unanswered,
)
from clara_eval.judge.port import (
    Answer,
    AnswerBook,
    Llm,
    PaidAnswer,
    Prompt,
    request_hash,
)
from clara_eval.judge.reading import makes_sense

Sleep = Callable[[float], Awaitable[None]]
CallListener = Callable[[str, str, str, float], None]
"""Told after every call: the model, the purpose, how it ended (the answer's stop, or what went wrong), seconds."""

CONTROL = "This only checks the connection. Answer with any object that fits the schema.\n"
"""Asked in the place of a prompt's own words, to tell a refused prompt from a judge that takes none."""

READ_AT_ONCE = 500
"""Recorded answers that are read ahead of their questions: a round of many games has more than memory should hold."""

FEW = 2
"""So many answers in a row that make no sense are taken as they are: fewer than one question may be asked."""

SLOWEST_TOKENS_PER_SECOND = 40
"""A long answer has as much time as a slow model needs for all of its tokens; a short one has `call_seconds`."""

MOST_BEYOND = 32_768
"""Tokens reserved beyond a limit at most: one entry must not make the next calls too dear to be asked."""

LookAhead = Callable[[Sequence[Prompt]], Awaitable[None]]
"""Has prompts answered before they are asked for: in batches, or by other workers."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long we try. `deadline` is a moment of the event loop's clock: the round's one budget of time."""

    deadline: float | None = None
    tries: int = 6
    call_seconds: float = 120.0
    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 30.0
    longest_wait_seconds: float = 60.0
    """A judge that asks for more is not waited for here: the run ends, holds no place, and comes back then."""
    most_probes: int = 6
    """A judge that failed so many probes in a row, about two minutes, sits this run out and cannot hold the others."""
    most_in_flight: int = 64
    ask_seconds: float = 1800.0
    """How long one request may wait for a judge that is down, where there is no deadline."""


class CachedLlm:
    """One model behind the answer book; an `Asker`."""

    def __init__(
        self,
        llm: Llm,
        book: AnswerBook,
        *,
        run: str,
        budget: RunBudget,
        card: PriceCard | None,
        patience: RetryPolicy | None = None,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        watch: CallListener | None = None,
        ahead: LookAhead | None = None,
        gate: Gate | None = None,
        thinks_beyond: int = 0,
    ) -> None:
        self._llm, self._book, self._run, self._budget, self._card = llm, book, run, budget, card
        self._name = llm.name
        self._patience = patience or RetryPolicy()
        self._sleep, self._watch, self._ahead = sleep, watch, ahead
        self._rng = rng or random.Random(llm.name)  # noqa: S311 - jitter is no secret
        self._clock = clock or asyncio.get_running_loop().time
        self.gate = gate or Gate(self._patience.most_in_flight, clock=self._clock)
        """Shared with the other runs of this process that ask the same judge."""
        self._held_until = 0.0
        """A Retry-After holds every caller of this run back, not only the one it was sent to."""
        self.breaker = Breaker()
        self.answered = 0
        self._found: dict[str, PaidAnswer] = {}
        self._answered_before: dict[str, None] = {}
        """Requests that the book has answered and that were not read yet, in the order in which they will be asked."""
        self._reading = asyncio.Lock()
        self._absent: set[str] = set()
        self._under_way: dict[str, asyncio.Future[PaidAnswer]] = {}
        self._broken: ConfigError | None = None
        self._answered: Counter[str] = Counter()
        self._nonsense = 0
        """Answers in a row that made no sense."""
        self._beyond = thinks_beyond
        """Tokens that an answer may have beyond its limit, at an endpoint whose limit leaves thinking out."""
        self._controls = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._name

    async def prefetch(self, prompts: Sequence[Prompt], attempt: int = 0) -> int:
        """Look all of these up in a few queries; returns how many are already answered.

        Of more than `READ_AT_ONCE` the answers themselves are read when their turn comes.
        """
        requests = list(dict.fromkeys(request_hash(self._name, prompt, attempt) for prompt in prompts))
        self._keep(found := await self._book.answers(requests[:READ_AT_ONCE]))
        later = await self._book.answered(rest) if (rest := requests[READ_AT_ONCE:]) else set()
        self._answered_before = {request: None for request in rest if request in later}
        known = later.union(found)
        self._absent.difference_update(known)
        self._absent.update(request for request in requests if request not in known)
        return len(known)

    def _keep(self, found: Mapping[str, PaidAnswer]) -> None:
        """Until they are asked for; what waits longest goes first, and is read again should its turn come."""
        self._found.update(found)
        while len(self._found) > 2 * READ_AT_ONCE:
            del self._found[next(iter(self._found))]

    async def foresee(self, prompts: Sequence[Prompt]) -> None:
        """Have them answered elsewhere, if there is such a place; then one question to the book instead of many."""
        if self._ahead is not None:
            await self._ahead(prompts)
        await self.prefetch(prompts)

    async def recorded(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer | None:
        """What is already answered, without asking anybody."""
        return await self._look_up(request_hash(self._name, prompt, attempt))

    async def ask(self, prompt: Prompt, attempt: int = 0, *, yields: bool = False) -> PaidAnswer:
        """`yields`: another judge can take over, so a judge that is down is an error at once and not waited for."""
        request = request_hash(self._name, prompt, attempt)
        while (shared := self._under_way.get(request)) is not None:
            try:
                paid = await asyncio.shield(shared)
            except _GivenUp:
                continue
            return paid
        promise: asyncio.Future[PaidAnswer] = asyncio.get_running_loop().create_future()
        self._under_way[request] = promise
        try:
            paid = await self._look_up(request) or await self._pay(request, prompt, yields=yields)
        except BaseException as bad:
            promise.set_exception(bad if isinstance(bad, ClaraError) else _GivenUp())
            # Looked at here, so that nobody waiting is no complaint of the event loop.
            promise.exception()
            raise
        else:
            promise.set_result(paid)
            return paid
        finally:
            del self._under_way[request]

    async def _look_up(self, request: str) -> PaidAnswer | None:
        if request in self._absent:
            return None
        if self._answered_before:
            async with self._reading:  # whoever comes meanwhile finds what the first one reads
                if request in self._answered_before:
                    part = [request, *islice((r for r in self._answered_before if r != request), READ_AT_ONCE - 1)]
                    self._keep(await self._book.answers(part))
                    for one in part:
                        del self._answered_before[one]
        return self._found.pop(request, None) or (await self._book.answers((request,))).get(request)

    async def _pay(self, request: str, prompt: Prompt, *, yields: bool) -> PaidAnswer:
        until = self._patience.deadline or self._clock() + self._patience.ask_seconds
        before = self._answered[prompt.purpose]
        try:
            paid = await self._insist(request, prompt, until, yields=yields)
        except (RequestRefused, ServerFailed, TooSlow) as bad:
            since = 0 if isinstance(bad, RequestRefused) else before
            is_down = isinstance(bad, TooSlow) and self.breaker.is_open
            if yields or is_down or not await self._takes_others(prompt, since, until):
                raise
            paid = self._without_answer(request, prompt, bad)
        return await self._save(paid)

    async def _insist(self, request: str, prompt: Prompt, until: float, *, yields: bool) -> PaidAnswer:
        """Try until it is answered, refused, or has failed too often."""
        last: Temporary | None = None
        for number in range(self._patience.tries):
            if last is not None:
                await self._pause(number, last, until)
            try:
                if isinstance(last, ServerFailed) and self.breaker.is_open and not yields:
                    await self._control(prompt, until)  # the probe must not be the prompt that may be the reason
                return await self._try_once(request, prompt, until, yields=yields)
            except (OutOfTime, OutOfBudget, JudgeDown, JudgeWaits):
                raise
            except Temporary as bad:
                is_slow_again = isinstance(last, TooSlow) and isinstance(bad, TooSlow)
                last = bad
                if is_slow_again or (yields and self.breaker.is_open):
                    break
        kind = type(last) if isinstance(last, (ServerFailed, TooSlow)) else Temporary
        raise kind(
            f"{self._name} gave no answer; the last of {number + 1} tries: {last}",
            retry_after_seconds=last.retry_after_seconds if last else None,
        )

    async def _takes_others(self, prompt: Prompt, before: int, until: float) -> bool:
        """Whether it answered others of this kind since, or answers the control: then it is this prompt alone."""
        async with self._controls:
            if self._answered[prompt.purpose] > before:
                return True
            try:
                await self._control(prompt, until)
            except RequestRefused as bad:
                self._broken = bad
                return False
            except Temporary:
                return False
            return True

    async def _is_alone_garbled(self, prompt: Prompt, before: int, until: float) -> bool:
        """Whether it makes sense to others; the control itself is asked about nobody else."""
        return prompt.user != CONTROL and await self._takes_others(prompt, before, until)

    async def _control(self, prompt: Prompt, until: float) -> None:
        """The same question about nothing; it is paid for, so it is kept."""
        control = replace(prompt, user=CONTROL)
        request = request_hash(self._name, control, 0)
        await self._save(await self._try_once(request, control, until, yields=False))

    def _without_answer(self, request: str, prompt: Prompt, why: ClaraError) -> PaidAnswer:
        """What concerns this prompt alone, as an answer: cut by our time limit, or refused."""
        answer = Answer(why.message, self._name, "max_tokens" if isinstance(why, TooSlow) else "refusal", 0, 0)
        return PaidAnswer(request, self._run, self._name, prompt.purpose, answer, 0)

    async def _try_once(self, request: str, prompt: Prompt, until: float, *, yields: bool) -> PaidAnswer:
        """One call, paid for and not yet saved."""
        before = self._answered[prompt.purpose]
        entered_at = await self._enter(until, yields=yields)
        try:
            probe = self.breaker.begin()
            try:
                longest = replace(prompt, max_tokens=prompt.max_tokens + self._beyond)
                reserved = await self._budget.reserve(self._name, self._card, longest)
                answer = await self._call(prompt, reserved, entered_at, until, probe=probe)
            finally:
                self.breaker.abandoned(probe=probe)
        finally:
            self.gate.leave()
        said = without_thinking(answer.text)
        is_good = answer.stop != "end" or is_cut(answer) or makes_sense(said, prompt.schema_json)
        self._nonsense = 0 if is_good else self._nonsense + 1
        if self._nonsense > FEW and not await self._is_alone_garbled(prompt, before, until):
            self.breaker.failed(self._clock(), probe=probe)
            self._budget.unsure(reserved, prompt.purpose)
            raise Garbled(f"{self._name} answers with something that is not what was asked for.")
        cost = None if self._card is None else self._card.cost(answer)
        self._budget.charge(reserved, prompt.purpose, answer, cost)
        seen_beyond = min(2 * (answer.output_tokens - prompt.max_tokens), MOST_BEYOND)
        self._beyond = max(self._beyond, seen_beyond)
        self.answered += 1
        self._answered[prompt.purpose] += is_good and answer.stop != "refusal"
        return PaidAnswer(request, self._run, self._name, prompt.purpose, answer, cost)

    async def _enter(self, until: float, *, yields: bool) -> float:
        """A place among those who call this judge; who waits for the judge itself keeps none meanwhile."""
        while True:
            await self._until_callable(until, yields=yields)
            entered_at = await self.gate.enter()
            if self._broken is None and max(self._pauses()) <= 0:
                return entered_at
            self.gate.leave()

    async def _call(self, prompt: Prompt, reserved: int, entered_at: float, until: float, *, probe: bool) -> Answer:
        """One call with its consequences for gate, breaker and budget."""
        asked_at = self._clock()
        if asked_at >= until:
            self._budget.release(reserved, prompt.purpose)
            raise OutOfTime(f"{self._name} was not asked: the round's time is over.")
        try:
            answer = await self._within_time(prompt, until)
        except RateLimited as bad:
            self._tell(prompt, "rate_limited", asked_at)
            self.gate.limited(entered_at)
            self._held_until = max(self._held_until, self._clock() + (bad.retry_after_seconds or 0.0))
            self._budget.release(reserved, prompt.purpose)
            raise
        except Temporary as bad:
            self._tell(prompt, "unanswered" if isinstance(bad, Unanswered) else "failed", asked_at)
            self.breaker.failed(self._clock(), probe=probe)
            (self._budget.unsure if isinstance(bad, Unanswered) else self._budget.release)(reserved, prompt.purpose)
            raise
        except ClaraError as bad:
            self._tell(prompt, "refused", asked_at)
            if isinstance(bad, ConfigError) and not isinstance(bad, RequestRefused):
                self._broken = bad
            self._budget.release(reserved, prompt.purpose)
            raise
        except BaseException:
            self._budget.unsure(reserved, prompt.purpose)
            raise
        self._tell(prompt, answer.stop, asked_at)
        self.breaker.answered()
        self.gate.answered()
        return answer

    def _tell(self, prompt: Prompt, result: str, asked_at: float) -> None:
        if self._watch is not None:
            self._watch(self._name, prompt.purpose, result, self._clock() - asked_at)

    async def _within_time(self, prompt: Prompt, until: float) -> Answer:
        """A whole call within its own limit and the round's: also against an answer that drips.

        A provider that does not take this very prompt (too long, filtered) has answered: it refused. That is kept like
        any answer, so that it concerns one question and not the round, and a walk of the trace meets it again.
        """
        seconds = max(self._patience.call_seconds, prompt.max_tokens / SLOWEST_TOKENS_PER_SECOND)
        try:
            async with asyncio.timeout(min(seconds, until - self._clock())):
                return await self._llm.complete(prompt)
        except BadAnswer as bad:
            return Answer(bad.message, self._name, "refusal", 0, 0)
        except TimeoutError:
            kind = TooSlow if until > self._clock() else Unanswered
            raise kind(f"{self._name} did not finish its answer in time.") from None

    async def _until_callable(self, until: float, *, yields: bool) -> None:
        """Wait out a Retry-After that holds everybody, and a judge that is down."""
        while True:
            if self._broken is not None:
                raise self._broken
            if self.breaker.failed_probes >= self._patience.most_probes:
                raise JudgeDown(f"{self._name} is down: {self.breaker.failed_probes} probes in a row failed.")
            held, down = self._pauses()
            if held <= 0 and down <= 0:
                return
            if yields and down > 0:
                raise Temporary(f"{self._name} is down.", retry_after_seconds=down)
            await self._rest(max(held, down), until)

    def _pauses(self) -> tuple[float, float]:
        """For how many seconds a Retry-After holds us, and the breaker."""
        now = self._clock()
        return self._held_until - now, self.breaker.wait(now)

    async def _pause(self, number: int, last: Temporary, until: float) -> None:
        """Jittered, doubling; at least as long as the provider asked for."""
        longest = min(self._patience.longest_pause_seconds, self._patience.first_pause_seconds * 2 ** (number - 1))
        seconds = self._rng.uniform(longest / 2, longest)
        await self._rest(max(seconds, last.retry_after_seconds or 0.0), until)

    async def _rest(self, seconds: float, until: float) -> None:
        if self._clock() + seconds >= until:
            raise OutOfTime(f"{self._name} cannot answer before the round's time is over.", retry_after_seconds=seconds)
        if seconds > self._patience.longest_wait_seconds:
            raise JudgeWaits(f"{self._name} asks for a pause of {seconds:.0f} s.", retry_after_seconds=seconds)
        await self._sleep(seconds)

    async def _save(self, paid: PaidAnswer) -> PaidAnswer:
        """It is paid for: a store that stumbles is asked again before the answer is given up; no call follows."""
        for number in range(1, self._patience.tries + 1):
            try:
                saved = await _to_the_end(self._book.save_answer(paid))
            except Temporary:
                if number == self._patience.tries:
                    raise
                await self._sleep(self._patience.first_pause_seconds * number)
            else:
                self._absent.discard(paid.request)
                if not self._absent:
                    self._absent.clear()  # its table, too: it has room for the largest batch
                return saved
        raise AssertionError("the last try returns or raises")


class FallbackLlm:
    """Several lines, one after the other: the next takes over where one cannot answer; an `Asker`.

    The answer is recorded under the judge that really gave it. What any of them has answered before is taken first, so
    a restart after a takeover asks for nothing twice. `setbacks` tells who failed, and the last reason.
    """

    def __init__(self, lines: Sequence[CachedLlm]) -> None:
        if not lines:
            raise ConfigError("No judge is left to ask.", remedy="Name at least one model in CLARA_JUDGES.")
        self._lines = tuple(lines)
        self.setbacks: dict[str, str] = {}

    @property
    def name(self) -> str:
        return ", else ".join(line.name for line in self._lines)

    async def foresee(self, prompts: Sequence[Prompt]) -> None:
        """The first will be asked; of the others only what they have answered already counts."""
        await self._lines[0].foresee(prompts)
        for line in self._lines[1:]:
            await line.prefetch(prompts)

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        for line in self._lines:
            known = await line.recorded(prompt, attempt)
            if known is not None:
                return known
        for line in self._lines[:-1]:
            try:
                return await line.ask(prompt, attempt, yields=True)
            except (Temporary, ConfigError) as bad:
                self.setbacks[line.name] = bad.message
        return await self._lines[-1].ask(prompt, attempt)


async def _to_the_end(saving: Awaitable[PaidAnswer]) -> PaidAnswer:
    """A caller that is cancelled while its paid answer is saved goes when it is saved."""
    task = asyncio.ensure_future(saving)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


class _GivenUp(Exception):
    """The caller that held the request went away; whoever waits for it asks itself."""
