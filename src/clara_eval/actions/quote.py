"""What an evaluation will probably cost, for the poster to see before the prize is escrowed.

Comes in: the config, how many entries are expected, and the judges' prices. Goes out: millionths of a dollar, or None
when the models or their prices are not known here: that is never told as free. It is an estimate from typical sizes;
the caps hold whatever it says.
"""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.eval_config import EvalConfig, Feature, typed
from clara_eval.judge.prices import PICO, PriceCard, estimated_tokens

READING_TOKENS = 4_500
"""A typical submission with its instructions; it is read in two views."""
VIEWS = 2
COMPARING_TOKENS = 900
"""The instructions of one comparison, without criteria and values."""
TOKENS_PER_VALUE = 15
VERDICT_TOKENS = 120
ORDERS = 2


def quote(config: EvalConfig, entries: int, cards: Sequence[PriceCard | None]) -> int | None:
    """The estimate for `entries` submissions, all pairs in both orders; one card for each model among the judges."""
    reads = _is_read_by_model(config)
    if not reads and (config.judge == "rules" or not cards):
        return 0
    if not cards or any(card is None for card in cards):
        return None
    known = [card for card in cards if card is not None]
    values = TOKENS_PER_VALUE * len(config.features)
    total = 0
    if reads:
        total += VIEWS * entries * (known[0].input * READING_TOKENS + known[0].output * (values + VERDICT_TOKENS))
    if config.judge != "rules":
        asked = COMPARING_TOKENS + estimated_tokens(config.criteria) + 2 * values
        games = ORDERS * entries * (entries - 1) // 2
        total += sum(games * (card.input * asked + card.output * VERDICT_TOKENS) for card in known)
    return -(-total // PICO)


def _is_read_by_model(config: EvalConfig) -> bool:
    known = [item if isinstance(item, Feature) else typed(item.name) for item in config.features]
    return any(feature is None or feature.source == "llm" for feature in known)
