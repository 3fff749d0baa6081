"""Call one model until it answers, with retries, a circuit breaker, a concurrency gate and a budget.

Invariant: an outage is never an answer, and a prompt that alone is refused fails one question, not the round.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from clara_eval.core.errors import BadAnswer, ClaraError, ConfigError, OutOfBudget, Temporary
from clara_eval.core.tasks import check_lease
from clara_eval.judge import port
from clara_eval.judge.costs.budgets import PriceCard, RunBudget
from clara_eval.judge.reading import has_required_fields, is_cut, shown, without_thinking

SLOWEST_TOKENS_PER_SECOND = 40  # a call may take as long as its tokens at this speed, and at least `call_seconds`


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of one request to a model. `deadline` is a time of the loop's clock, shared by a round."""

    deadline: float = math.inf
    tries: int = 6
    call_seconds: float = 120.0
    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 30.0
    longest_wait_seconds: float = 60.0  # if a provider asks for a longer pause, the run ends and is resumed after it
    most_probes: int = 6  # failed probes in a row, about two minutes, before the run gives up on the model
    ask_seconds: float = 1800.0  # bounds a request with all its waiting: for the gate, pauses, breaker and answer

    def ends_at(self, now: float) -> float:
        return min(now + self.ask_seconds, self.deadline)

    def pause(self, number: int, rng: random.Random) -> float:
        """Return the seconds to wait before retry `number` (from 1): doubling, with jitter."""
        longest = min(self.longest_pause_seconds, self.first_pause_seconds * 2 ** (number - 1))
        return rng.uniform(longest / 2, longest)


FIRST_LIMIT = 8  # concurrent calls at the start
OPEN_AFTER = 8  # failures in a row, over all callers, after which the breaker opens
FIRST_COOLDOWN_SECONDS = 2.0
LONGEST_COOLDOWN_SECONDS = 60.0
PROBE_POLL_SECONDS = 0.25


@dataclass(slots=True)
class CircuitBreaker:
    """Opens after several failures in a row; then one probe at a time decides whether it closes."""

    open_after: int = OPEN_AFTER
    is_open: bool = False
    next_probe_at: float = 0.0
    failures: int = 0
    failed_probes: int = 0
    _is_probing: bool = False

    def wait(self, now: float) -> float:
        """Return the seconds until the next check; 0 if a call may begin."""
        if not self.is_open:
            return 0.0
        if now < self.next_probe_at:
            return self.next_probe_at - now
        return PROBE_POLL_SECONDS if self._is_probing else 0.0

    def begin(self) -> bool:
        """Begin a call; return whether it is the probe."""
        self._is_probing = self._is_probing or self.is_open
        return self.is_open

    def answered(self) -> None:
        self.is_open, self._is_probing, self.failures, self.failed_probes = False, False, 0, 0

    def failed(self, now: float, *, probe: bool) -> None:
        self.failures += 1
        if probe:
            self._is_probing = False
            self.failed_probes += 1
        if probe or (not self.is_open and self.failures >= self.open_after):
            self.is_open = True
            self.next_probe_at = now + min(FIRST_COOLDOWN_SECONDS * 2**self.failed_probes, LONGEST_COOLDOWN_SECONDS)

    def abandoned(self, *, probe: bool) -> None:
        if probe:
            self._is_probing = False


class Gate:
    """Limits concurrent calls, first come first served: halves after a rate limit, grows with answers."""

    def __init__(self, most: int = 64, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._most = float(min(FIRST_LIMIT, most)), float(most)
        self.clock, self.in_flight = clock, 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._limited_at = -math.inf

    async def enter(self, seconds: float | None = None) -> float:
        """Wait for a slot and return the time of entry, for `limited`. Raises TimeoutError."""
        if self.in_flight >= int(self.limit) or self._waiting:
            slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(slot)
            try:
                async with asyncio.timeout(seconds):
                    await slot
            except (asyncio.CancelledError, TimeoutError):
                if slot.done() and not slot.cancelled():
                    self.leave()
                raise
        else:
            self.in_flight += 1
        return self.clock()

    def leave(self) -> None:
        self.in_flight -= 1
        while self._waiting and self.in_flight < int(self.limit):
            slot = self._waiting.popleft()
            if not slot.done():
                self.in_flight += 1
                slot.set_result(None)

    def answered(self) -> None:
        """Raise the limit by one, or after a rate limit by one per `limit` answers."""
        if self.limit < self._most:
            self.limit = min(self._most, self.limit + (1 / self.limit if self._limited_at > -math.inf else 1.0))

    def limited(self, entered_at: float) -> None:
        """Halve the limit, unless it was halved since this call began."""
        if entered_at >= self._limited_at:
            self.limit = max(1.0, self.limit / 2)
            self._limited_at = self.clock()


CallListener = Callable[[str, str, str, float], None]
"""Called after every call with model, purpose, result (the answer's stop or the failure) and seconds."""
Charged = tuple[port.Answer, int | None]
"""An answer and its cost in millionths of a dollar (None if the model has no known price)."""
CONTROL = "This only checks the connection. Answer with any object that fits the schema.\n"
"""User prompt of a probe, which tells a refused prompt from a model that answers none."""
PROBE_TOKENS = 400  # as for a verdict: a probe that exceeds a small context would look like a refusal
MOST_BEYOND_LIMIT = 32_768  # tokens to reserve: one long answer must not make the next calls unaffordable


@dataclass(slots=True)
class _Call:
    prompt: port.Prompt
    reserved: int
    is_probe: bool
    entered_at: float
    asked_at: float
    until: float
    seconds: float  # for the answer
    usable_before: int  # usable answers of this purpose when the call began
    answer: port.Answer = field(init=False)
    cost: int | None = None


@dataclass(slots=True)
class RetryingLlm:
    """Calls one model for one run. All times are of the gate's clock."""

    llm: port.Llm
    budget: RunBudget
    card: PriceCard | None
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    gate: Gate = field(default_factory=Gate)
    on_call: CallListener | None = None
    beyond_limit: int = 0  # tokens to reserve beyond the limit, for an endpoint that does not count thinking
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    keep: Callable[[port.Prompt, Charged], Awaitable[object]] | None = None  # saves the paid answers to probes
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    on_outage: Callable[[str], None] = lambda _trouble: None  # called with each outage, also if a retry follows
    broken: ConfigError | None = None  # why no call can succeed: a wrong key, model or account
    answered: int = 0  # paid answers, usable or not
    _rng: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - jitter is no secret
    _paused_until: float = 0.0
    _usable: Counter[str] = field(default_factory=Counter)  # usable answers, by purpose
    _unparsable_in_a_row: int = 0
    _is_garbled: bool = False  # a probe was unparsable too; at temperature 0 its retry would be as well
    _refuses_all: bool = False  # a probe was refused too, and no usable answer came since
    _probe_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def complete(self, prompt: port.Prompt, *, fail_fast: bool = False) -> Charged:
        """Return the first answer. `fail_fast`: raise at once if the breaker is open; another model answers.

        Raises Temporary if no answer came within the policy's tries and time, ConfigError if no call can succeed.
        """
        until = self.policy.ends_at(self.gate.clock())
        usable_before = self._usable[prompt.purpose]
        last: Temporary | None = None
        try:
            for number in range(self.policy.tries):
                try:
                    if last is not None:
                        await self._back_off(prompt, number, last, until, fail_fast)
                    call = await self._begin(prompt, until, fail_fast=fail_fast)
                    with self._settle(call):
                        async with asyncio.timeout(call.seconds):
                            call.answer = await self.llm.complete(prompt)
                    return await self._accept(call, until, fail_fast=fail_fast)
                except (port.OutOfTime, OutOfBudget, port.JudgeDown):
                    raise
                except Temporary as bad:
                    is_slow_again = isinstance(last, port.TooSlow) and isinstance(bad, port.TooSlow)
                    last = bad
                    if is_slow_again or (fail_fast and self.breaker.is_open):
                        break
            kind = type(last) if isinstance(last, (port.ServerFailed, port.TooSlow)) else Temporary
            message = f"{self.llm.name} gave no answer; the last of {number + 1} tries: {last}"
            raise kind(message, retry_after_seconds=last.retry_after_seconds if last else None)
        except (port.RequestRefused, port.ServerFailed, port.TooSlow) as bad:
            is_down = isinstance(bad, port.TooSlow) and self.breaker.is_open
            if fail_fast or is_down or not await self._answers_others(prompt, usable_before, until):
                raise
            stop: port.Stop = "max_tokens" if isinstance(bad, port.TooSlow) else "refusal"
            return port.Answer(bad.message, self.llm.name, stop, 0, 0), 0

    async def _back_off(self, prompt: port.Prompt, number: int, last: Temporary, until: float, fail_fast: bool) -> None:
        """Wait, then probe if the breaker is open: this prompt may be the cause of a 5xx."""
        await self._sleep(max(self.policy.pause(number, self._rng), last.retry_after_seconds or 0.0), until)
        if isinstance(last, port.ServerFailed) and self.breaker.is_open and not fail_fast:
            await self._probe(prompt, until)

    async def _sleep(self, seconds: float, until: float) -> None:
        """Sleep. Raises JudgeDown if the pause is too long, and OutOfTime if it ends after `until`."""
        if seconds > self.policy.longest_wait_seconds:
            raise port.JudgeDown(f"{self.llm.name} asks for a pause of {seconds:.0f} s.", retry_after_seconds=seconds)
        if self.gate.clock() + seconds >= until:
            late = f"{self.llm.name} cannot answer before the time is over."
            raise port.OutOfTime(late, retry_after_seconds=seconds)
        await self.sleep(seconds)

    async def _answers_others(self, prompt: port.Prompt, usable_before: int, until: float) -> bool:
        """Return whether the model has answered other prompts of this purpose since, or answers a probe."""
        async with self._probe_lock:
            if self._usable[prompt.purpose] > usable_before:
                return True
            if self._refuses_all:
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
        """Ask the model once for any object. Raises Temporary or RequestRefused if it does not answer."""
        control = replace(prompt, user=CONTROL, max_tokens=min(prompt.max_tokens, PROBE_TOKENS))
        call = await self._begin(control, until, fail_fast=False)
        with self._settle(call):
            async with asyncio.timeout(call.seconds):
                call.answer = await self.llm.complete(control)
        charged = self._charge(call)
        self._is_garbled = self._unparsable_in_a_row > 1  # the question's answer and this one
        if self._is_garbled or call.answer.stop == "refusal":
            raise self._reject(call)
        if self.keep is not None:
            await self.keep(control, charged)

    async def _enter_gate(self, until: float, *, fail_fast: bool) -> float:
        """Wait for a slot and return the time of entry; hold no slot while the breaker is open."""
        while True:
            if self.broken is not None:
                raise self.broken
            if self.breaker.failed_probes >= self.policy.most_probes:
                probes = self.breaker.failed_probes
                raise port.JudgeDown(f"{self.llm.name} is down: {probes} probes in a row failed.")
            paused, down = self._pauses()
            if fail_fast and down > 0:
                raise Temporary(f"{self.llm.name} is down.", retry_after_seconds=down)
            if max(paused, down) > 0:
                await self._sleep(max(paused, down), until)
                continue
            try:
                entered_at = await self.gate.enter(until - self.gate.clock())
            except TimeoutError:
                raise port.OutOfTime(f"{self.llm.name} was not asked: no call slot became free in time.") from None
            if self.broken is None and max(self._pauses()) <= 0:
                return entered_at
            self.gate.leave()

    def _pauses(self) -> tuple[float, float]:
        """Return the seconds left of a rate limit's pause and of the breaker's."""
        now = self.gate.clock()
        return self._paused_until - now, self.breaker.wait(now)

    async def _begin(self, prompt: port.Prompt, until: float, *, fail_fast: bool) -> _Call:
        """Take a slot and a reservation for one call; `_settle` gives them back."""
        entered_at = await self._enter_gate(until, fail_fast=fail_fast)
        is_probe = self.breaker.begin()
        try:
            await check_lease()
            longest = replace(prompt, max_tokens=prompt.max_tokens + self.beyond_limit) if self.beyond_limit else prompt
            reserved = await self.budget.reserve(self.llm.name, self.card, longest, until - self.gate.clock())
        except BaseException as bad:
            self._leave(probe=is_probe)
            if isinstance(bad, TimeoutError):
                raise port.OutOfTime(f"{self.llm.name} was not asked: no budget became free in time.") from None
            raise
        if (asked_at := self.gate.clock()) >= until:
            self.budget.release(reserved)
            self._leave(probe=is_probe)
            raise port.OutOfTime(f"{self.llm.name} was not asked: the round's time is over.")
        limit = max(self.policy.call_seconds, prompt.max_tokens / SLOWEST_TOKENS_PER_SECOND)
        usable_before = self._usable[prompt.purpose]
        return _Call(
            prompt, reserved, is_probe, entered_at, asked_at, until, min(limit, until - asked_at), usable_before
        )

    @contextmanager
    def _settle(self, call: _Call) -> Iterator[None]:
        try:
            yield
        except BadAnswer as bad:
            # The provider rejects this prompt (too long, filtered): an answer, saved like any other.
            call.answer = port.Answer(bad.message, self.llm.name, "refusal", 0, 0)
        except TimeoutError:
            kind = port.TooSlow if call.until > self.gate.clock() else port.Unanswered
            late = kind(f"{self.llm.name} did not finish its answer in time.")
            self._settle_failure(call, late)
            raise late from None
        except BaseException as bad:
            self._settle_failure(call, bad)
            raise
        finally:
            self._leave(probe=call.is_probe)
        self._report(call, call.answer.stop)
        self.gate.answered()
        if call.answer.stop != "refusal":
            self.breaker.answered()

    def _leave(self, *, probe: bool) -> None:
        self.breaker.abandoned(probe=probe)
        self.gate.leave()

    def _settle_failure(self, call: _Call, bad: BaseException) -> None:
        settle = self.budget.release
        if isinstance(bad, Temporary):
            self.on_outage(str(bad))
        match bad:
            case port.RateLimited():
                self._report(call, "rate_limited")
                self.gate.limited(call.entered_at)
                # A Retry-After holds for all callers.
                self._paused_until = max(self._paused_until, self.gate.clock() + (bad.retry_after_seconds or 0.0))
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
        if self.on_call is not None:
            self.on_call(self.llm.name, call.prompt.purpose, result, self.gate.clock() - call.asked_at)

    async def _accept(self, call: _Call, until: float, *, fail_fast: bool) -> Charged:
        """Charge and return the answer; a refused or unparsable one only if the model answers other prompts.

        Raises JudgeDown or Temporary if it does not; RequestRefused for a refusal that another model may answer.
        """
        charged = self._charge(call)  # before a probe, which needs the reserved money
        is_refused = call.answer.stop == "refusal"
        if not self._unparsable_in_a_row and not is_refused:
            return charged
        if is_refused and fail_fast:
            self.budget.lose(call.cost or 0)
            raise port.RequestRefused(f"{self.llm.name} refuses a question: {call.answer.text}")
        try:
            is_alone = not self._is_garbled and await self._answers_others(call.prompt, call.usable_before, until)
        except BaseException:
            self._reject(call)
            raise
        if not is_alone:
            raise self._reject(call)
        self.breaker.answered()
        return charged

    def _reject(self, call: _Call) -> Temporary:
        """Count the answer as lost and as a failure of the model; return the error to raise."""
        self.budget.lose(call.cost or 0)
        self.breaker.failed(self.gate.clock(), probe=call.is_probe)
        if call.answer.stop == "refusal":
            self._refuses_all = True
            return Temporary(f"{self.llm.name} refuses every question: {shown(call.answer.text, 200)}")
        return port.JudgeDown(f"{self.llm.name} answers with something that is not what was asked for.")

    def _charge(self, call: _Call) -> Charged:
        """Charge the answer to the budget, and record whether it is usable."""
        answer, prompt = call.answer, call.prompt
        call.cost = None if self.card is None else self.card.cost(answer)
        self.budget.charge(call.reserved, call.cost)
        beyond = min(2 * (answer.output_tokens - prompt.max_tokens), MOST_BEYOND_LIMIT)
        self.beyond_limit = max(self.beyond_limit, beyond)
        self.answered += 1
        is_whole = answer.stop == "end" and not is_cut(answer)
        is_good = not is_whole or has_required_fields(without_thinking(answer.text), prompt.schema_json)
        self._unparsable_in_a_row = 0 if is_good else self._unparsable_in_a_row + 1
        self._is_garbled = self._is_garbled and not is_good
        if is_good and answer.stop != "refusal":
            self._usable[prompt.purpose] += 1
            self._refuses_all = False
        return answer, call.cost
