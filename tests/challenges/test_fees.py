"""The three fee modes, to the unit."""

from __future__ import annotations

from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.challenges.fees import FeeMode, dollars, fee
from clara_eval.core.errors import BadInput

USDC = 10**6
pools = st.integers(min_value=1, max_value=10**15)
decimals_of = st.integers(min_value=0, max_value=18)


@pytest.mark.parametrize(
    ("pool", "amount"),
    [
        (50 * USDC, USDC),
        (100 * USDC, USDC),
        (100 * USDC + 199, USDC + 1),
        (1234_567890, 12_345678),
        (5000 * USDC, 50 * USDC),
        (5_000_000 * USDC, 50 * USDC),
    ],
)
def test_prize_pool_fee_is_one_percent_between_its_bounds(pool: int, amount: int) -> None:
    """One percent, at least $1, at most $50, fractions of a unit to the poster."""
    found = fee("prize_pool", pool, 6, None)
    assert (found.amount, found.escrow, found.total) == (amount, pool - amount, pool)


@given(mode=st.sampled_from(get_args(FeeMode)), pool=pools, decimals=decimals_of, quote=st.integers(0, 10**9))
def test_every_fee_adds_up(mode: FeeMode, pool: int, decimals: int, quote: int) -> None:
    """What is paid is what is escrowed plus the fee, nothing is negative, and something is always escrowed."""
    try:
        found = fee(mode, pool, decimals, quote)
    except BadInput:
        assert mode == "prize_pool"
        assert pool <= 10**decimals
        return
    assert found.total == found.escrow + found.amount
    assert found.escrow > 0
    assert found.amount >= 0


@given(pool=pools, decimals=decimals_of)
def test_prize_pool_fee_keeps_its_bounds(pool: int, decimals: int) -> None:
    """Never under $1, never over $50, and between them within one unit of 1 %."""
    dollar = 10**decimals
    if pool <= dollar:
        with pytest.raises(BadInput, match="leaves nothing"):
            fee("prize_pool", pool, decimals)
        return
    amount = fee("prize_pool", pool, decimals).amount
    assert dollar <= amount <= 50 * dollar
    if dollar < amount < 50 * dollar:
        assert 0 <= Fraction(pool, 100) - amount < 1


@given(quote=st.integers(0, 10**12), decimals=decimals_of)
def test_poster_fee_covers_the_quote_within_one_unit(quote: int, decimals: int) -> None:
    """The poster pays the quote, rounded up to the token's unit, and the whole pool is escrowed."""
    found = fee("poster", USDC, decimals, quote)
    exact = Fraction(quote * 10**decimals, 10**6)
    assert 0 <= found.amount - exact < 1
    assert found.escrow == USDC


def test_platform_takes_nothing() -> None:
    """In platform mode the pool is escrowed whole, whatever the quote."""
    found = fee("platform", 7, 6, 10**9)
    assert (found.amount, found.escrow, found.total) == (0, 7, 7)
    assert "platform pays" in found.shown


def test_unknown_quote_is_not_free() -> None:
    """A judge without a price cannot be charged to the poster as if it cost nothing."""
    with pytest.raises(BadInput, match="price is not known"):
        fee("poster", USDC, 6, None)


@pytest.mark.parametrize(("pool", "decimals"), [(0, 6), (-1, 6), (5, -1), (5, 99)])
def test_nonsense_is_refused(pool: int, decimals: int) -> None:
    """Empty pools and impossible decimals are named and refused."""
    with pytest.raises(BadInput):
        fee("platform", pool, decimals)


def test_the_poster_is_told() -> None:
    """The sentence for the poster names the amount without loss."""
    assert fee("prize_pool", 1234_567890, 6).shown == (
        "The evaluation fee of $12.345678 is taken from the prize pool before escrow."
    )
    assert dollars(150, 2) == "1.50"
    assert dollars(3, 0) == "3.00"
