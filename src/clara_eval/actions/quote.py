"""What an evaluation will probably cost: for the poster before the prize is escrowed, and stage by stage.

Comes in: the config, how many entries are expected, and the judges with their prices. Goes out: a `Quote`, or its total
in millionths of a dollar; None when the models or their prices are not known here: that is never told as free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import comb

from clara_eval.config.eval_config import EvalConfig
from clara_eval.config.settings import Settings
from clara_eval.judge.costs.caps import caps_of
from clara_eval.judge.costs.prices import PriceCard
from clara_eval.judge.costs.quote import Quote, Size
from clara_eval.judge.costs.quote import quote as quote_calls
from clara_eval.judge.expected_calls import Jury, expected_calls, needs_model
from clara_eval.judge.limits import TokenLimits
from clara_eval.judge.provider import JudgeName
from clara_eval.judge.providers.registry import (
    models_of,
    parse_jury,
    price_cards,
    provider_of,
    thinking_models,
    token_limits,
)
from clara_eval.ranking import choose_schedule

JURY_NOTE = (
    "Judges who err alike add little: the swapped order of one judge tells as much as a second judge in the same one, "
    "for the same price. How alike they err is measured, and counted."
)


def quote(
    config: EvalConfig, entries: int, jury: Sequence[JudgeName], cards: Mapping[str, PriceCard | None]
) -> int | None:
    """The estimate for all pairs in both orders, with the posting of scores; one card for each model in the jury."""
    if needs_model(config) and not models_of(jury):
        return None
    return _quote(config, Size(entries, entries * (entries - 1)), jury, cards).total_micro_usd


def quote_posting(settings: Settings, config: EvalConfig, entries: int) -> int | None:
    """The estimate with the judges of the settings."""
    jury = parse_jury(settings.judges)
    return quote(config, entries, jury, price_cards(settings, jury))


def quote_schedule(
    config: EvalConfig, size: Size, jury: Sequence[JudgeName], settings: Settings, schedule: str
) -> tuple[str, Quote]:
    """The quote of a schedule; for `auto` of the one that an evaluation would choose within the cap per challenge."""
    cards = price_cards(settings, jury)
    pairs = comb(size.submissions, 2)
    limits = token_limits(settings, jury)
    all_looks = _quote(config, replace(size, looks=2 * pairs), jury, cards, limits)
    affordable = all_looks.affordable_looks(caps_of(settings).per_challenge)
    items = [str(number) for number in range(size.submissions)]
    judge = "rules" if config.judge == "rules" or not models_of(jury) else "model"
    chosen = choose_schedule(items, (judge,), max_comparisons=affordable, name=schedule)
    return chosen.name, _quote(config, replace(size, looks=chosen.usual_questions), jury, cards, limits)


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
