"""The estimate that a poster sees."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.support.agents import RULES_CONFIG

from clara_eval.actions.quote import Size, quote_config, quote_posting
from clara_eval.config.eval_config import parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.judge.costs.quote import GAS_MICRO_USD

MODEL = parse_eval_config(
    '{"version": 1, "features": ["novelty"], "criteria": "The more novel approach is better than the known one."}'
)
RULES = parse_eval_config(RULES_CONFIG)
NAMES = ("openai:one", "openai:two", "openai:three", "openai:four")


def judged_by(*names: str, price: str = "") -> Settings:
    prices = ",".join(f"{name}={price}" for name in names) if price else ""
    values = {"CLARA_JUDGES": ",".join(names), "CLARA_PRICES": prices, "OPENAI_API_KEY": "not-a-real-key"}
    return Settings.from_env(values, env_file=None)


def test_rules_cost_only_the_posting_and_unknown_is_not_free() -> None:
    """Measured features compared by rules cost nothing but gas; without a known model and price there is no quote."""
    rules, one = judged_by("rules"), judged_by(NAMES[0])
    assert quote_posting(rules, RULES, 50) == GAS_MICRO_USD
    assert quote_posting(one, RULES, 50) == GAS_MICRO_USD
    assert quote_posting(judged_by(NAMES[0], price="0/0"), MODEL, 50) == GAS_MICRO_USD
    assert quote_posting(rules, MODEL, 50) is None
    assert quote_posting(one, MODEL, 50) is None


def test_what_a_reader_is_mostly_wrong_about_is_said() -> None:
    """A quote names the means and shares that a model would have to read, and is silent about measured ones."""
    speed = '{"name": "mean_speed", "type": "number", "min": 0, "max": 9}'
    read = parse_eval_config(f'{{"version": 1, "features": [{speed}], "criteria": "The faster one is better."}}')
    settings = Settings.from_env({}, env_file=None)
    size = Size(4, 0, 1000)
    told = quote_config(read, settings, judges="local:smollm2", size=size, schedule="auto")
    assert [note for note in told.notes if "often misread mean_speed" in note]
    assert quote_config(RULES, settings, judges="local:smollm2", size=size, schedule="auto").notes == []


def test_a_budget_that_pays_too_little_is_said() -> None:
    """With the default budget, 700 entries get fewer comparisons and 1,000 would be deferred; 25 get all."""
    settings = judged_by(NAMES[0], price="8/40")
    notes = {
        entries: quote_config(MODEL, settings, judges="", size=Size(entries, 0), schedule="auto").notes
        for entries in (25, 700, 1000)
    }
    named = r"CLARA_BUDGET_PER_CHALLENGE_USD \(\$25\.00\)"
    assert [len(found) for found in notes.values()] == [0, 1, 1]
    assert re.fullmatch(rf"{named} pays for [\d,]+ of about 8,050 comparisons\.", notes[700][0])
    assert re.fullmatch(rf"{named} does not pay for 1,000 entries: the round would be deferred\.", notes[1000][0])


def test_judges_in_turn_are_quoted_as_they_are_asked() -> None:
    """The first judge compares all, a further one less; together both are asked as often."""
    prices = {"CLARA_PRICES": "openai:one=1/2,openai:two=10/20", "OPENAI_API_KEY": "not-a-real-key"}
    quotes = {}
    for jury in ("together", "in-turn"):
        settings = Settings.from_env({**prices, "CLARA_JURY": jury}, env_file=None)
        told = quote_config(MODEL, settings, judges="openai:one,openai:two", size=Size(25, 0, 1000), schedule="auto")
        quotes[jury] = {line.judge: line.calls for line in told.quote.lines if line.purpose == "comparison"}
        assert ("in turn" in told.notes[0]) == (jury == "in-turn")
    assert quotes["together"]["openai:one"] == quotes["together"]["openai:two"] == quotes["in-turn"]["openai:one"]
    assert 0 < quotes["in-turn"]["openai:two"] < quotes["in-turn"]["openai:one"]


@given(entries=st.integers(2, 500), judges=st.integers(1, 3))
def test_more_entries_and_more_judges_cost_more(entries: int, judges: int) -> None:
    """The quote grows with everything that has to be asked."""
    sizes = ((entries, judges), (entries + 1, judges), (entries, judges + 1))
    asked = ((judged_by(*NAMES[:count], price="3/15"), size) for size, count in sizes)
    now, more, wider = (quote_posting(settings, MODEL, size) or 0 for settings, size in asked)
    assert 0 < now < more
    assert now < wider
