"""Seats the models of one run: each on its line, all with one purse, within one reservation of the ledger.

In: settings and the store. Out: `Seats` for a run. Must hold: before the first call what this run may spend (twice its
quote, at most the challenge's cap) is reserved under every cap in one transaction, and it cannot spend more; at the end
it is settled to what was really spent. Judges that cost nothing reserve nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clara_eval.challenge.model import Challenge
from clara_eval.eval_config import EvalConfig
from clara_eval.judge.calls import JudgeLine, Patience, Succession, Watch
from clara_eval.judge.jury import parse_judge
from clara_eval.judge.port import Asker, Foreseeing, Llm, PaidAnswer, Prompt
from clara_eval.judge.prices import PriceCard, parse_prices, price_card
from clara_eval.judge.purse import Purse
from clara_eval.judge.quote import Quote, Size, quote
from clara_eval.money.caps import caps_of
from clara_eval.pipeline.plan import Plan
from clara_eval.settings import Settings
from clara_eval.trace.store import Store

if TYPE_CHECKING:
    from clara_eval.llm.batches import MessageBatches

MARGIN = 1.3
"""Answers are asked again now and then, and submissions differ in size from the quote's."""
LEAST_RESERVE = 500_000
"""Millionths of a dollar: a single call reserves its worst case, which is far above its quote."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What one judge of one run will be asked next, and the money for it."""

    judge: str
    run: str
    prompts: tuple[Prompt, ...]
    purse: Purse
    card: PriceCard | None


Spread = Callable[[Ahead], Awaitable[None]]
"""Has some of this asked elsewhere; returns when nobody else asks any of it any more."""


LookAhead = Callable[[Sequence[Prompt]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Foreseen:
    """An asker that prepares what will be asked next: in Claude's batches, or by other workers."""

    asker: Asker
    ahead: LookAhead

    @property
    def name(self) -> str:
        return self.asker.name

    async def foresee(self, prompts: Sequence[Prompt]) -> None:
        await self.ahead(prompts)
        if isinstance(self.asker, Foreseeing):
            await self.asker.foresee(prompts)

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        return await self.asker.ask(prompt, attempt)


@dataclass(slots=True)
class RunSeats:
    """Fulfils `pipeline.evaluate.SeatedModels`."""

    lines: dict[str, JudgeLine]
    purse: Purse
    ahead: dict[str, LookAhead] = field(default_factory=dict)

    def asker(self, name: str) -> Asker:
        return self._foreseen(self.lines[name], name)

    def reader(self, names: Sequence[str]) -> Asker:
        lines = [self.lines[name] for name in names]
        return self._foreseen(lines[0] if len(lines) == 1 else Succession(lines), names[0])

    def _foreseen(self, asker: Asker, name: str) -> Asker:
        return _Foreseen(asker, self.ahead[name]) if name in self.ahead else asker

    def meter(self) -> tuple[int, float]:
        return sum(line.counts.answered for line in self.lines.values()), (self.purse.spent) / 1_000_000


@dataclass(slots=True)
class ModelPool:
    """Fulfils `pipeline.evaluate.Bench`; models are built once and shared by runs."""

    settings: Settings
    store: Store
    spread: Spread | None = None
    """Set by an engine that has other workers to share with."""
    watch: Watch | None = None
    """Set by a service that counts calls."""
    poll_seconds: float = 20.0
    """Between two looks at a batch."""
    _llms: dict[str, Llm] = field(default_factory=dict)

    @asynccontextmanager
    async def seat(
        self, challenge: Challenge, config: EvalConfig, plan: Plan, seconds: float
    ) -> AsyncIterator[RunSeats]:
        """The seats of this run; leaving settles what was reserved."""
        cards = {name: self._card(name) for name in plan.models}
        spent = sum([paid.cost_micro_usd or 0 async for paid in self.store.answers_of(challenge.run)])
        costly = any(card is None or card.input or card.output for card in cards.values())
        most = self._most_to_spend(challenge, config, plan, spent) if costly else None
        purse = Purse(most, spent_before=spent)
        lines = {name: self.line(name, challenge.run, purse, seconds) for name in cards}
        ahead = {name: self._ahead(name, challenge.run, purse, seconds) for name in cards}
        # Last before the run: a model that cannot be seated must not leave a reservation behind.
        ledger = await self._reserve(challenge, most or spent) if costly else None
        try:
            yield RunSeats(lines, purse, {name: look for name, look in ahead.items() if look is not None})
        finally:
            if ledger is not None:
                await self.store.settle_spend(ledger, purse.spent)

    def line(self, name: str, run: str, purse: Purse, seconds: float) -> JudgeLine:
        """One model on its line for a run, for so many seconds."""
        # A model on this machine answers one call at a time: the others would use up their time waiting for it.
        at_once = 1 if parse_judge(name).provider == "local" else self.settings.max_concurrency
        patience = Patience(deadline=asyncio.get_running_loop().time() + seconds, most_in_flight=at_once)
        llm, card = self._llm(name), self._card(name)
        return JudgeLine(llm, self.store, run=run, purse=purse, card=card, patience=patience, watch=self.watch)

    def _ahead(self, name: str, run: str, purse: Purse, seconds: float) -> LookAhead | None:
        """Batches where the time allows them and the model has them, else other workers, else nothing."""
        ends_at = asyncio.get_running_loop().time() + seconds
        judge, spread, card = parse_judge(name), self.spread, self._card(name)
        if judge.provider != "anthropic" and spread is None:
            return None

        async def look(prompts: Sequence[Prompt]) -> None:
            from clara_eval.llm.batches import should_batch

            left = ends_at - asyncio.get_running_loop().time()
            if judge.provider == "anthropic" and self.settings.batches == "auto":
                # What an earlier walk submitted is paid for: it is collected also when no new batch is worth it.
                worth_it = should_batch(left, len(prompts))
                await self._batches(name, run, purse, left).fill(prompts, only_earlier=not worth_it)
                if worth_it:
                    return
            if spread is not None:
                await spread(Ahead(name, run, tuple(prompts), purse, card))

        return look

    def _batches(self, name: str, run: str, purse: Purse, left: float) -> MessageBatches:
        from clara_eval.llm.anthropic import AnthropicLlm
        from clara_eval.llm.batches import MessageBatches

        llm = self._llm(name)
        assert isinstance(llm, AnthropicLlm), "only Claude has message batches"
        return MessageBatches(
            llm, self.store, run, purse, self._card(name), seconds=left / 2, poll_seconds=self.poll_seconds
        )

    def most_games(self, challenge: Challenge, config: EvalConfig, plan: Plan) -> int | None:
        """What the cap of one challenge buys beside the reading, by the quote with a margin."""
        cap = caps_of(self.settings).per_challenge
        looks = challenge.submission_count * (challenge.submission_count - 1)
        quoted = self._quote(challenge, config, plan, looks)
        comparing = [line for line in quoted.lines if line.purpose == "comparison"]
        if cap is None or not looks or quoted.models_micro_usd is None or not any(line.micro_usd for line in comparing):
            return None
        for_games = sum(line.micro_usd or 0 for line in comparing)
        reading = quoted.models_micro_usd - for_games
        affordable = int((cap - reading * MARGIN) / (for_games * MARGIN) * looks)
        return max(1, min(looks, affordable)) * len(comparing)

    def _quote(self, challenge: Challenge, config: EvalConfig, plan: Plan, looks: int) -> Quote:
        jury = [parse_judge(name) for name in plan.judges]
        cards = {judge.text: self._card(judge.text) for judge in jury if judge.provider != "rules"}
        return quote(config, Size(challenge.submission_count, looks), jury, cards)

    def _most_to_spend(self, challenge: Challenge, config: EvalConfig, plan: Plan, spent: int) -> int | None:
        """Twice the quote on top of what is spent, at most the cap: what is reserved, and all that can be spent.

        None only where there is no cap of any kind: also a cap of the day or the month holds for what is reserved.
        """
        caps = caps_of(self.settings)
        cap = caps.per_challenge
        wider = [bound for bound in (caps.per_poster_day, caps.per_month) if bound is not None]
        games = plan.max_games or challenge.submission_count * (challenge.submission_count - 1) * len(plan.judges)
        quoted = self._quote(challenge, config, plan, -(-games // len(plan.judges))).models_micro_usd
        if cap is None and not wider:
            return None
        if quoted is None:
            return min(wider) if cap is None else cap
        needed = spent + 2 * quoted + LEAST_RESERVE
        return needed if cap is None else min(cap, needed)

    async def _reserve(self, challenge: Challenge, most: int) -> int:
        return await self.store.reserve_spend(
            challenge.run, challenge.poster, "evaluation", most, caps_of(self.settings)
        )

    def _card(self, name: str) -> PriceCard | None:
        return price_card(parse_judge(name), parse_prices(self.settings.prices))

    def _llm(self, name: str) -> Llm:
        if name not in self._llms:
            from clara_eval.llm.build import build_llm

            self._llms[name] = build_llm(name, self.settings)
        return self._llms[name]

    async def close(self) -> None:
        for llm in self._llms.values():
            close: Any = getattr(llm, "close", None)
            if close is not None:
                await close()
