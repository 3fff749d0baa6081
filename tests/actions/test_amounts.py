"""Amounts, moments and shares as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.actions.amounts import (
    parse_amount,
    parse_deadline,
    parse_payout,
    parse_span,
    show_amount,
)
from clara_eval.chain.model import PrizeToken
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput

USDC = PrizeToken(Address("0x" + "11" * 20), "USDC", 6)
NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("100", 100_000_000),
        ("12.5 USDC", 12_500_000),
        ("$1,000.01", 1_000_010_000),
        ("0.000001 usdc", 1),
        ("7.0000000", 7_000_000),
    ],
)
def test_amounts_are_read_exactly(text: str, units: int) -> None:
    """A human amount becomes its base units, to the unit."""
    assert parse_amount(text, USDC) == units


@pytest.mark.parametrize("text", ["", "-5", "1e3", "0x10", "1.0000001", "5 ETH", "ten", "1,00", "1 USDC USDC", "١٠"])
def test_amounts_that_are_not_clear_are_refused(text: str) -> None:
    """Negative, finer than the unit, another token, or no number at all: refused, never rounded."""
    with pytest.raises(BadInput):
        parse_amount(text, USDC)


@pytest.mark.parametrize("text", ["$100", "100 USD", "$100 WETH"])
def test_dollars_are_no_amount_of_a_token_of_unknown_worth(text: str) -> None:
    """A hundred dollars are not a hundred of whatever the prize token is."""
    weth = PrizeToken(Address("0x" + "22" * 20), "WETH", 18)
    with pytest.raises(BadInput, match="prize token is WETH"):
        parse_amount(text, weth, is_dollar=False)
    assert parse_amount("2 WETH", weth, is_dollar=False) == 2 * 10**18


@given(units=st.integers(0, 10**24), decimals=st.integers(0, 18))
def test_a_shown_amount_reads_back_as_itself(units: int, decimals: int) -> None:
    """What is shown to a person, typed in again, is the same amount."""
    token = PrizeToken(Address("0x" + "11" * 20), "TOK", decimals)
    assert parse_amount(show_amount(units, token), token) == units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7 days", 604800), ("36h", 129600), ("1d 12h", 129600), ("90 minutes", 5400), ("in 2 weeks", 1209600)],
)
def test_spans_are_counted_from_now(text: str, seconds: int) -> None:
    """A relative deadline is counted from the chain's time."""
    assert parse_deadline(text, NOW) == NOW + seconds


def test_dates_need_a_time_zone_and_a_future() -> None:
    """An ISO date is taken with its zone; without one, in the past, or in another century it is refused."""
    assert parse_deadline("2027-02-01T12:00:00Z", NOW) == 1_801_483_200
    assert parse_deadline("2027-02-01T14:00:00+02:00", NOW) == 1_801_483_200
    for wrong in (
        "2027-02-01T12:00:00",
        "2020-01-01T00:00:00Z",
        "0 days",
        "soon",
        "3 fortnights",
        "9999-01-01T00:00:00Z",
        "",
    ):
        with pytest.raises(BadInput):
            parse_deadline(wrong, NOW)
    assert parse_span("3 fortnights") is None
    assert parse_span("500ms") is None


@given(count=st.integers(1, 25))
def test_equal_shares_pay_everything(count: int) -> None:
    """An equal split sums to the whole prize; the last takes what does not divide, as in the contract."""
    shares = parse_payout("equal", count)
    assert sum(shares) == 10000
    assert set(shares[:-1]) <= {10000 // count}


def test_splits_by_name_and_by_number() -> None:
    """Named splits and basis points give the same kind of answer."""
    assert parse_payout("top3") == (6000, 2500, 1500)
    assert sum(parse_payout("top5")) == 10000
    assert parse_payout("5000,3000,2000") == parse_payout([5000, 3000, 2000]) == (5000, 3000, 2000)


@pytest.mark.parametrize(
    ("payout", "count"),
    [
        ("equal", None),
        ("top9", None),
        ([5000, 4000], None),
        ([10000, 0], None),
        ("top3", 2),
        ([400] * 26, None),
        ("", None),
    ],
)
def test_splits_that_do_not_pay_out_are_refused(payout: str | list[int], count: int | None) -> None:
    """A split that leaves money, pays nothing to somebody, or disagrees with the winner count is refused."""
    with pytest.raises(BadInput):
        parse_payout(payout, count)
