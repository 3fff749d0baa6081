"""The estimate that a poster sees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clara_eval.actions.quote import quote
from clara_eval.eval_config import parse_eval_config
from clara_eval.judge.prices import FREE, PriceCard
from clara_eval.testing.agents import RULES_CONFIG

MODEL = parse_eval_config(
    '{"version": 1, "features": ["novelty"], "criteria": "The more novel approach is better than the known one."}'
)
RULES = parse_eval_config(RULES_CONFIG)
CARD = PriceCard(3_000_000, 15_000_000, 300_000, 3_750_000)
"""Three dollars in, fifteen out, per million tokens."""


def test_rules_are_free_and_unknown_prices_are_not() -> None:
    """Measured features compared by rules cost nothing; without a known model and price there is no quote."""
    assert quote(RULES, 50, [None]) == 0
    assert quote(MODEL, 50, []) is None
    assert quote(MODEL, 50, [FREE]) == 0
    assert quote(MODEL, 50, [CARD, None]) is None


def test_a_usual_round_costs_some_dollars() -> None:
    """Fifty entries and one judge at usual prices are between five and fifty dollars."""
    found = quote(MODEL, 50, [CARD])
    assert found is not None
    assert 5_000_000 < found < 50_000_000


@given(entries=st.integers(2, 500), judges=st.integers(1, 3))
def test_more_entries_and_more_judges_cost_more(entries: int, judges: int) -> None:
    """The quote grows with everything that has to be asked."""
    now = quote(MODEL, entries, [CARD] * judges)
    more = quote(MODEL, entries + 1, [CARD] * judges)
    wider = quote(MODEL, entries, [CARD] * (judges + 1))
    assert now is not None
    assert more is not None
    assert wider is not None
    assert now < more
    assert now < wider
