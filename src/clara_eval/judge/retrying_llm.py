"""One model, called until it answers: pauses, probes, and the money of each call.

Invariant: an outage is never an answer; a prompt that alone is refused concerns one question, not the round.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from clara_eval.core.errors import BadAnswer, ClaraError, ConfigError, OutOfBudget, Temporary
from clara_eval.core.tasks import check_lease
from clara_eval.judge import port
from clara_eval.judge.admission import Admission
from clara_eval.judge.costs.budgets import RunBudget
from clara_eval.judge.costs.prices import PriceCard
from clara_eval.judge.reading import is_cut, makes_sense, shown, without_thinking

CallListener = Callable[[str, str, str, float], None]
"""Called after every call: the model, the purpose, how it ended (the answer's stop, or what went wrong), seconds."""
CONTROL = "This only checks the connection. Answer with any object that fits the schema.\n"
"""Asked instead of a prompt's own words, to tell a refused prompt from a model that takes none."""
PROBE_TOKENS = 400
"""As for a bare verdict: a small context must not make a probe look like a refusal."""
MOST_NONSENSE = 2
"""Unparsable answers in a row that are accepted before the provider is probed: fewer than one question may be asked."""
MOST_BEYOND_LIMIT = 32_768
"""Tokens reserved beyond a limit at most: one entry must not make the next calls too dear to be asked."""


@dataclass(frozen=True, slots=True)
class Charged:
    """An answer and its cost in millionths of a dollar; None if the model has no known price."""

    answer: port.Answer
    cost: int | None


@dataclass(slots=True)
class _Call:
    prompt: port.Prompt
    reserved: int
    is_probe: bool
    entered_at: float
    asked_at: float
    answered_before: int
    """Answers of this purpose when the call began."""
    answer: port.Answer | None = None


class RetryingLlm:
    """Calls one model for one run; `keep` saves the answers to probes, which are paid for too."""

    def __init__(
        self,
        llm: port.Llm,
        admission: Admission,
        *,
        budget: RunBudget,
        card: PriceCard | None,
        watch: CallListener | None,
        beyond_limit: int,
        keep: Callable[[port.Prompt, Charged], Awaitable[object]],
    ) -> None:
        self._llm, self._name, self._budget, self._card = llm, llm.name, budget, card
        self._admission, self._policy, self._clock = admission, admission.policy, admission.clock
        self._rng = random.Random(llm.name)  # noqa: S311 - jitter is no secret
        self._watch, self._keep, self._beyond_limit = watch, keep, beyond_limit
        """Tokens to reserve beyond a limit, for an endpoint whose limit leaves thinking out."""
        self._answered: Counter[str] = Counter()
        """Answers that make sense, by purpose."""
        self._nonsense = 0
        self._is_garbled = False
        """A probe was unparsable too. At temperature 0 neither it nor a prompt is worth an equal request."""
        self._refuses = False
        """A probe was refused too, and nothing was answered since."""
        self._probing = asyncio.Lock()
        self.answered = 0

    async def complete(self, prompt: port.Prompt, *, yields: bool = False) -> Charged:
        """Return the first answer. `yields`: another model can take over, so an open breaker is an error at once.

        Raises:
            Temporary: no answer came within the policy's tries and time.
            ConfigError: no call to this model can succeed.

        """
        until = self._policy.ends_at(self._clock())
        before = self._answered[prompt.purpose]
        last: Temporary | None = None
        try:
            for number in range(self._policy.tries):
                try:
                    if last is not None:
                        await self._pause(prompt, number, last, until, yields=yields)
                    async with self._call(prompt, until, yields=yields) as call:
                        call.answer = await self._llm.complete(prompt)
                    return await self._accepted(call, until, yields=yields)
                except (port.OutOfTime, OutOfBudget, port.JudgeDown, port.JudgeWaits, port.Garbled):
                    raise
                except Temporary as bad:
                    is_slow_again = isinstance(last, port.TooSlow) and isinstance(bad, port.TooSlow)
                    last = bad
                    if is_slow_again or (yields and self._admission.breaker.is_open):
                        break
            raise self._gave_up(number + 1, last)
        except (port.RequestRefused, port.ServerFailed, port.TooSlow) as bad:
            is_down = isinstance(bad, port.TooSlow) and self._admission.breaker.is_open
            if yields or is_down or not await self._answers_others(prompt, before, until):
                raise
            stop: port.Stop = "max_tokens" if isinstance(bad, port.TooSlow) else "refusal"
            return Charged(port.Answer(bad.message, self._name, stop, 0, 0), 0)

    async def _pause(self, prompt: port.Prompt, number: int, last: Temporary, until: float, *, yields: bool) -> None:
        """Wait before the next try. With an open breaker probe first: this prompt may be the reason for a 5xx."""
        seconds = max(self._policy.pause(number, self._rng), last.retry_after_seconds or 0.0)
        await self._admission.rest(seconds, until)
        if isinstance(last, port.ServerFailed) and self._admission.breaker.is_open and not yields:
            await self._probe(prompt, until)

    def _gave_up(self, tries: int, last: Temporary | None) -> Temporary:
        kind = type(last) if isinstance(last, (port.ServerFailed, port.TooSlow)) else Temporary
        return kind(
            f"{self._name} gave no answer; the last of {tries} tries: {last}",
            retry_after_seconds=last.retry_after_seconds if last else None,
        )

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
                self._admission.broken = bad
                return False
            except Temporary:
                return False
            return True

    async def _probe(self, prompt: port.Prompt, until: float) -> None:
        """Ask the model about nothing, once; a Temporary or RequestRefused says that it does not answer."""
        control = replace(prompt, user=CONTROL, max_tokens=min(prompt.max_tokens, PROBE_TOKENS))
        async with self._call(control, until, yields=False) as call:
            call.answer = await self._llm.complete(control)
        charged = self._charged(call)
        if self._counts_as_nonsense(call):
            self._is_garbled = True
            raise self._garbled(call, charged)
        if charged.answer.stop == "refusal":
            raise self._refusing(call, charged)
        await self._keep(control, charged)

    @asynccontextmanager
    async def _call(self, prompt: port.Prompt, until: float, *, yields: bool) -> AsyncIterator[_Call]:
        """Surround one call: a place, a reservation, a time limit; and what its failure means for each."""
        entered_at = await self._admission.enter(until, yields=yields)
        breaker = self._admission.breaker
        is_probe = breaker.begin()
        try:
            await check_lease()
            longest = replace(prompt, max_tokens=prompt.max_tokens + self._beyond_limit)
            try:
                async with asyncio.timeout(until - self._clock()):
                    reserved = await self._budget.reserve(self._name, self._card, longest)
            except TimeoutError:
                raise port.OutOfTime(f"{self._name} was not asked: no money became free in time.") from None
            if self._clock() >= until:
                self._budget.release(reserved, prompt.purpose)
                raise port.OutOfTime(f"{self._name} was not asked: the round's time is over.")
            asked_at = self._clock()
            call = _Call(prompt, reserved, is_probe, entered_at, asked_at, self._answered[prompt.purpose])
            try:
                async with asyncio.timeout(min(self._policy.call_limit(prompt.max_tokens), until - asked_at)):
                    yield call
            except BadAnswer as bad:
                # The provider does not take this prompt (too long, filtered): an answer, kept like any other.
                call.answer = port.Answer(bad.message, self._name, "refusal", 0, 0)
            except TimeoutError:
                kind = port.TooSlow if until > self._clock() else port.Unanswered
                late = kind(f"{self._name} did not finish its answer in time.")
                self._failed(call, late)
                raise late from None
            except BaseException as bad:
                self._failed(call, bad)
                raise
            assert call.answer is not None
            self._report(call, call.answer.stop)
            self._admission.gate.answered()
            if call.answer.stop != "refusal":
                breaker.answered()
        finally:
            breaker.abandoned(probe=is_probe)
            self._admission.gate.leave()

    def _failed(self, call: _Call, bad: BaseException) -> None:
        settle = self._budget.release
        if isinstance(bad, Temporary):
            self._admission.tell(str(bad))
        match bad:
            case port.RateLimited():
                self._report(call, "rate_limited")
                self._admission.gate.limited(call.entered_at)
                self._admission.hold(bad.retry_after_seconds or 0.0)
            case Temporary():
                is_unanswered = isinstance(bad, port.Unanswered)
                self._report(call, "unanswered" if is_unanswered else "failed")
                self._admission.breaker.failed(self._clock(), probe=call.is_probe)
                settle = self._budget.unsure if is_unanswered else settle
            case ClaraError():
                self._report(call, "refused")
                if isinstance(bad, ConfigError) and not isinstance(bad, port.RequestRefused):
                    self._admission.broken = bad
            case _:
                settle = self._budget.unsure
        settle(call.reserved, call.prompt.purpose)

    def _report(self, call: _Call, result: str) -> None:
        if self._watch is not None:
            self._watch(self._name, call.prompt.purpose, result, self._clock() - call.asked_at)

    async def _accepted(self, call: _Call, until: float, *, yields: bool) -> Charged:
        """Charge the answer. One that is refused or unparsable counts only if the model makes sense to others.

        Raises Garbled or JudgeRefuses if it does not; RequestRefused for a refusal that another model may answer.
        """
        charged = self._charged(call)  # before a probe, which needs the money that was reserved
        is_refused = charged.answer.stop == "refusal"
        if self._counts_as_nonsense(call) or is_refused:
            if is_refused and yields:
                self._budget.lose(call.prompt.purpose, charged.cost or 0)
                raise port.RequestRefused(f"{self._name} refuses a question: {charged.answer.text}")
            is_alone, trouble = False, None
            try:
                is_alone = not self._is_garbled and await self._answers_others(call.prompt, call.answered_before, until)
            finally:
                if not is_alone:
                    trouble = self._refusing(call, charged) if is_refused else self._garbled(call, charged)
            if trouble is not None:
                raise trouble
            self._admission.breaker.answered()
        return charged

    def _counts_as_nonsense(self, call: _Call) -> bool:
        """Count the unparsable answers in a row; True when there are too many."""
        self._nonsense = 0 if _is_good(call) else self._nonsense + 1
        self._is_garbled = self._is_garbled and self._nonsense > 0
        return self._nonsense > MOST_NONSENSE

    def _garbled(self, call: _Call, charged: Charged) -> port.Garbled:
        self._failed_to_help(call, charged)
        return port.Garbled(f"{self._name} answers with something that is not what was asked for.")

    def _refusing(self, call: _Call, charged: Charged) -> port.JudgeRefuses:
        self._refuses = True
        self._failed_to_help(call, charged)
        return port.JudgeRefuses(f"{self._name} refuses every question: {shown(charged.answer.text, 200)}")

    def _failed_to_help(self, call: _Call, charged: Charged) -> None:
        self._budget.lose(call.prompt.purpose, charged.cost or 0)
        self._admission.breaker.failed(self._clock(), probe=call.is_probe)

    def _charged(self, call: _Call) -> Charged:
        answer, purpose = call.answer, call.prompt.purpose
        assert answer is not None
        cost = None if self._card is None else self._card.cost(answer)
        self._budget.charge(call.reserved, purpose, answer, cost)
        beyond = min(2 * (answer.output_tokens - call.prompt.max_tokens), MOST_BEYOND_LIMIT)
        self._beyond_limit = max(self._beyond_limit, beyond)
        self.answered += 1
        if _is_good(call) and answer.stop != "refusal":
            self._answered[purpose] += 1
            self._refuses = False
        return Charged(answer, cost)


def _is_good(call: _Call) -> bool:
    answer = call.answer
    assert answer is not None
    if answer.stop != "end" or is_cut(answer):
        return True
    return makes_sense(without_thinking(answer.text), call.prompt.schema_json)
