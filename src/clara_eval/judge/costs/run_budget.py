"""The money of one run: reserve the worst case before a call, settle the real cost after it.

Invariant: spent plus reserved never exceeds the cap. Calls that were sent and never answered count in full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from clara_eval.core.dollars import MICRO
from clara_eval.core.errors import ConfigError, Deferred, OutOfBudget
from clara_eval.judge.costs.prices import PriceCard
from clara_eval.judge.port import Answer, Prompt

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
    """Reserves more if answers are longer than quoted."""
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
                raise _no_price(judge)
            return [0] * len(prompts)
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
        """Ask the ledger for more than was reserved."""
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
        """Replace a reservation by the real cost."""
        stage = self._stage(purpose)
        stage.calls += 1
        stage.input_tokens += answer.input_tokens
        stage.output_tokens += answer.output_tokens
        stage.unpriced_calls += cost is None
        stage.micro_usd += cost or 0
        self._spent += cost or 0
        self._give_back(reserved)

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


def _no_price(judge: str) -> ConfigError:
    return ConfigError(
        f"{judge} has no known price, so the budget cannot be kept.",
        remedy=f"Name it: CLARA_PRICES={judge}=INPUT/OUTPUT in dollars per million tokens (0/0 for your own machine), "
        "or set the CLARA_BUDGET_… caps to none.",
    )
