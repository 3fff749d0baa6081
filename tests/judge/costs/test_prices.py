"""Prices and the budget: amounts to the millionth, and a cap that holds whatever runs at once."""

from __future__ import annotations

import asyncio
from decimal import ROUND_CEILING

import pytest
from genai_prices import Usage, calc_price
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.core.errors import ConfigError, OutOfBudget
from clara_eval.judge.costs.budgets import FREE, PriceCard, RunBudget, parse_prices
from clara_eval.judge.port import Answer, Prompt
from clara_eval.judge.provider import parse_judge, price_card

SONNET = "anthropic:claude-sonnet-4-5"
CARD = PriceCard(input=3_000_000, output=15_000_000, cached=300_000, cache_write=3_750_000)
PROMPT = Prompt("comparison", "s" * 100, "u" * 100, "{}", 100, "0x")


@given(
    fresh=st.integers(0, 400_000),
    cached=st.integers(0, 9_000),
    written=st.integers(0, 9_000),
    out=st.integers(0, 9_000),
)
def test_a_card_agrees_with_the_price_table(fresh: int, cached: int, written: int, out: int) -> None:
    """Cached, written and long-context tokens cost what the public table says, rounded up to the millionth."""
    card = price_card(parse_judge(SONNET), {})
    assert card is not None
    total = fresh + cached + written
    usage = Usage(input_tokens=total, output_tokens=out, cache_read_tokens=cached, cache_write_tokens=written)
    wanted = calc_price(usage, "claude-sonnet-4-5", provider_id="anthropic").total_price * 1_000_000
    answer = Answer("", "m", "end", total, out, cached, written)
    assert card.cost(answer) == int(wanted.to_integral_value(ROUND_CEILING))
    assert card.cost(answer, batch=True) == int((wanted / 2).to_integral_value(ROUND_CEILING))


def test_unknown_is_not_free() -> None:
    """An unknown model or address has no price; our own machine has the price nothing; a given price wins."""
    assert price_card(parse_judge("openai:no-such-model"), {}) is None
    assert price_card(parse_judge("openai:gpt-4o@http://127.0.0.1:8000/v1"), {}) is None
    assert price_card(parse_judge("local:smollm2"), {}) == price_card(parse_judge("rules"), {}) == FREE
    named = "openai:m@http://h/v1"
    given_prices = parse_prices(f"{named}=0.1/0.4, {SONNET}=1/2")
    assert price_card(parse_judge(named), given_prices) == PriceCard(100_000, 400_000, 100_000, 100_000)
    assert price_card(parse_judge(SONNET), given_prices) == PriceCard(1_000_000, 2_000_000, 1_000_000, 1_000_000)


def test_a_price_is_found_with_and_without_a_slash() -> None:
    """The address of a price and of a judge may end in a slash or not: it is the same judge."""
    for judge, price in (
        ("openai:m@http://h/v1/", "openai:m@http://h/v1"),
        ("openai:m@http://h/v1", "openai:m@http://h/v1/"),
    ):
        assert price_card(parse_judge(judge), parse_prices(f"{price}=1/2")) is not None


@pytest.mark.parametrize("text", ["m", "m=1", "m=1/2/3", "m=a/b", "m=-1/2", "=1/2", "m=1/0/"])
def test_bad_prices(text: str) -> None:
    """A price that cannot be read is refused with an example."""
    with pytest.raises(ConfigError, match="CLARA_PRICES"):
        parse_prices(text)


@given(st.text(max_size=300), st.integers(0, 3000))
def test_the_worst_case_is_not_exceeded(user: str, out: int) -> None:
    """No answer within the token limit, from a tokenizer that makes at most a token a byte, costs more than reserved."""
    prompt = Prompt("features", "s", user, "{}", 3000, "0x")
    tokens = len(user.encode()) + 1 + 2 + 1024
    assert CARD.cost(Answer("", "m", "end", tokens, out, 0, tokens)) <= CARD.worst(prompt)


async def test_the_cap_holds_under_concurrency() -> None:
    """Many callers at once never have more spent and reserved than the cap; the ones that do not fit are deferred."""
    worst = CARD.worst(PROMPT)
    budget = RunBudget(cap_micro_usd=worst * 5)
    answer = Answer("", "m", "end", 200, 10)
    cost = CARD.cost(answer)
    highest = 0
    deferred = 0

    async def call() -> None:
        nonlocal highest, deferred
        try:
            reserved = await budget.reserve("j", CARD, PROMPT)
        except OutOfBudget:
            deferred += 1
            return
        highest = max(highest, budget.spent + budget.reserved)
        await asyncio.sleep(0)
        budget.charge(reserved, cost)

    await asyncio.gather(*(call() for _ in range(500)))
    assert highest <= worst * 5
    assert budget.reserved == 0
    assert budget.spent - budget.lost == budget.spent == (500 - deferred) * cost
    assert deferred > 0
    assert budget.spent + worst > worst * 5, "nobody is deferred while there is still room"


async def test_what_earlier_runs_spent_counts() -> None:
    """After a restart the budget is as full as it was left."""
    budget = RunBudget(cap_micro_usd=CARD.worst(PROMPT) + 10, spent=11)
    with pytest.raises(OutOfBudget, match="used up"):
        await budget.reserve("j", CARD, PROMPT)


async def test_lost_calls_count_against_the_cap() -> None:
    """A call that was sent and never answered is spent at its worst; a refused one costs nothing."""
    budget = RunBudget(cap_micro_usd=CARD.worst(PROMPT) * 2)
    budget.charge_unanswered(await budget.reserve("j", CARD, PROMPT))
    assert budget.spent == budget.lost == CARD.worst(PROMPT)
    budget.release(await budget.reserve("j", CARD, PROMPT))
    assert (budget.spent, budget.reserved) == (CARD.worst(PROMPT), 0)


async def test_no_price_and_a_cap() -> None:
    """A capped budget pays for no model of unknown price and says how to name one; without a cap it is counted apart."""
    with pytest.raises(ConfigError, match="CLARA_PRICES"):
        await RunBudget(cap_micro_usd=10).reserve("openai:x", None, PROMPT)
    free = RunBudget(cap_micro_usd=None)
    free.charge(await free.reserve("openai:x", None, PROMPT), None)
    assert (free.spent, free.reserved) == (0, 0)
