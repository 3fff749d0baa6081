"""Amounts of dollars: in millionths, and as people write them."""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal
from typing import overload

MICRO = 1_000_000


def micro_usd(usd: float | None) -> int | None:
    """Convert dollars to millionths, rounded down; None, no bound, stays None."""
    if usd is None:
        return None
    return int((Decimal(str(usd)) * MICRO).to_integral_value(rounding=ROUND_DOWN))


@overload
def usd(micro: int) -> str: ...
@overload
def usd(micro: int | None) -> str | None: ...
def usd(micro: int | None) -> str | None:
    """Write millionths of a dollar as a decimal number; None, unknown, stays None."""
    return None if micro is None else f"{micro // MICRO}.{micro % MICRO:06d}"
