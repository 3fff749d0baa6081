"""Shares of the pot in basis points."""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.core.errors import BadInput


def checked_payout(winner_count: int, payout_bps: Sequence[int] | None) -> tuple[int, ...]:
    """The shares as given, or an equal split in which the last winner takes the rest, as in the contract."""
    if winner_count < 1:
        told = f"{winner_count} winners asked for."
        raise BadInput(told, path="winner_count", value=winner_count, remedy="At least one wins.")
    share = 10_000 // winner_count
    equal = (*[share] * (winner_count - 1), 10_000 - share * (winner_count - 1))
    payout = equal if payout_bps is None else tuple(payout_bps)
    if len(payout) != winner_count or sum(payout) != 10_000 or min(payout) < 0:
        told = f"The payout {list(payout)} does not fit {winner_count} winners."
        remedy = "Give one share in basis points for each winner; together they are 10000."
        raise BadInput(told, path="payout_bps", value=payout, remedy=remedy)
    return payout
