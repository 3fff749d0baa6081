"""What an evaluation will probably cost, for the poster to see before the prize is escrowed.

Comes in: the config, how many entries are expected, and the judges with their prices. Goes out: millionths of a dollar
for all pairs in both orders, or None when the models or their prices are not known here: that is never told as free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clara_eval.eval_config import EvalConfig, compile_schema
from clara_eval.judge.extraction import asked_features
from clara_eval.judge.jury import JudgeName
from clara_eval.judge.prices import PriceCard
from clara_eval.judge.quote import Size
from clara_eval.judge.quote import quote as quote_judges


def quote(
    config: EvalConfig, entries: int, jury: Sequence[JudgeName], cards: Mapping[str, PriceCard | None]
) -> int | None:
    """The estimate, with the posting of scores; one card for each model in the jury."""
    if _needs_model(config) and all(judge.provider == "rules" for judge in jury):
        return None
    return quote_judges(config, Size(entries, entries * (entries - 1)), jury, cards).total_micro_usd


def _needs_model(config: EvalConfig) -> bool:
    """Whether rules alone cannot do it: something has to be read, typed or weighed by a model."""
    schema, untyped = compile_schema(config)
    is_silent = config.judge != "rules" and any(feature.better is None for feature in schema.judged)
    return bool(untyped) or bool(asked_features(schema)) or is_silent
