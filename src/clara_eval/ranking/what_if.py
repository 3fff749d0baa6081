"""What would have changed an entry's place: its own games turned around, and the ratings made again.

Comes in: the recorded games as (first, second, points of the first), the places as they were posted, how many are paid.
Goes out: the fewest nearest rivals whose games with this entry would have had to end the other way for it to cross the
pay line, and the place it would have then. Must hold: only this entry's own games are turned; the same games rated
again name the entries that were paid, else nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clara_eval.ranking.elo import elo

LARGEST_FIELD = 25
"""Beyond it the ratings are not made again for a page."""

Scored = tuple[str, str, float]
"""Shown first, shown second, points of the first."""


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """These rivals' games turned, and the place after it; no rivals where nothing of its own would have done."""

    rivals: tuple[str, ...]
    place: int


def turning_point(account: str, places: Sequence[str], games: Sequence[Scored], paid: int) -> PlaceChange | None:
    """None where the question cannot be answered from these games."""
    if account not in places or not 0 < paid < len(places) <= LARGEST_FIELD or not games:
        return None
    if set(_order(places, games)[:paid]) != set(places[:paid]):
        return None
    is_paid = places.index(account) < paid
    turned: list[str] = []
    for rival in _nearest(account, places):
        if not _counts(account, rival, games, is_paid=is_paid):
            continue
        turned.append(rival)
        place = _order(places, [_turned(game, account, turned, wins=not is_paid) for game in games]).index(account)
        if (place < paid) != is_paid:
            return PlaceChange(tuple(turned), place + 1)
    return PlaceChange((), places.index(account) + 1)


def _nearest(account: str, places: Sequence[str]) -> list[str]:
    own = places.index(account)
    return sorted((one for one in places if one != account), key=lambda one: abs(places.index(one) - own))


def _counts(account: str, rival: str, games: Sequence[Scored], *, is_paid: bool) -> bool:
    """Whether a game of the two could have ended better, or worse for one that is paid."""
    own = [
        points if first == account else 1 - points
        for first, second, points in games
        if {first, second} == {account, rival}
    ]
    return any(points > 0 if is_paid else points < 1 for points in own)


def _turned(game: Scored, account: str, rivals: Sequence[str], *, wins: bool) -> Scored:
    first, second, points = game
    if first == account and second in rivals:
        return first, second, float(wins)
    if second == account and first in rivals:
        return first, second, float(not wins)
    return first, second, points


def _order(places: Sequence[str], games: Sequence[Scored]) -> list[str]:
    """By the rating of these games; equal ones as they were posted."""
    items = sorted(places)
    index = {item: number for number, item in enumerate(items)}
    first = np.array([index[one] for one, _, _ in games])
    second = np.array([index[other] for _, other, _ in games])
    ratings = elo(len(items), first, second, np.array([points for *_, points in games]), b"")
    return sorted(places, key=lambda item: (-ratings[index[item]], places.index(item)))
