"""One model, called until it answers: its pace, pauses, probes, and the money of each call.

Invariant: an outage is never an answer; a prompt that alone is refused concerns one question, not the round.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from clara_eval.core.errors import BadAnswer, ClaraError, ConfigError, OutOfBudget, Temporary
from clara_eval.core.tasks import check_lease
from clara_eval.judge import port
from clara_eval.judge.costs.budgets import PriceCard, RunBudget
from clara_eval.judge.reading import is_cut, makes_sense, shown, without_thinking

SLOWEST_TOKENS_PER_SECOND = 40
"""A long answer has the time that a slow model needs for all of its tokens; a short one has `call_seconds`."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of one request to a model. `deadline` is a moment of the event loop's clock, shared by a round."""

    deadline: float = math.inf
    tries: int = 6
    call_seconds: float = 120.0
    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 30.0
    longest_wait_seconds: float = 60.0
    """If a provider asks for a longer pause, the run ends and comes back then, instead of holding its place."""
    most_probes: int = 6
    """After this many failed probes in a row, about two minutes, a model is not asked again in this run."""
    ask_seconds: float = 1800.0
    """One request ends after this time, whatever it waits for: a place, a pause, the breaker or an answer."""

    def ends_at(self, now: float) -> float:
        return min(now + self.ask_seconds, self.deadline)

    def pause(self, number: int, rng: random.Random) -> float:
        """Seconds before try `number` (from 1): doubling, with jitter."""
        longest = min(self.longest_pause_seconds, self.first_pause_seconds * 2 ** (number - 1))
        return rng.uniform(longest / 2, longest)


START = 8
OPEN_AFTER = 8  # failures in a row, over all callers, after which the judge counts as down
FIRST_COOLDOWN_SECONDS = 2.0
LONGEST_COOLDOWN_SECONDS = 60.0
PROBE_LOOK_SECONDS = 0.25


@dataclass(slots=True)
class CircuitBreaker:
    """Opens after several failures in a row; then one probe at a time decides."""

    open_after: int = OPEN_AFTER
    is_open: bool = False
    opens_at: float = 0.0
    failures: int = 0
    failed_probes: int = 0
    _probing: bool = False

    def wait(self, now: float) -> float:
        """Return the seconds until it is worth looking again; 0 if a call may begin."""
        if not self.is_open:
            return 0.0
        if now < self.opens_at:
            return self.opens_at - now
        return PROBE_LOOK_SECONDS if self._probing else 0.0

    def begin(self) -> bool:
        """Begin a call; True if it is the probe."""
        self._probing = self._probing or self.is_open
        return self.is_open

    def answered(self) -> None:
        self.is_open, self._probing, self.failures, self.failed_probes = False, False, 0, 0

    def failed(self, now: float, *, probe: bool) -> None:
        self.failures += 1
        if probe:
            self._probing = False
            self.failed_probes += 1
        if probe or (not self.is_open and self.failures >= self.open_after):
            self.is_open = True
            self.opens_at = now + min(FIRST_COOLDOWN_SECONDS * 2**self.failed_probes, LONGEST_COOLDOWN_SECONDS)

    def abandoned(self, *, probe: bool) -> None:
        if probe:
            self._probing = False


class Gate:
    """Admits as many callers as the provider takes, in order: halves after a rate limit, grows with answers."""

    def __init__(self, most: int = 64, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._most = float(min(START, most)), float(most)
        self.clock, self.in_flight = clock, 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._limited_at = -math.inf

    async def enter(self, seconds: float | None = None) -> float:
        """Wait so long for a place and return the moment of entry, to be given to `limited`; or raise TimeoutError."""
        if self.in_flight >= int(self.limit) or self._waiting:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                async with asyncio.timeout(seconds):
                    await place
            except (asyncio.CancelledError, TimeoutError):
                if place.done() and not place.cancelled():
                    self.leave()
                raise
        else:
            self.in_flight += 1
        return self.clock()

    def leave(self) -> None:
        self.in_flight -= 1
        while self._waiting and self.in_flight < int(self.limit):
            place = self._waiting.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)

    def answered(self) -> None:
        """Admit one more with each answer, or one more per round of answers after a rate limit."""
        if self.limit < self._most:
            self.limit = min(self._most, self.limit + (1 / self.limit if self._limited_at > -math.inf else 1.0))

    def limited(self, entered_at: float) -> None:
        """Halve the limit, unless that was done since this call began."""
        if entered_at >= self._limited_at:
            self.limit = max(1.0, self.limit / 2)
            self._limited_at = self.clock()


CallListener = Callable[[str, str, str, float], None]
"""Called after every call: the model, the purpose, how it ended (the answer's stop, or what went wrong), seconds."""
Charged = tuple[port.Answer, int | None]
"""An answer and its cost in millionths of a dollar; None if the model has no known price."""
CONTROL = "This only checks the connection. Answer with any object that fits the schema.\n"
"""Asked instead of a prompt's own words, to tell a refused prompt from a model that takes none."""
PROBE_TOKENS = 400  # as for a bare verdict: a small context must not make a probe look like a refusal
MOST_BEYOND_LIMIT = 32_768
"""Tokens reserved beyond a limit at most: one entry must not make the next calls too dear to be asked."""


@dataclass(slots=True)
class _Call:
    prompt: port.Prompt
    reserved: int
    is_probe: bool
    entered_at: float
    asked_at: float
    answered_before: int  # answers of this purpose when the call began
    answer: port.Answer = field(init=False)
    cost: int | None = None


@dataclass(slots=True)
class RetryingLlm:
    """Calls one model for one run, by the clock of its gate; `keep` saves answers to probes, which are paid for too."""

    llm: port.Llm
    budget: RunBudget
    card: PriceCard | None
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    gate: Gate = field(default_factory=Gate)
    watch: CallListener | None = None
    beyond_limit: int = 0  # tokens to reserve beyond a limit, for an endpoint whose limit leaves thinking out
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    keep: Callable[[port.Prompt, Charged], Awaitable[object]] | None = None
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    tell: Callable[[str], None] = lambda _trouble: None  # called with each outage, while the call is still tried again
    broken: ConfigError | None = None  # why no call can succeed: a wrong key, model or account
    answered: int = 0
    _rng: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - jitter is no secret
    _held_until: float = 0.0
    _answered: Counter[str] = field(default_factory=Counter)  # answers that make sense, by purpose
    _nonsense: int = 0  # unparsable answers in a row
    _is_garbled: bool = False
    """A probe was unparsable too. At temperature 0 neither it nor a prompt is worth an equal request."""
    _refuses: bool = False  # a probe was refused too, and nothing was answered since
    _probing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def complete(self, prompt: port.Prompt, *, yields: bool = False) -> Charged:
        """Return the first answer. `yields`: another model can take over, so an open breaker is an error at once.

        Raises Temporary if no answer came within the policy's tries and time, ConfigError if no call can succeed.
        """
        until = self.policy.ends_at(self.gate.clock())
        before = self._answered[prompt.purpose]
        last: Temporary | None = None
        try:
            for number in range(self.policy.tries):
                try:
                    if last is not None:
                        await self._pause(prompt, number, last, until, yields=yields)
                    async with self._call(prompt, until, yields=yields) as call:
                        call.answer = await self.llm.complete(prompt)
                    return await self._accepted(call, until, yields=yields)
                except (port.OutOfTime, OutOfBudget, port.JudgeDown):
                    raise
                except Temporary as bad:
                    is_slow_again = isinstance(last, port.TooSlow) and isinstance(bad, port.TooSlow)
                    last = bad
                    if is_slow_again or (yields and self.breaker.is_open):
                        break
            kind = type(last) if isinstance(last, (port.ServerFailed, port.TooSlow)) else Temporary
            message = f"{self.llm.name} gave no answer; the last of {number + 1} tries: {last}"
            raise kind(message, retry_after_seconds=last.retry_after_seconds if last else None)
        except (port.RequestRefused, port.ServerFailed, port.TooSlow) as bad:
            is_down = isinstance(bad, port.TooSlow) and self.breaker.is_open
            if yields or is_down or not await self._answers_others(prompt, before, until):
                raise
            stop: port.Stop = "max_tokens" if isinstance(bad, port.TooSlow) else "refusal"
            return port.Answer(bad.message, self.llm.name, stop, 0, 0), 0

    async def _pause(self, prompt: port.Prompt, number: int, last: Temporary, until: float, *, yields: bool) -> None:
        """Wait before the next try. With an open breaker probe first: this prompt may be the reason for a 5xx."""
        await self._rest(max(self.policy.pause(number, self._rng), last.retry_after_seconds or 0.0), until)
        if isinstance(last, port.ServerFailed) and self.breaker.is_open and not yields:
            await self._probe(prompt, until)

    async def _rest(self, seconds: float, until: float) -> None:
        """Sleep, unless the pause is too long to hold a place for, or the time ends before."""
        if seconds > self.policy.longest_wait_seconds:
            raise port.JudgeDown(f"{self.llm.name} asks for a pause of {seconds:.0f} s.", retry_after_seconds=seconds)
        if self.gate.clock() + seconds >= until:
            late = f"{self.llm.name} cannot answer before the time is over."
            raise port.OutOfTime(late, retry_after_seconds=seconds)
        await self.sleep(seconds)

    async def _answers_others(self, prompt: port.Prompt, before: int, until: float) -> bool:
        """Return whether the model has answered others of this kind since, or answers a probe."""
        async with self._probing:
            if self._answered[prompt.purpose] > before:
                return True
            if self._refuses:
                return False
            try:
                await self._probe(prompt, until)
            except port.RequestRefused as bad:
                self.broken = bad
                return False
            except Temporary:
                return False
            return True

    async def _probe(self, prompt: port.Prompt, until: float) -> None:
        """Ask the model about nothing, once; a Temporary or RequestRefused says that it does not answer."""
        control = replace(prompt, user=CONTROL, max_tokens=min(prompt.max_tokens, PROBE_TOKENS))
        async with self._call(control, until, yields=False) as call:
            call.answer = await self.llm.complete(control)
        charged = self._charge(call)
        self._is_garbled = self._nonsense > 1  # the question's answer and this one
        if self._is_garbled or call.answer.stop == "refusal":
            raise self._useless(call)
        if self.keep is not None:
            await self.keep(control, charged)

    async def _enter(self, until: float, *, yields: bool) -> float:
        """Wait for a place and return the moment of entry. A caller that waits for the model holds no place."""
        while True:
            if self.broken is not None:
                raise self.broken
            if self.breaker.failed_probes >= self.policy.most_probes:
                probes = self.breaker.failed_probes
                raise port.JudgeDown(f"{self.llm.name} is down: {probes} probes in a row failed.")
            held, down = self._pauses()
            if yields and down > 0:
                raise Temporary(f"{self.llm.name} is down.", retry_after_seconds=down)
            if max(held, down) > 0:
                await self._rest(max(held, down), until)
                continue
            try:
                entered_at = await self.gate.enter(until - self.gate.clock())
            except TimeoutError:
                raise port.OutOfTime(f"{self.llm.name} was not asked: no place became free in time.") from None
            if self.broken is None and max(self._pauses()) <= 0:
                return entered_at
            self.gate.leave()

    def _pauses(self) -> tuple[float, float]:
        now = self.gate.clock()
        return self._held_until - now, self.breaker.wait(now)

    @asynccontextmanager
    async def _call(self, prompt: port.Prompt, until: float, *, yields: bool) -> AsyncIterator[_Call]:
        """Surround one call: a place, a reservation, a time limit; and what its failure means for each."""
        entered_at = await self._enter(until, yields=yields)
        is_probe = self.breaker.begin()
        try:
            await check_lease()
            longest = replace(prompt, max_tokens=prompt.max_tokens + self.beyond_limit) if self.beyond_limit else prompt
            try:
                async with asyncio.timeout(until - self.gate.clock()):
                    reserved = await self.budget.reserve(self.llm.name, self.card, longest)
            except TimeoutError:
                raise port.OutOfTime(f"{self.llm.name} was not asked: no money became free in time.") from None
            if (asked_at := self.gate.clock()) >= until:
                self.budget.release(reserved)
                raise port.OutOfTime(f"{self.llm.name} was not asked: the round's time is over.")
            call = _Call(prompt, reserved, is_probe, entered_at, asked_at, self._answered[prompt.purpose])
            limit = max(self.policy.call_seconds, prompt.max_tokens / SLOWEST_TOKENS_PER_SECOND)
            try:
                async with asyncio.timeout(min(limit, until - asked_at)):
                    yield call
            except BadAnswer as bad:
                # The provider does not take this prompt (too long, filtered): an answer, kept like any other.
                call.answer = port.Answer(bad.message, self.llm.name, "refusal", 0, 0)
            except TimeoutError:
                kind = port.TooSlow if until > self.gate.clock() else port.Unanswered
                late = kind(f"{self.llm.name} did not finish its answer in time.")
                self._failed(call, late)
                raise late from None
            except BaseException as bad:
                self._failed(call, bad)
                raise
            self._report(call, call.answer.stop)
            self.gate.answered()
            if call.answer.stop != "refusal":
                self.breaker.answered()
        finally:
            self.breaker.abandoned(probe=is_probe)
            self.gate.leave()

    def _failed(self, call: _Call, bad: BaseException) -> None:
        settle = self.budget.release
        if isinstance(bad, Temporary):
            self.tell(str(bad))
        match bad:
            case port.RateLimited():
                self._report(call, "rate_limited")
                self.gate.limited(call.entered_at)
                # A Retry-After is not only for the caller that received it.
                self._held_until = max(self._held_until, self.gate.clock() + (bad.retry_after_seconds or 0.0))
            case Temporary():
                is_unanswered = isinstance(bad, port.Unanswered)
                self._report(call, "unanswered" if is_unanswered else "failed")
                self.breaker.failed(self.gate.clock(), probe=call.is_probe)
                settle = self.budget.charge_unanswered if is_unanswered else settle
            case ClaraError():
                self._report(call, "refused")
                if isinstance(bad, ConfigError) and not isinstance(bad, port.RequestRefused):
                    self.broken = bad
            case _:
                settle = self.budget.charge_unanswered
        settle(call.reserved)

    def _report(self, call: _Call, result: str) -> None:
        if self.watch is not None:
            self.watch(self.llm.name, call.prompt.purpose, result, self.gate.clock() - call.asked_at)

    async def _accepted(self, call: _Call, until: float, *, yields: bool) -> Charged:
        """Charge the answer. One that is refused or unparsable counts only if the model makes sense to others.

        Raises JudgeDown or Temporary if it does not; RequestRefused for a refusal that another model may answer.
        """
        charged = self._charge(call)  # before a probe, which needs the money that was reserved
        is_refused = call.answer.stop == "refusal"
        if not self._nonsense and not is_refused:
            return charged
        if is_refused and yields:
            self.budget.lose(call.cost or 0)
            raise port.RequestRefused(f"{self.llm.name} refuses a question: {call.answer.text}")
        try:
            is_alone = not self._is_garbled and await self._answers_others(call.prompt, call.answered_before, until)
        except BaseException:
            self._useless(call)
            raise
        if not is_alone:
            raise self._useless(call)
        self.breaker.answered()
        return charged

    def _useless(self, call: _Call) -> Temporary:
        """Count an answer as lost and as a failure of the model; return the error to raise."""
        self.budget.lose(call.cost or 0)
        self.breaker.failed(self.gate.clock(), probe=call.is_probe)
        if call.answer.stop == "refusal":
            self._refuses = True
            return Temporary(f"{self.llm.name} refuses every question: {shown(call.answer.text, 200)}")
        return port.JudgeDown(f"{self.llm.name} answers with something that is not what was asked for.")

    def _charge(self, call: _Call) -> Charged:
        """Pay for the answer, and count the unparsable ones in a row."""
        answer, prompt = call.answer, call.prompt
        call.cost = None if self.card is None else self.card.cost(answer)
        self.budget.charge(call.reserved, call.cost)
        beyond = min(2 * (answer.output_tokens - prompt.max_tokens), MOST_BEYOND_LIMIT)
        self.beyond_limit = max(self.beyond_limit, beyond)
        self.answered += 1
        is_whole = answer.stop == "end" and not is_cut(answer)
        is_good = not is_whole or makes_sense(without_thinking(answer.text), prompt.schema_json)
        self._nonsense = 0 if is_good else self._nonsense + 1
        self._is_garbled = self._is_garbled and not is_good
        if is_good and answer.stop != "refusal":
            self._answered[prompt.purpose] += 1
            self._refuses = False
        return answer, call.cost
