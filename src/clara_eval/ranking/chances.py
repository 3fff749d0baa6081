"""How sure the order is: intervals, chances of places, the pay line and misplaced money, all from the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clara_eval.ranking.model import Strengths
from clara_eval.ranking.results import Floats, Ints

DRAWS = 2000  # a chance of one half is known to .011
IN_90 = (100, 1899)  # positions among the sorted draws
CLEAR = 0.90  # chance of the set: right in 97 of 100 such rounds of simulated judges
TOSS_UP = 0.60  # chance of the one at the line against the next: right in 55 of 100
EQUAL = 1.0  # logits: of two closer than this the judge prefers the better one in fewer than 73 of 100 looks
DECIMALS = 4  # of a chance: finer than the draws
_CERTAIN = 1e-9  # logits: below every difference that counts; lots decide between equals
Word = Literal["toss-up", "uncertain", "about equal", "clear"]


@dataclass(frozen=True, slots=True)
class PayMargin:
    """A paid place: chance that its item is better than the next, and that the items down to it are the true best."""

    place: int
    probability: float
    word: Word
    item: str
    next_item: str
    set_chance: float
    tied: bool = False  # whether the two have equal records

    @property
    def sentence(self) -> str:
        if not self.next_item:
            return "All ranked entries are paid."
        chance, at = f"{100 * self.probability:.0f} %", f"{self.next_item} at place {self.place}"
        who = f"{self.item} has the same record as {at}" if self.tied else f"{self.item} over {at}: {chance}"
        best = "this is the best one" if self.place == 1 else f"these are the best {self.place}"
        if self.word == "about equal":
            return f"{who}; by this judge, the two are about equally good, and {best} by {100 * self.set_chance:.0f} %."
        return f"{who}, {self.word}; by this judge, {best} with a chance of {100 * self.set_chance:.0f} %."


@dataclass(frozen=True, slots=True)
class Chances:
    """For each item: chances of places, 90 % range of ranks."""

    p_top: Floats
    p_rank: Floats
    rank_low: Ints
    rank_high: Ints
    places: Ints  # place of every item (columns) in every draw (rows), from 0
    draws: Floats


def word_for(probability: float, set_chance: float, close: float) -> Word:
    """Of two neighbours at a prize: chance of the first, chance of the set, chance that they are nearly equal."""
    if set_chance >= CLEAR and probability >= TOSS_UP:
        return "clear"
    if close >= CLEAR:
        return "about equal"
    return "toss-up" if probability < TOSS_UP else "uncertain"


def without_noise(strengths: Strengths, theta: Floats) -> Strengths:
    """These strengths, known for certain: another round would give the same verdicts."""
    return Strengths(theta, strengths.side, _CERTAIN**2 * np.eye(len(strengths.covariance)))


def draw_places(strengths: Strengths) -> tuple[Floats, Ints]:
    """Draw strengths from the posterior, one row each; and the place of every item in every draw, from 0."""
    draws = strengths.draws(DRAWS)
    places = np.empty(draws.shape, dtype=np.int64)
    order = np.argsort(-draws, axis=1, kind="stable")
    np.put_along_axis(places, order, np.arange(draws.shape[1])[None], axis=1)
    return draws, places


def count_chances(strengths: Strengths, winner_count: int) -> Chances:
    draws, places = draw_places(strengths)
    size = draws.shape[1]
    ranks = np.sort(places, axis=0) + 1
    shown = range(min(size, winner_count + 2))
    return Chances(
        p_top=np.round((places < winner_count).sum(axis=0) / DRAWS, DECIMALS),
        p_rank=np.round(np.stack([np.mean(places == place, axis=0) for place in shown], axis=1), DECIMALS),
        rank_low=ranks[IN_90[0]],
        rank_high=ranks[IN_90[1]],
        places=places,
        draws=draws,
    )


def set_chances(places: Ints, order: Sequence[int], count: int) -> Floats:
    """For each of `count` places: how often the items down to it are the best, in any order."""
    deepest = np.maximum.accumulate(places[:, list(order[:count])], axis=1)
    return np.asarray((deepest <= np.arange(deepest.shape[1])).mean(axis=0).round(DECIMALS))


def margins(
    items: Sequence[str], order: Sequence[int], ratings: Floats, chances: Chances, count: int
) -> tuple[PayMargin, ...]:
    """One margin for each of `count` paid places; the last one is the pay line."""
    places, draws = chances.places, chances.draws
    found, sets = [], set_chances(places, order, count)
    for place in range(1, min(count, len(order)) + 1):
        if place == len(order):
            found.append(PayMargin(place, 1.0, "clear", items[order[-1]], "", 1.0))
            continue
        i, j = order[place - 1], order[place]
        tied = bool(ratings[i] == ratings[j])
        ahead = 0.5 if tied else round(float(np.mean(places[:, i] < places[:, j])), DECIMALS)
        chance = float(sets[place - 1])
        close = round(float(np.mean(np.abs(draws[:, i] - draws[:, j]) < EQUAL)), DECIMALS)
        found.append(PayMargin(place, ahead, word_for(ahead, chance, close), items[i], items[j], chance, tied))
    return tuple(found)


def due_shares(places: Ints, payout_bps: Sequence[int]) -> Floats:
    """The share of the pot that each item (columns) is due in each draw (rows)."""
    prizes = np.zeros(max(places.shape[1], len(payout_bps)))
    prizes[: len(payout_bps)] = payout_bps
    return np.asarray(prizes[places] / sum(payout_bps))


def misallocation(places: Ints, order: Sequence[int], payout_bps: Sequence[int]) -> float:
    """The share of the pot expected at wrong addresses: paid to others than the draws would pay."""
    paid = due_shares(np.argsort(order)[None], payout_bps)
    return round(float(np.abs(due_shares(places, payout_bps) - paid).sum(axis=1).mean()) / 2, DECIMALS)
