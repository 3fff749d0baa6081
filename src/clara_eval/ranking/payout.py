"""Shares of the pot in basis points.

In comes the number of winners and, perhaps, their shares; out go shares that sum to 10000. Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.core.errors import BadInput


def checked_payout(winner_count: int, payout_bps: Sequence[int] | None) -> tuple[int, ...]:
    """The shares as given, or an equal split."""
    if winner_count < 1:
        raise BadInput(
            f"{winner_count} winners asked for.", path="winner_count", value=winner_count, remedy="At least one wins."
        )
    payout = tuple(payout_bps) if payout_bps is not None else equal_split(winner_count)
    if len(payout) != winner_count or sum(payout) != 10_000 or min(payout) < 0:
        raise BadInput(
            f"The payout {list(payout)} does not fit {winner_count} winners.",
            path="payout_bps",
            value=payout,
            remedy="Give one share in basis points for each winner; together they are 10000.",
        )
    return payout


def equal_split(winner_count: int) -> tuple[int, ...]:
    """Equal basis points; the last winner takes what does not divide, as in the contract."""
    share = 10_000 // winner_count
    return (*[share] * (winner_count - 1), 10_000 - share * (winner_count - 1))
