"""What a round will cost, and the plan that its budget allows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clara_eval.chain.model import Challenge
from clara_eval.config.eval_config import EvalConfig
from clara_eval.config.settings import Settings
from clara_eval.core.dollars import MICRO
from clara_eval.core.errors import Deferred
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge.costs.budgets import ReadingBudget, caps_of
from clara_eval.judge.costs.prices import FREE, PriceCard, parse_prices
from clara_eval.judge.costs.quote import LEAST_RESERVE, READING_SHARE, Jury, Quote, Size, expected_calls, quote
from clara_eval.judge.providers.registry import parse_judge, price_card, thinking_models, token_limits
from clara_eval.store.sql_store import SqlStore

LEAST_BOUND = 8_192
"""The bound of an answer is not lowered below this for a small cap: a model that thinks could not answer at all."""


@dataclass(frozen=True, slots=True)
class RoundCosts:
    settings: Settings

    def affordable(self, challenge: Challenge, config: EvalConfig, plan: EvaluationPlan) -> EvaluationPlan:
        """The plan with the limits of answers, and no more games than the cap of one challenge buys, with a margin."""
        cap = caps_of(self.settings).tightest
        looks = challenge.submission_count * (challenge.submission_count - 1)
        plan = replace(plan, tokens=token_limits(self.settings, [parse_judge(name) for name in plan.models]))
        quoted = self._quote(challenge, config, plan, looks)
        while (
            cap is not None and quoted.most_for_reading > cap * READING_SHARE and (less := _tighter(plan)) is not None
        ):
            plan, quoted = less, self._quote(challenge, config, less, looks)
        plan = replace(plan, reading=self._reading_budget(plan, quoted, cap))
        affordable = quoted.affordable_looks(cap)
        if affordable is None:
            return plan
        games = affordable * sum(line.purpose == "comparison" for line in quoted.lines)
        return replace(plan, max_games=games if plan.max_games is None else min(plan.max_games, games))

    def _reading_budget(self, plan: EvaluationPlan, quoted: Quote, cap: int | None) -> ReadingBudget | None:
        """The money for reading, counted by the dearest reader; None without a cap, a price, or anything to read."""
        line = next((line for line in quoted.lines if line.purpose == "features"), None)
        cards = [self.card(name) for name in plan.readers]
        if cap is None or line is None or not line.micro_usd or None in cards:
            return None
        known = [card for card in cards if card is not None]
        input_rate = max(max(card.input, card.cache_write) for card in known)
        output_rate = max(card.output for card in known)
        return ReadingBudget(quoted.for_reading(cap), input_rate, output_rate, line.output_tokens // line.calls)

    def run_quote(self, challenge: Challenge, config: EvalConfig, plan: EvaluationPlan) -> Quote:
        """What a run will probably cost, with as many games as it may have."""
        games = plan.max_games or challenge.submission_count * (challenge.submission_count - 1) * len(plan.judges)
        return self._quote(challenge, config, plan, -(-games // len(plan.judges)))

    def _quote(self, challenge: Challenge, config: EvalConfig, plan: EvaluationPlan, looks: int) -> Quote:
        size = Size(challenge.submission_count, looks)
        thinking = thinking_models(parse_judge(name) for name in plan.models)
        expected = expected_calls(config, size, Jury(plan.models, (), thinking, plan.tokens))
        return quote(size, expected, {name: self.card(name) for name in plan.models})

    def is_costly(self, plan: EvaluationPlan) -> bool:
        return any(self.card(name) != FREE for name in plan.models)

    def card(self, name: str) -> PriceCard | None:
        return price_card(parse_judge(name), parse_prices(self.settings.prices))


@dataclass(slots=True)
class Reservation:
    """The line of the ledger under which one run spends; `unsure` has a line of its own."""

    settings: Settings
    store: SqlStore
    challenge: Challenge
    unsure: int
    line: int | None = None
    most: int = 0

    async def take(self, most: int) -> None:
        """Reserve this in all, under every cap. Raises Deferred over one."""
        run, poster, caps = self.challenge.run, self.challenge.poster, caps_of(self.settings)
        self.line = await self.store.reserve_spend(run, poster, "evaluation", max(0, most - self.unsure), caps)

    async def extend(self, needed: int) -> int:
        """Reserve more for answers that are longer than quoted, at most the challenge's cap; return what it is now."""
        cap = caps_of(self.settings).per_challenge
        wanted = needed + LEAST_RESERVE if cap is None else min(needed + LEAST_RESERVE, cap)
        if wanted >= needed and wanted > self.most:
            await self.take(wanted)
            self.most = wanted
        return self.most


def check_worth_starting(quoted: Quote, cap: int | None) -> None:
    """Raise `Deferred` for a cap that does not even pay for entries of usual size."""
    expected = quoted.models_micro_usd
    if cap is None or expected is None or expected <= cap:
        return
    raise Deferred(
        f"The budget of ${cap / MICRO:.2f} does not pay for {quoted.size.submissions} entries of usual size: about "
        f"${expected / MICRO:.2f}.",
        remedy="Raise CLARA_BUDGET_PER_CHALLENGE_USD, or name a cheaper model in CLARA_JUDGES.",
    )


def _tighter(plan: EvaluationPlan) -> EvaluationPlan | None:
    """The plan with half the bound of an answer; None if less would leave no room to think."""
    tokens = plan.tokens
    if tokens is None or tokens.most // 2 < LEAST_BOUND:
        return None
    return replace(plan, tokens=replace(tokens, most=tokens.most // 2))
