"""What would have changed an entry's place: its own games turned around, and the ratings made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.core.constants import Winner
from clara_eval.ranking import Result, rate, tally

LARGEST_FIELD = 25
"""Beyond it the ratings are not made again for a page."""

_WINNERS: dict[float, Winner] = {1.0: "first", 0.5: "tie", 0.0: "second"}
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
    own = places.index(account)
    is_paid = own < paid
    turned: list[str] = []
    for rival in sorted((one for one in places if one != account), key=lambda one: abs(places.index(one) - own)):
        if not _counts(account, rival, games, is_paid=is_paid):
            continue
        turned.append(rival)
        place = _order(places, [_turned(game, account, turned, wins=not is_paid) for game in games]).index(account)
        if (place < paid) != is_paid:
            return PlaceChange(tuple(turned), place + 1)
    return PlaceChange((), own + 1)


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
    table = tally(items, [Result(first, second, _WINNERS[points]) for first, second, points in games])
    ratings = dict(zip(items, rate(table, b"").tolist(), strict=True))
    return sorted(places, key=lambda item: (-ratings[item], places.index(item)))
