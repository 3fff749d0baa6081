"""Strengths on a scale that the results themselves show: spread, ties, shared errors, and what features explain.

In comes a `Tally` and, perhaps, typed features of the items; out go `Strengths` with their `Scale`. Nothing is assumed
of the judge that can be measured: a judge who is nearly always right spreads strengths wider, one who is often wrong
less; verdicts that change with the sides, or do not, tell how much of an error belongs to the pair; judges who err
together are not counted as independent. Each measure starts from a prior worth a few observations, so that small data
move it little and nothing jumps. What must hold: a pure function of the tally, with a fixed number of rounds.

The measures. Spread: type-II likelihood (MacKay's rule), as for the share explained by features. Ties: expected equal
to seen. Shared variance: the mean product of two residuals of one pair, relative to what a common shift of one logit
would give, with what the fit itself took from the residuals added back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clara_eval.ranking.strength import (
    PRIOR_SD,
    Cells,
    Expectation,
    Scale,
    Strengths,
    merge,
    newton,
    one_thread,
    picture,
    shape,
)
from clara_eval.ranking.tally import Floats, Tally

ROUNDS, FEW_ROUNDS, MANY_CELLS = 6, 2, 100_000  # so many results tell their scale at once
SPREAD_WEIGHT = 3.0  # items' worth of prior on the spread
OWN_SD, EXPLAINED_SD, EXPLAINED_WEIGHT = 1.25, 0.8, 2.0  # where there are features: 1.25² + 0.8² ≈ 1.5²
PAIR, LOOK = 0.3, 0.6  # prior of the shared variances
COUPLES_WEIGHT = 2.4  # of that prior: sixty pairs of looks at close pairs
MOST_PAIR, MOST_LOOK = 2.2, 4.0
FEW_TIES = 0.3


def estimate(results: Tally, features: Floats | None = None, begin: Strengths | None = None) -> Strengths:
    """Fit, measure the scale, and fit again, a few times over; fewer where it begins from a fit to nearly the same."""
    with one_thread():
        cells = merge(results)
        if begin is None or len(begin.bias) != cells.voices:
            return _estimate(cells, features)
        own = PRIOR_SD if begin.scale.features is None else OWN_SD
        if cells.ties.any() and not begin.scale.tie:
            begin = replace(begin, scale=replace(begin.scale, tie=FEW_TIES))
        return _improved(cells, begin, own, FEW_ROUNDS)


def _estimate(cells: Cells, features: Floats | None) -> Strengths:
    scale = Scale(tie=FEW_TIES if cells.ties.any() else 0.0, pair=PAIR, look=LOOK)
    own = PRIOR_SD
    if features is not None and features.shape[1]:
        own = OWN_SD
        scale = replace(scale, spread=OWN_SD, explained=EXPLAINED_SD, features=features)
    rounds = ROUNDS if len(cells.games) < MANY_CELLS else FEW_ROUNDS
    return _improved(cells, newton(cells, scale), own, rounds)


def _improved(cells: Cells, begin: Strengths, own: float, rounds: int) -> Strengths:
    scale = begin.scale
    at = np.concatenate((begin.theta, begin.bias)) / scale.blur
    del begin  # in the largest fields everything that is let go here is a table
    weights = cells.weights(picture(cells, at, scale.tie).variance, scale)
    for _ in range(rounds):
        slope, curvature, _ = shape(at, cells, scale.precision(cells.size, cells.voices), scale.tie, weights)
        del weights
        covariance: Floats = np.linalg.inv(curvature).astype(np.float64, copy=False)
        del curvature
        at = at + np.clip(covariance @ slope, -1.0, 1.0)
        scale = _spread_and_ties(cells, at, covariance, scale, own)
        seen = picture(cells, at, scale.tie)
        if len(cells.games):
            pair, look = shared_variance(cells, seen, covariance)
            scale = replace(scale, pair=pair, look=look)
        del covariance
        weights = cells.weights(seen.variance, scale)
        del seen
    return newton(cells, scale, at, weights)


def _spread_and_ties(cells: Cells, at: Floats, covariance: Floats, scale: Scale, own: float) -> Scale:
    scale = _spread(at[: cells.size], covariance[: cells.size, : cells.size], scale, own)
    if len(cells.games) and scale.tie:
        scale = replace(scale, tie=_tie(cells, at, scale.tie))
    return scale


def _spread(theta: Floats, covariance: Floats, scale: Scale, own: float) -> Scale:
    """MacKay's rule: the sum of squares over the number of strengths that the data determine."""
    size = len(theta)
    if scale.features is None:
        known = max(size - float(np.trace(covariance)) / scale.spread**2, 0.0)
        square = (float(theta @ theta) + SPREAD_WEIGHT * own**2) / (known + SPREAD_WEIGHT)
        return replace(scale, spread=square**0.5)
    inverse = np.linalg.inv(scale.covariance(size))
    told = inverse - inverse @ covariance @ inverse
    mine, theirs = scale.spread**2, scale.explained**2
    rest = mine * (inverse @ theta)
    weights = theirs * (scale.features.T @ (inverse @ theta))
    known = max(mine * float(np.trace(told)), 0.0)
    explained = max(theirs * float(np.sum(scale.features * (told @ scale.features))), 0.0)
    square = (float(rest @ rest) + SPREAD_WEIGHT * own**2) / (known + SPREAD_WEIGHT)
    linear = (float(weights @ weights) + EXPLAINED_WEIGHT * EXPLAINED_SD**2) / (explained + EXPLAINED_WEIGHT)
    return replace(scale, spread=square**0.5, explained=linear**0.5)


def _tie(cells: Cells, at: Floats, tie: float) -> float:
    """ν such that as many ties are expected as there are."""
    win = cells.looks(at)
    win /= 2
    np.exp(np.clip(win, -30.0, 30.0, out=win), out=win)
    others = 1 / win
    others += win
    del win
    seen = float(cells.ties.sum()) + FEW_TIES
    for _ in range(3):
        tie *= seen / (float(np.sum(cells.games * tie / (others + tie))) + FEW_TIES)
    return min(max(tie, 1e-3), 5.0)


def shared_variance(cells: Cells, seen: Expectation, covariance: Floats) -> tuple[float, float]:
    """Variance shared by all looks at a pair, and by several judges of one look."""
    mean, variance = seen
    found = _couples(cells, cells.points - cells.games * mean, _squares(cells, mean), signed=True)
    unsure = _unsure(cells, covariance[: cells.size, : cells.size])
    taken = _couples(cells, cells.games * variance * unsure, cells.games * (variance * unsure) ** 2)
    del unsure
    most = _couples(cells, cells.games * variance, cells.games * variance**2)
    pair, look = ((found + taken + COUPLES_WEIGHT * np.array([PAIR, LOOK])) / (most + COUPLES_WEIGHT)).tolist()
    return min(max(pair, 0.0), MOST_PAIR), min(max(look, 0.0), MOST_LOOK)


def _squares(cells: Cells, mean: Floats) -> Floats:
    """The sum of the squared residuals of each cell."""
    squares = np.empty(len(mean))
    for part in cells.parts():
        ties, expected = cells.ties[part], mean[part]
        wins = cells.points[part] - ties / 2
        squares[part] = wins * (1 - expected) ** 2
        squares[part] += ties * (0.5 - expected) ** 2
        squares[part] += (cells.games[part] - wins - ties) * expected**2
    return squares


def _unsure(cells: Cells, covariance: Floats) -> Floats:
    """The sd of the difference in strength of each cell."""
    own = np.diag(covariance)
    apart = np.add.outer(own, own)
    apart -= 2 * covariance
    unsure = cells.met(apart)
    return np.sqrt(np.maximum(unsure, 0.0, out=unsure), out=unsure)


def _couples(cells: Cells, sums: Floats, squares: Floats, *, signed: bool = False) -> Floats:
    """Sum of the products of two games of one pair: those that share only the pair, and those of one look."""
    pairs = _pair_sums(cells, sums, signed=signed)
    pairs *= pairs
    every = float(np.sum(pairs)) - float(squares.sum())
    del pairs
    one_look = 0.0
    if cells.voices > 1 or cells.has_orders:
        look = np.bincount(cells.first * cells.size + cells.second, sums, cells.size * cells.size)
        alone = np.where(cells.is_read_off, squares, sums**2) if cells.has_orders else sums**2
        one_look = float(np.sum(look**2)) - float(np.sum(alone))
    return np.array([every - one_look, one_look]) / 2


def _pair_sums(cells: Cells, sums: Floats, *, signed: bool) -> Floats:
    """The sums of the cells of each pair, at (lower, higher); signed: those in the other order count against."""
    if cells.is_complete:
        table = cells.table(sums)
        for item in range(cells.size):  # row by row: a table of the other order would be another eight megabytes
            (np.subtract if signed else np.add)(
                table[item, item + 1 :], table[item + 1 :, item], out=table[item, item + 1 :]
            )
            table[item, : item + 1] = 0.0
        return table.ravel()
    low, high = np.minimum(cells.first, cells.second), np.maximum(cells.first, cells.second)
    turned = np.where(cells.first == low, sums, -sums) if signed else sums
    summed: Floats = np.bincount(low * cells.size + high, turned, cells.size * cells.size).astype(np.float64)
    return summed


@dataclass(frozen=True, slots=True)
class Columns:
    """Typed values of the items as numbers: one row per item."""

    names: tuple[str, ...]
    values: Floats


def standardised(columns: Sequence[Sequence[float]], size: int) -> Floats | None:
    """Columns with mean 0 and sd 1, over the root of their number; constant ones are left out, None if all are."""
    table = np.array(columns, dtype=np.float64).reshape(-1, size)
    spread = table.std(axis=1)
    table = table[spread > 1e-9]
    if not len(table) or size < 2:
        return None
    scaled = (table - table.mean(axis=1, keepdims=True)) / table.std(axis=1, keepdims=True)
    result: Floats = np.ascontiguousarray((scaled / len(scaled) ** 0.5).T)
    return result
