"""How sure the order is: intervals, chances of each place, the margin at the pay line.

In come estimated strengths and an order of the items; out go rounded chances and intervals. Chances of places come from
2000 fixed posterior draws. Intervals are widened by 1.2, because the scale on which strengths are measured is itself
estimated: how far a judge's quirks about single pairs blur them cannot be seen where no pair was looked at twice. In a
small field of verdicts that hardly contradict each other even the spread of the strengths is a guess, since nothing
says how far apart two are of whom one always wins: there they are widened by a share of the strength itself. Every
number is rounded well above the last digits in which two machines might differ. Where verdicts are arithmetic on
measured facts there is no judge whose noise could have decided: only entries that are exactly level are uncertain.

The word of a paid place says whether the money above it is in the right hands: `clear` if the entries down to this
place are the true best with a chance of at least .90, `toss-up` if the entry at the place is hardly more likely than
not to be better than the next one, `uncertain` between. At the last paid place that is the chance of the paid set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from clara_eval.ranking.strength import Strengths
from clara_eval.ranking.tally import Floats, Ints

DRAWS = 2000
WIDENING = 1.2
CLEAR = 0.90
TOSS_UP = 0.60
Z95 = 1.959964
FEW_ITEMS, USUAL_SPREAD, MOST_STRETCH = 1800.0, 1.2, 1.0  # how unsure the spread of a small field is
CHANCE_DECIMALS = 4
_AT_ONCE = 128  # items whose draws are sorted together
_LEVEL = 1e-9  # logits: below every difference that counts; lots decide between those who are level

Word = Literal["toss-up", "uncertain", "clear"]


@dataclass(frozen=True, slots=True)
class PayMargin:
    """The chance that the item at place `place` really is better than the next one, the chance that the items down to
    this place are the true best, and a word for it. `tied` says that the two have equal records.
    """

    place: int
    probability: float
    word: Word
    item: str
    next_item: str
    set_chance: float
    tied: bool = False

    @property
    def sentence(self) -> str:
        if not self.next_item:
            return "Every item is paid, so nothing hangs on the pay line."
        chance = f"{100 * self.probability:.0f} %"
        over = "has the same record as" if self.tied else f"over {self.next_item} at place {self.place}: {chance}"
        who = f"{self.item} {over}" + (f" {self.next_item} at place {self.place}" if self.tied else "")
        best = "this is the best one" if self.place == 1 else f"these are the best {self.place}"
        return f"{who}, {self.word}; {best} with a chance of {100 * self.set_chance:.0f} %."


@dataclass(frozen=True, slots=True)
class Chances:
    """Per item (canonical index): half width of the 95 % interval of θ, chances of places, likely range of ranks."""

    half_width: Floats
    p_top: Floats
    p_rank: Floats
    rank_low: Ints
    rank_high: Ints
    draws_rank: Ints


def word_for(probability: float, set_chance: float) -> Word:
    """A toss-up by the two at the line, clear only by everybody who could stand above it."""
    if probability < TOSS_UP:
        return "toss-up"
    return "clear" if set_chance >= CLEAR else "uncertain"


def without_noise(strengths: Strengths) -> Strengths:
    """The same strengths, known for certain: another round would give the same verdicts."""
    sharp = (strengths.scale.blur / _LEVEL) ** 2
    scale = replace(strengths.scale, spread=0.0)
    return replace(strengths, curvature=sharp * np.eye(len(strengths.curvature)), scale=scale)


def chances(strengths: Strengths, winner_count: int) -> Chances:
    """Places of every item in every draw, counted."""
    size = len(strengths.theta)
    draws = strengths.draws(DRAWS)
    np.negative(draws, out=draws)
    order = np.argsort(draws, axis=1, kind="stable")
    del draws
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(size)[None, :], axis=1)
    del order
    shown = min(size, winner_count + 2)
    p_rank = np.stack([np.mean(place == r, axis=0) for r in range(shown)], axis=1) if size else np.empty((0, 0))
    low, high = _reach(place)
    return Chances(
        half_width=_half_width(strengths, size),
        p_top=np.round((place < winner_count).sum(axis=0) / DRAWS, CHANCE_DECIMALS),
        p_rank=np.round(p_rank, CHANCE_DECIMALS),
        rank_low=low,
        rank_high=high,
        draws_rank=place,
    )


def _reach(place: Ints) -> tuple[Ints, Ints]:
    """The places between which each item stands in nine of ten draws; some items at a time."""
    size, found = place.shape[1], np.empty((2, place.shape[1]), dtype=np.int64)
    for start in range(0, size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        found[:, part] = np.percentile(place[:, part], [5, 95], axis=0, method="nearest")
    found += 1
    return found[0], found[1]


def margins(
    strengths: Strengths, items: Sequence[str], order: Sequence[int], ratings: Floats, draws_rank: Ints, count: int
) -> tuple[PayMargin, ...]:
    """One margin for each of `count` paid places; the last one is the pay line."""
    deepest = np.maximum.accumulate(draws_rank[:, list(order[:count])], axis=1)
    return tuple(
        _margin(strengths, items, order, ratings, place, float(np.mean(deepest[:, place - 1] < place)))
        for place in range(1, min(count, len(order)) + 1)
    )


def misallocation(draws_rank: Ints, order: Sequence[int], payout_bps: Sequence[int]) -> float:
    """Expected share of the pot paid to somebody else than the draws would pay."""
    paid = np.zeros(draws_rank.shape[1])
    prizes = np.zeros(max(draws_rank.shape[1], len(payout_bps)))
    prizes[: len(payout_bps)] = payout_bps
    paid[list(order)] = prizes[: len(order)]
    due = prizes[draws_rank]
    due -= paid
    return round(float(np.abs(due, out=due).sum(axis=1).mean()) / 2 / float(prizes.sum()), CHANCE_DECIMALS)


def _half_width(strengths: Strengths, size: int) -> Floats:
    """Of θ_i against the mean of all: the common level of all items means nothing."""
    own = strengths.covariance[:size, :size]
    variance = np.diag(own) - 2 * own.mean(axis=1) + own.mean()
    apart = strengths.theta - strengths.theta.mean()
    widths: Floats = Z95 * np.sqrt(WIDENING**2 * np.maximum(variance, 0.0) + (_stretch(strengths, size) * apart) ** 2)
    return widths


def _stretch(strengths: Strengths, size: int) -> float:
    """By what share all strengths may be larger or smaller than fitted; none in large fields, or where verdicts
    contradict each other as often as those of a usual judge.
    """
    beyond = max(strengths.scale.spread - USUAL_SPREAD, 0.0)
    return min(FEW_ITEMS / (size * size * size) * beyond, MOST_STRETCH)


def _margin(
    strengths: Strengths, items: Sequence[str], order: Sequence[int], ratings: Floats, place: int, set_chance: float
) -> PayMargin:
    if place >= len(order):
        return PayMargin(place, 1.0, "clear", items[order[-1]], "", 1.0)
    i, j = order[place - 1], order[place]
    tied = bool(ratings[i] == ratings[j])
    probability = 0.5 if tied else round(strengths.ahead(i, j), CHANCE_DECIMALS)
    chance = round(set_chance, CHANCE_DECIMALS)
    return PayMargin(place, probability, word_for(probability, chance), items[i], items[j], chance, tied)
