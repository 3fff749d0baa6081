"""Estimate the cost of an evaluation in millionths of a dollar; None if a price is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

from clara_eval.actions.model_needed import missing_model
from clara_eval.config.eval_config import EvalConfig
from clara_eval.config.settings import Settings
from clara_eval.judge.costs.budgets import caps_of
from clara_eval.judge.costs.prices import PriceCard
from clara_eval.judge.costs.quote import (
    GAS_MICRO_USD,
    Jury,
    Quote,
    Size,
    expected_calls,
    needs_model,
    specification_table,
    to_json,
)
from clara_eval.judge.costs.quote import quote as quote_calls
from clara_eval.judge.provider import JudgeName
from clara_eval.judge.providers.registry import (
    models_of,
    parse_jury,
    price_cards,
    provider_of,
    thinking_models,
    token_limits,
)
from clara_eval.judge.reading import TokenLimits
from clara_eval.ranking import choose_schedule

JURY_NOTE = (
    "Judges who err alike add little: the swapped order of one judge tells as much as a second judge in the same one, "
    "for the same price. How alike they err is measured, and counted."
)
__all__ = [
    "GAS_MICRO_USD",
    "JURY_NOTE",
    "Quote",
    "Size",
    "quote",
    "quote_config",
    "quote_posting",
    "quote_schedule",
    "specification_table",
]


def quote(
    config: EvalConfig, entries: int, jury: Sequence[JudgeName], cards: Mapping[str, PriceCard | None]
) -> int | None:
    """Estimate all pairs in both orders, with the post; one card for each model of the jury."""
    if needs_model(config) and not models_of(jury):
        return None
    return _quote(config, Size(entries, entries * (entries - 1)), jury, cards).total_micro_usd


def quote_posting(settings: Settings, config: EvalConfig, entries: int) -> int | None:
    jury = parse_jury(settings.judges)
    return quote(config, entries, jury, price_cards(settings, jury))


def quote_schedule(
    config: EvalConfig, size: Size, jury: Sequence[JudgeName], settings: Settings, schedule: str
) -> tuple[str, Quote]:
    """Quote a schedule; `auto` is the one that an evaluation would choose within its cap."""
    cards = price_cards(settings, jury)
    pairs = comb(size.submissions, 2)
    limits = token_limits(settings, jury)
    all_looks = _quote(config, replace(size, looks=2 * pairs), jury, cards, limits)
    affordable = all_looks.affordable_looks(caps_of(settings).per_challenge)
    items = [str(number) for number in range(size.submissions)]
    judge = "rules" if config.judge == "rules" or not models_of(jury) else "model"
    chosen = choose_schedule(items, (judge,), max_comparisons=affordable, name=schedule)
    return chosen.name, _quote(config, replace(size, looks=chosen.usual_questions), jury, cards, limits)


@dataclass(frozen=True, slots=True)
class ScheduleQuote:
    """What a schedule costs, and what to say beside it."""

    schedule: str
    quote: Quote
    notes: list[str]
    warnings: list[str]

    @property
    def document(self) -> dict[str, object]:
        return {
            "schedule": self.schedule,
            **to_json(self.quote),
            "notes": self.notes,
            "warnings": self.warnings,
        }


def quote_config(config: EvalConfig, settings: Settings, *, judges: str, size: Size, schedule: str) -> ScheduleQuote:
    """Quote an evaluation stage by stage."""
    jury = parse_jury(judges or settings.judges)
    chosen, found = quote_schedule(config, size, jury, settings, schedule)
    lacking = missing_model(config, judges or settings.judges)
    return ScheduleQuote(chosen, found, [JURY_NOTE] if len(jury) > 1 else [], [lacking] if lacking else [])


def _quote(
    config: EvalConfig,
    size: Size,
    jury: Sequence[JudgeName],
    cards: Mapping[str, PriceCard | None],
    limits: TokenLimits | None = None,
) -> Quote:
    models = models_of(jury)
    batching = {judge.text for judge in models if provider_of(judge).answer_in_batches is not None}
    asked = Jury([judge.text for judge in models], batching, thinking_models(jury), limits)
    return quote_calls(size, expected_calls(config, size, asked), cards)
