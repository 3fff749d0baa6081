"""The ledger of spending.

Invariant: an amount is reserved under all caps in one transaction before anything is paid, and settled afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

KNOWN_AFTER_SECONDS = 7 * 86400
"""A poster is known once an evaluation of his was paid for this long ago."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper bounds in millionths of a dollar; None is no bound."""

    per_challenge: int | None
    per_poster_day: int | None
    per_month: int | None
    new_posters_month: int | None = None
    """Of the month, what posters that are not known yet may take together: a hundred new names cannot empty it."""

    @property
    def tightest(self) -> int | None:
        caps = (self.per_challenge, self.per_poster_day, self.per_month)
        return min((cap for cap in caps if cap is not None), default=None)


@dataclass(frozen=True, slots=True)
class Spend:
    """One line of the ledger: reserved first, settled to the real amount later."""

    id: int
    run: str
    poster: str
    purpose: str
    reserved_micro_usd: int
    settled_micro_usd: int | None
    at: int
