"""How sure the order is: intervals, chances of each place, the margin at the pay line.

In come fitted strengths and an order of the items; out go rounded chances and intervals. Chances of places come from
2000 fixed posterior draws, narrowed by 0.9: a bell curve gives items that lost their few games too much hope, and with
this factor chances come true about as often as they say. Intervals are widened by 1.35: with quirks of single pairs (a
judge that likes exactly this item against exactly that one) the plain ones cover too little, and nothing in one look
per pair can reveal it. Every number is rounded well above the last digits in which two machines might differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, sqrt
from typing import Literal

import numpy as np

from clara_eval.tournament.strength import Strengths
from clara_eval.tournament.tally import Floats, Ints

DRAWS = 2000
WIDENING = 1.35
NARROWING = 0.9
Z95 = 1.959964
CHANCE_DECIMALS = 4

Word = Literal["toss-up", "uncertain", "clear"]


@dataclass(frozen=True, slots=True)
class Margin:
    """The chance that the item at place `place` really is better than the next one, and a word for it."""

    place: int
    probability: float
    word: Word
    item: str
    next_item: str

    @property
    def sentence(self) -> str:
        if not self.next_item:
            return "Every item is paid, so nothing hangs on the pay line."
        chance = f"{100 * self.probability:.0f} %"
        return f"{self.item} over {self.next_item} at place {self.place}: {chance}, {self.word}."


@dataclass(frozen=True, slots=True)
class Chances:
    """Per item (canonical index): half width of the 95 % interval of θ, chances of places, likely range of ranks."""

    half_width: Floats
    p_top: Floats
    p_rank: Floats
    rank_low: Ints
    rank_high: Ints
    draws_rank: Ints


def word_for(probability: float) -> Word:
    """Below .60 the order is right in 55–60 % of cases, from .80 on in 89 % or more."""
    if probability < 0.60:
        return "toss-up"
    return "uncertain" if probability < 0.80 else "clear"


def chances(strengths: Strengths, winner_count: int) -> Chances:
    """Places of every item in every draw, counted."""
    size = len(strengths.theta)
    draws = strengths.theta + NARROWING * (strengths.draws(DRAWS) - strengths.theta)
    order = np.argsort(-draws, axis=1, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(size)[None, :], axis=1)
    shown = min(size, winner_count + 2)
    p_rank = np.stack([np.mean(place == r, axis=0) for r in range(shown)], axis=1) if size else np.empty((0, 0))
    low, high = np.percentile(place, [5, 95], axis=0, method="nearest") + 1
    return Chances(
        half_width=_half_width(strengths, size),
        p_top=np.round((place < winner_count).sum(axis=0) / DRAWS, CHANCE_DECIMALS),
        p_rank=np.round(p_rank, CHANCE_DECIMALS),
        rank_low=low.astype(np.int64),
        rank_high=high.astype(np.int64),
        draws_rank=place,
    )


def margins(strengths: Strengths, items: Sequence[str], order: Sequence[int], winner_count: int) -> tuple[Margin, ...]:
    """One margin for each paid place; the last one is the pay line."""
    return tuple(_margin(strengths, items, order, place) for place in range(1, min(winner_count, len(order)) + 1))


def misallocation(draws_rank: Ints, order: Sequence[int], payout_bps: Sequence[int]) -> float:
    """Expected share of the pot paid to somebody else than the draws would pay."""
    paid = np.zeros(draws_rank.shape[1])
    prizes = np.zeros(max(draws_rank.shape[1], len(payout_bps)))
    prizes[: len(payout_bps)] = payout_bps
    paid[list(order)] = prizes[: len(order)]
    due = prizes[draws_rank]
    return round(float(np.abs(due - paid).sum(axis=1).mean()) / 2 / float(prizes.sum()), CHANCE_DECIMALS)


def _half_width(strengths: Strengths, size: int) -> Floats:
    """Of θ_i against the mean of all: the common level of all items means nothing."""
    own = strengths.covariance[:size, :size]
    variance = np.diag(own) - 2 * own.mean(axis=1) + own.mean()
    widths: Floats = WIDENING * Z95 * np.sqrt(np.maximum(variance, 0.0))
    return widths


def _margin(strengths: Strengths, items: Sequence[str], order: Sequence[int], place: int) -> Margin:
    if place >= len(order):
        return Margin(place, 1.0, "clear", items[order[-1]], "")
    i, j = order[place - 1], order[place]
    c = strengths.covariance
    sd = sqrt(max(float(c[i, i] + c[j, j] - 2 * c[i, j]), 1e-12))
    gap = float(strengths.theta[i] - strengths.theta[j])
    probability = round((1 + erf(gap / sd / sqrt(2))) / 2, CHANCE_DECIMALS)
    return Margin(place, probability, word_for(probability), items[i], items[j])
