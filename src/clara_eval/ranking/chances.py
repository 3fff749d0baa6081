"""Estimate how certain a ranking is, from posterior draws: rank intervals, pay margins, misallocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clara_eval.ranking.model import Strengths
from clara_eval.ranking.results import Floats, Ints

DRAWS = 2000  # standard error of a chance of one half: 0.011
INTERVAL_90 = (100, 1899)  # positions of its ends in the sorted draws
CLEAR = 0.90  # least chance of the paid set; it was right in 97 % of such simulated rounds (bench/ranking.py)
TOSS_UP = 0.60  # a lower chance against the next item is a toss-up: right in 55 % of such rounds
EQUAL = 1.0  # logits; of two items closer than this, the judge prefers the better one in less than 73 % of cases
DECIMALS = 4  # of a chance; finer than 1 / DRAWS
_CERTAIN = 1e-9  # logits, standard deviation: below all real differences, so only equals are ordered at random
Word = Literal["toss-up", "uncertain", "about equal", "clear"]


@dataclass(frozen=True, slots=True)
class PayMargin:
    """How certain a paid place is: against the next item, and of the set of items down to it."""

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
        best = "it is the best" if self.place == 1 else f"these {self.place} are the best"
        how = "; by this judge, the two are about equally good" if self.word == "about equal" else f", {self.word}"
        return f"{who}{how}. Chance that {best}, by this judge: {100 * self.set_chance:.0f} %."


@dataclass(frozen=True, slots=True)
class Chances:
    """Chances of places and the 90 % interval of ranks of each item."""

    p_top: Floats
    p_rank: Floats
    rank_low: Ints
    rank_high: Ints
    places: Ints  # place of each item (columns) in each draw (rows), from 0
    draws: Floats


def margin_word(probability: float, set_chance: float, close: float) -> Word:
    """Return the word for a margin; `close` is the chance that both items are about equal."""
    if set_chance >= CLEAR and probability >= TOSS_UP:
        return "clear"
    if close >= CLEAR:
        return "about equal"
    return "toss-up" if probability < TOSS_UP else "uncertain"


def certain_strengths(strengths: Strengths, theta: Floats) -> Strengths:
    """Return `theta` as certain strengths, for verdicts that another round would repeat exactly."""
    return Strengths(theta, strengths.side, _CERTAIN**2 * np.eye(len(strengths.covariance)))


def draw_places(strengths: Strengths) -> tuple[Floats, Ints]:
    """Draw strengths from the posterior; return the draws and the place of each item in each, from 0."""
    draws = strengths.draw(DRAWS)
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
        rank_low=ranks[INTERVAL_90[0]],
        rank_high=ranks[INTERVAL_90[1]],
        places=places,
        draws=draws,
    )


def set_chances(places: Ints, order: Sequence[int], count: int) -> Floats:
    """Return, for each of `count` places, the chance that the items down to it are the best, in any order."""
    deepest = np.maximum.accumulate(places[:, list(order[:count])], axis=1)
    return np.asarray((deepest <= np.arange(deepest.shape[1])).mean(axis=0).round(DECIMALS))


def margins(
    items: Sequence[str], order: Sequence[int], ratings: Floats, chances: Chances, count: int
) -> tuple[PayMargin, ...]:
    """Return the margin of each of `count` paid places; the last one is the pay line."""
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
        found.append(PayMargin(place, ahead, margin_word(ahead, chance, close), items[i], items[j], chance, tied))
    return tuple(found)


def due_shares(places: Ints, payout_bps: Sequence[int]) -> Floats:
    """Return the share of the prize that each item (columns) would get in each draw (rows)."""
    prizes = np.zeros(max(places.shape[1], len(payout_bps)))
    prizes[: len(payout_bps)] = payout_bps
    return np.asarray(prizes[places] / sum(payout_bps))


def misallocation(places: Ints, order: Sequence[int], payout_bps: Sequence[int]) -> float:
    """Return the share of the prize expected at wrong addresses: ½ E Σ |share due − share paid|."""
    paid = due_shares(np.argsort(order)[None], payout_bps)
    return round(float(np.abs(due_shares(places, payout_bps) - paid).sum(axis=1).mean()) / 2, DECIMALS)
