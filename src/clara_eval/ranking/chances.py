"""How sure the order is: intervals, chances of places, the pay line and misplaced money, all from the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clara_eval.ranking.model import Strengths
from clara_eval.ranking.results import Floats, Ints

DRAWS = 2000
IN_95, IN_90 = (50, 1949), (100, 1899)  # positions among the sorted draws
CLEAR = 0.90  # chance of the set: right in 97 of 100 such rounds of simulated judges
TOSS_UP = 0.60  # chance of the one at the line against the next: right in 55 of 100
EQUAL = 1.0  # logits: of two closer than this the judge prefers the better one in fewer than 73 of 100 looks
DECIMALS = 4
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
    tied: bool = False
    """Whether the two have equal records."""

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
    """For each item: half width of the 95 % interval of θ, chances of places, 90 % range of ranks."""

    half_width: Floats
    p_top: Floats
    p_rank: Floats
    rank_low: Ints
    rank_high: Ints
    places: Ints
    """Place of every item (columns) in every draw (rows), from 0."""
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


def count_chances(strengths: Strengths, winner_count: int) -> Chances:
    draws = strengths.draws(DRAWS)
    size = draws.shape[1]
    places = np.argsort(np.argsort(-draws, axis=1, kind="stable"), axis=1)
    centred = np.sort(draws - draws.mean(axis=1, keepdims=True), axis=0)  # the common level of all means nothing
    ranks = np.sort(places, axis=0) + 1
    shown = range(min(size, winner_count + 2))
    return Chances(
        half_width=(centred[IN_95[1]] - centred[IN_95[0]]) / 2,
        p_top=np.round((places < winner_count).sum(axis=0) / DRAWS, DECIMALS),
        p_rank=np.round(np.stack([np.mean(places == place, axis=0) for place in shown], axis=1), DECIMALS),
        rank_low=ranks[IN_90[0]],
        rank_high=ranks[IN_90[1]],
        places=places,
        draws=draws,
    )


def margins(
    items: Sequence[str], order: Sequence[int], ratings: Floats, chances: Chances, count: int
) -> tuple[PayMargin, ...]:
    """One margin for each of `count` paid places; the last one is the pay line."""
    places, draws = chances.places, chances.draws
    deepest = np.maximum.accumulate(places[:, list(order[:count])], axis=1)
    found = []
    for place in range(1, min(count, len(order)) + 1):
        if place == len(order):
            found.append(PayMargin(place, 1.0, "clear", items[order[-1]], "", 1.0))
            continue
        i, j = order[place - 1], order[place]
        tied = bool(ratings[i] == ratings[j])
        ahead = 0.5 if tied else round(float(np.mean(places[:, i] < places[:, j])), DECIMALS)
        chance = round(float(np.mean(deepest[:, place - 1] < place)), DECIMALS)
        close = round(float(np.mean(np.abs(draws[:, i] - draws[:, j]) < EQUAL)), DECIMALS)
        found.append(PayMargin(place, ahead, word_for(ahead, chance, close), items[i], items[j], chance, tied))
    return tuple(found)


def misallocation(places: Ints, order: Sequence[int], payout_bps: Sequence[int]) -> float:
    """The share of the pot expected at wrong addresses: paid to others than the draws would pay."""
    prizes = np.zeros(max(places.shape[1], len(payout_bps)))
    prizes[: len(payout_bps)] = payout_bps
    paid = np.zeros(places.shape[1])
    paid[list(order)] = prizes[: len(order)]
    return round(float(np.abs(prizes[places] - paid).sum(axis=1).mean()) / 2 / float(prizes.sum()), DECIMALS)
