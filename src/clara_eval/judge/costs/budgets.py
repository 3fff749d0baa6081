"""The caps and the ledger of spending, the money of one run, and the share of it that reads one entry.

Invariant: an amount is reserved under all caps before it is paid; calls that were never answered count in full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clara_eval.config.settings import Settings
from clara_eval.core.dollars import MICRO, micro_usd
from clara_eval.core.errors import Deferred, OutOfBudget
from clara_eval.judge.costs.prices import PriceCard, Tokens, estimated_tokens, no_price
from clara_eval.judge.port import Answer, AnswerCut, Prompt, TooCostly

KNOWN_AFTER_SECONDS = 7 * 86400
"""A poster is known once an evaluation of his was paid for this long ago."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper bounds in millionths of a dollar; None is no bound."""

    per_challenge: int | None
    per_poster_day: int | None
    per_month: int | None
    new_posters_month: int | None = None
    """Of the month, what posters that are not known yet may take together: a hundred new names cannot empty it."""

    @property
    def tightest(self) -> int | None:
        caps = (self.per_challenge, self.per_poster_day, self.per_month)
        return min((cap for cap in caps if cap is not None), default=None)


@dataclass(frozen=True, slots=True)
class Spend:
    """One line of the ledger: reserved first, settled to the real amount later."""

    id: int
    run: str
    poster: str
    purpose: str
    reserved_micro_usd: int
    settled_micro_usd: int | None
    at: int


LOOK_AGAIN_SECONDS = 6 * 3600
"""A prize does not grow, but a setting may change: the challenge is looked at a few times a day."""


def caps_of(settings: Settings) -> Caps:
    month = micro_usd(settings.budget_per_month_usd)
    return Caps(
        per_challenge=micro_usd(settings.budget_per_challenge_usd),
        per_poster_day=micro_usd(settings.budget_per_poster_day_usd),
        per_month=month,
        new_posters_month=None if month is None else int(month * settings.new_posters_share),
    )


def check_prize(worth: int | None, min_prize_usd: float | None, now: int) -> None:
    """Raise `Deferred` for a prize under the minimum, or of unknown worth if there is a minimum."""
    least = micro_usd(min_prize_usd)
    if not least or (worth is not None and worth >= least):
        return
    found = "of no known worth in dollars does not reach" if worth is None else f"of ${worth / MICRO:.2f} is under"
    raise Deferred(
        f"The prize {found} the minimum of ${least / MICRO:.2f}.",
        remedy="The poster may post the scores; the operator may lower CLARA_MIN_PRIZE_USD.",
        retry_at=now + LOOK_AGAIN_SECONDS,
    )


WASTE_TIMES = 2
LEAST_WASTE = 500_000
"""A run stops when answers of no use cost so many times its estimate, and at least these millionths of a dollar."""
Extend = Callable[[int], Awaitable[int]]
"""Told what a run needs in all; returns what it may spend then. Raises Deferred over a cap of the ledger."""


@dataclass(slots=True)
class StageSpend:
    """What one purpose (schema, features, comparison) cost."""

    calls: int = 0
    micro_usd: int = 0
    unpriced_calls: int = 0
    """Answers of a model with no known price; not in `micro_usd`."""
    unsure_micro_usd: int = 0
    """Worst case of calls that were sent and never answered; counts against the cap, is not in `micro_usd`."""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class RunBudget:
    """`cap_micro_usd` None is no bound. `spent_before` is what earlier attempts paid or may have paid."""

    cap_micro_usd: int | None
    spent_before: int = 0
    stages: dict[str, StageSpend] = field(default_factory=dict)
    reserved: int = 0
    unsure_micro_usd: int = 0
    """What may have been charged for nothing, to be kept in the ledger; what another attempt looks for is not in it."""
    lost_before: int = 0
    """Of `spent_before`, what may have been charged for nothing."""
    kept_micro_usd: int = 0
    """For comparisons: no other call takes it."""
    extend: Extend | None = None
    most_wasted: int | None = None
    """No call is made once answers that are of no use cost this much; None is no bound."""
    wasted: int = 0
    _spent: int = 0
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    @property
    def spent(self) -> int:
        """Return all that counts against the cap, without calls in flight."""
        return self.spent_before + self._spent

    async def reserve(self, judge: str, card: PriceCard | None, prompt: Prompt) -> int:
        return (await self.reserve_all(judge, card, (prompt,)))[0]

    async def reserve_all(
        self, judge: str, card: PriceCard | None, prompts: Sequence[Prompt], *, batch: bool = False
    ) -> list[int]:
        """Reserve the worst case of every call, all or nothing; one amount for each prompt."""
        if card is None:
            if self.cap_micro_usd is not None:
                raise no_price(judge)
            return [0] * len(prompts)
        if self.most_wasted is not None and self.wasted >= self.most_wasted:
            raise OutOfBudget(
                f"Answers that cannot be used cost ${self.wasted / MICRO:.2f} so far, {WASTE_TIMES} times the estimate "
                "of the whole round or more: no more is asked.",
                remedy=f"Is {judge} the right model, and does its endpoint take a JSON Schema? Name another judge in "
                "CLARA_JUDGES; if its answers are cut, raise CLARA_ANSWER_TOKENS and evaluate anew "
                "(`evaluate --restart`).",
                is_lost=True,
                retry_after_seconds=LOOK_AGAIN_SECONDS,
            )
        amounts = [card.worst(prompt, batch=batch) for prompt in prompts]
        needed = sum(amounts)
        kept = 0 if all(prompt.purpose == "comparison" for prompt in prompts) else self.kept_micro_usd
        while self.cap_micro_usd is not None and self.spent + self.reserved + needed + kept > self.cap_micro_usd:
            if self.reserved == 0:
                if await self._extended(needed + kept):
                    continue
                raise self._over(needed, kept)
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(gate)
            await gate
        self.reserved += needed
        return amounts

    async def _extended(self, needed: int) -> bool:
        if self.extend is None or self.cap_micro_usd is None:
            return False
        before = self.cap_micro_usd
        try:
            most = await self.extend(self.spent + needed)
        except Deferred:
            return False  # a cap of the day or month has no room for more than was quoted: it goes on with less
        self.cap_micro_usd = max(self.cap_micro_usd, most)
        return self.cap_micro_usd > before

    def charge(self, reserved: int, purpose: str, answer: Answer, cost: int | None) -> None:
        stage = self._stage(purpose)
        stage.calls += 1
        stage.input_tokens += answer.input_tokens
        stage.output_tokens += answer.output_tokens
        stage.unpriced_calls += cost is None
        stage.micro_usd += cost or 0
        self._spent += cost or 0
        self._give_back(reserved)

    def lose(self, purpose: str, cost: int) -> None:
        """Count an answer that was charged and is not kept as paid for nothing."""
        stage = self._stage(purpose)
        stage.micro_usd -= cost
        stage.unsure_micro_usd += cost
        self.waste(cost)

    def waste(self, cost: int) -> None:
        self.unsure_micro_usd += cost
        self.wasted += cost

    def unsure(self, reserved: int, purpose: str, *, is_looked_for: bool = False) -> None:
        """Count the reservation as spent: the call was sent and never answered.

        `is_looked_for`: the next attempt asks the provider for this very answer and pays for it then.
        """
        self._stage(purpose).unsure_micro_usd += reserved
        self.unsure_micro_usd += 0 if is_looked_for else reserved
        self._spent += reserved
        self._give_back(reserved)

    def release(self, reserved: int, purpose: str) -> None:
        self._stage(purpose)
        self._give_back(reserved)

    def _stage(self, purpose: str) -> StageSpend:
        return self.stages.setdefault(purpose, StageSpend())

    def _give_back(self, reserved: int) -> None:
        self.reserved -= reserved
        while self._waiting:
            gate = self._waiting.popleft()
            if not gate.done():
                gate.set_result(None)

    def _over(self, worst: int, kept: int) -> OutOfBudget:
        cap = self.cap_micro_usd or 0
        lost = self.lost_before + sum(stage.unsure_micro_usd for stage in self.stages.values())
        is_lost = self.spent - lost + worst + kept <= cap
        for_games = f", ${kept / MICRO:.2f} is kept for comparisons" if kept else ""
        return OutOfBudget(
            f"The budget of ${cap / MICRO:.2f} is used up: ${self.spent / MICRO:.4f} spent{for_games}, "
            f"and what comes next may cost ${worst / MICRO:.4f}.",
            remedy="Raise CLARA_BUDGET_PER_CHALLENGE_USD; what is paid for is kept and not paid again.",
            is_lost=is_lost,
        )


MARGIN_PERCENT = 130
"""Share of an entry's usual cost that it may use without a full share: answers are sometimes asked again."""
SLOW_CALLS = 2
"""A question that got no answer in time was sent so often, and each may have been charged."""


@dataclass(frozen=True, slots=True)
class ReadingBudget:
    """Millionths of a dollar for all entries together, with the prices; part of a plan."""

    micro_usd: int
    input: int
    """Picodollars for a token of a prompt, at the dearest of the models that may read."""
    output: int
    answer_tokens: int
    """Of a usual answer, with the thinking that is expected before it."""

    @property
    def card(self) -> PriceCard:
        return PriceCard(self.input, self.output, self.input, self.input)

    def usual(self, prompts: Iterable[Prompt], answer_tokens: int | None = None) -> int:
        answer = self.answer_tokens if answer_tokens is None else answer_tokens
        texts = (prompt.system + prompt.user + prompt.schema_json for prompt in prompts)
        return sum(self.card.cost(Tokens(estimated_tokens(text), answer)) for text in texts)

    def cost(self, prompt: Prompt, answer: Answer | Tokens, *, is_slow: bool = False) -> int:
        """Count an answer. A slow one without tokens may have been charged in full."""
        if is_slow and not answer.input_tokens and not answer.output_tokens:
            return SLOW_CALLS * self.card.worst(prompt)
        return self.card.cost(answer)


@dataclass(slots=True)
class EntryShare:
    """What the answers about one entry may use together; without `money` only tokens are bounded."""

    money: ReadingBudget | None
    most: int
    needs: int
    tokens: int = 0
    spent: int = 0

    def check_tokens(self, name: str, most: int, requests: Sequence[str]) -> None:
        if self.tokens > most:
            raise AnswerCut(f"{name} used {self.tokens:,} tokens for one entry, thinking included", requests)

    def check_money(self, prompt: Prompt, requests: Sequence[str], answer_tokens: int | None) -> None:
        """Raise TooCostly unless the share pays for this request, by default with an answer of usual length."""
        if self.money is None:
            return
        needed = max(self.needs, self.spent + self.money.usual((prompt,), answer_tokens))
        if needed > self.most:
            raise TooCostly(
                f"To read it costs ${needed / MICRO:.4f} or more, and this round's budget for reading has "
                f"${self.most / MICRO:.4f} for it",
                requests,
            )

    def count(self, prompt: Prompt, answer: Answer) -> None:
        self.tokens += answer.output_tokens
        self.spent += self.money.cost(prompt, answer, is_slow=answer.stop == "max_tokens") if self.money else 0


def next_to_read(left: int, usual: Mapping[str, int]) -> dict[str, int]:
    """Return the entries to read now, smallest first, each with its bound; none if none fits.

    Entries for which an equal share suffices get it; else the smallest, as many as there is money for.
    """
    waiting = sorted(usual, key=lambda name: (usual[name], name))
    share = left // len(waiting) if waiting else 0
    if fitting := {name: share for name in waiting if usual[name] <= share}:
        return fitting
    chosen: dict[str, int] = {}
    for name in waiting:
        bound = usual[name] * MARGIN_PERCENT // 100
        if bound > left:
            break
        chosen[name] = bound
        left -= bound
    return chosen
