"""Choose fees for a first attempt and for a replacement.

Invariant: a replacement pays at least an eighth more, because nodes refuse less; no fee exceeds five times what the
network asks, nor the cap.
"""

from __future__ import annotations

from dataclasses import dataclass

GWEI = 10**9
LOWEST_TIP = GWEI // 1000
HIGHEST_TIP = 10 * GWEI
TIMES_THE_MARKET = 5


@dataclass(frozen=True, slots=True)
class Fees:
    """Wei per gas."""

    max_fee_per_gas: int
    max_priority_fee_per_gas: int


def first_fees(base_fee: int, tip: int, cap: int) -> Fees:
    """Allow for a doubled base fee, within the cap."""
    tip = min(max(tip, LOWEST_TIP), HIGHEST_TIP, cap)
    return Fees(min(2 * base_fee + tip, cap), tip)


def raised_fees(before: Fees, base_fee: int, tip: int, cap: int) -> Fees | None:
    """Return fees for a replacement, or None if the bounds allow none that a node would take."""
    market = first_fees(base_fee, tip, cap)
    wanted_fee = max(market.max_fee_per_gas, _quarter_more(before.max_fee_per_gas))
    wanted_tip = max(market.max_priority_fee_per_gas, _quarter_more(before.max_priority_fee_per_gas))
    raised = Fees(
        min(wanted_fee, TIMES_THE_MARKET * market.max_fee_per_gas, cap),
        min(wanted_tip, TIMES_THE_MARKET * market.max_priority_fee_per_gas, cap),
    )
    is_enough = raised.max_fee_per_gas >= _eighth_more(before.max_fee_per_gas) and (
        raised.max_priority_fee_per_gas >= _eighth_more(before.max_priority_fee_per_gas)
    )
    return raised if is_enough and raised.max_priority_fee_per_gas <= raised.max_fee_per_gas else None


def _quarter_more(amount: int) -> int:
    return amount + amount // 4 + 1


def _eighth_more(amount: int) -> int:
    return amount + amount // 8 + 1
