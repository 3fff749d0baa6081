"""Fees: enough to be taken, never without bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clara_eval.chain.transaction import GWEI, Fees

CAP = 50 * GWEI


def test_twenty_raises_stop_at_five_times_the_market() -> None:
    """However often a stuck transaction is raised, it never pays more than five times what the network asks."""
    base, tip = GWEI, GWEI // 10
    market = Fees.first(base, tip, CAP)
    fees, raises = market, 0
    for _ in range(20):
        raised = fees.raised(Fees.first(base, tip, CAP), CAP)
        if raised is None:
            break
        fees, raises = raised, raises + 1
    assert 4 <= raises < 20
    assert fees.max_fee_per_gas <= 5 * market.max_fee_per_gas
    assert fees.max_priority_fee_per_gas <= 5 * market.max_priority_fee_per_gas


def test_a_raise_follows_a_dearer_market_at_once() -> None:
    """When the base fee is ten times higher the replacement pays it in one step."""
    before = Fees.first(GWEI, GWEI // 10, CAP)
    raised = before.raised(Fees.first(10 * GWEI, GWEI // 10, CAP), CAP)
    assert raised is not None
    assert raised.max_fee_per_gas >= 20 * GWEI


AMOUNT = st.integers(0, 200 * GWEI)


@given(AMOUNT, AMOUNT, AMOUNT, AMOUNT, st.integers(GWEI // 1000, 200 * GWEI))
def test_bounds_hold_for_every_market(base: int, tip: int, later_base: int, later_tip: int, cap: int) -> None:
    """A tip never exceeds the fee, nothing exceeds the cap, and a replacement pays an eighth more in both parts."""
    before = Fees.first(base, tip, cap)
    after = before.raised(Fees.first(later_base, later_tip, cap), cap)
    for fees in [before, *([after] if after else [])]:
        assert 0 < fees.max_priority_fee_per_gas <= fees.max_fee_per_gas <= cap
    if after is not None:
        assert after.max_fee_per_gas > before.max_fee_per_gas * 9 // 8
        assert after.max_priority_fee_per_gas > before.max_priority_fee_per_gas * 9 // 8


def test_at_the_cap_there_is_no_raise() -> None:
    """A transaction that already pays the cap is left as it is."""
    assert Fees(CAP, GWEI).raised(Fees.first(100 * GWEI, GWEI, CAP), CAP) is None
