"""The model of a round: Bradley–Terry with a side effect, normal priors, and verdicts on a pair that repeat each other.

Results on one pair share errors, with variance `same` if they show it in the same sequence and `pair` if not, so each
counts for what it adds; both and the spread are measured in the round. The formulas: docs/trace-format.md, section 9.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from threadpoolctl import ThreadpoolController

from clara_eval.ranking.results import Floats, Tally

SPREAD, SPREAD_WEIGHT = 1.5, 3.0  # prior of s, worth three items: a judge right on four of five random pairs
SIDE_SD = 0.5  # logits: position effects of published judges are below one
PAIR, SAME = 0.3, 0.6  # prior of the shared variances: a judge repeats itself, more so in the same sequence
SHARED_WEIGHT = 2.4  # of that prior: sixty pairs of results between equals, each with a squared variance of 0.04
MOST_PAIR, MOST_SAME = 2.2, 4.0  # beyond these a second result adds nearly nothing
REPEATING = 1.0  # `same` from which orders repeat pairs: 2.3 if they do, 0.65 if half of the noise is shared
ORDER_WEIGHT = 0.64  # of a pair from an order of four: 6 pairs say as much as 3.8 asked one by one (Plackett–Luce)
ROUNDS = 7  # of measuring; the scale changes by less than 1 % after five
STEPS = 60  # one logit each: farther than a strength can be
ELO_PER_LOGIT = 173.7178  # 400 / ln 10


@dataclass(frozen=True, slots=True)
class Strengths:
    """Strength of each item, side effect of each judge, their joint covariance, and the measured scale."""

    theta: Floats
    side: Floats
    covariance: Floats
    spread: float = SPREAD
    pair: float = PAIR
    same: float = SAME

    def draws(self, count: int) -> Floats:
        """Draw strengths from the posterior, one row each, with fixed normals in mirrored pairs."""
        size = len(self.theta)
        with one_thread():
            root = np.linalg.cholesky(self.covariance[:size, :size])
            half = normals(count // 2, size) @ root.T
        return np.concatenate((self.theta + half, self.theta - half))


@dataclass(frozen=True, slots=True)
class _Counts:
    """Games, points of the first and squared points by (judge, first, second); how often a sequence was shown."""

    games: Floats
    points: Floats
    squares: Floats
    worth: Floats
    shown: Floats

    def expected(self, at: Floats) -> Floats:
        size = self.games.shape[1]
        behind = at[:size] - (at[size:, None, None] + at[:size, None])
        return np.asarray(1 / (1 + np.exp(np.clip(behind, -35.0, 35.0, out=behind), out=behind)))

    def weights(self, variance: Floats, same: float, pair: float) -> Floats:
        """What one result adds, given the others on its pair."""
        others = np.maximum(self.shown - 1, 0) * same + self.shown.T * pair
        return np.asarray(self.worth / (1 + variance * others))


def fit(table: Tally) -> Strengths:
    """Find the most probable strengths; measure the scale, and fit again."""
    with one_thread():
        counts = _counts(table)
        spread, pair, same = SPREAD, PAIR, SAME
        at = np.zeros(table.size + len(counts.games))
        variance = np.full(counts.games.shape, 0.25)
        for number in range(ROUNDS + 1):
            precision = np.full(len(at), SIDE_SD**-2)
            precision[: table.size] = spread**-2
            at, covariance = _mode(counts, counts.weights(variance, same, pair), precision, at)
            if number == ROUNDS:
                break
            theta, own = at[: table.size], covariance[: table.size, : table.size]
            chance = counts.expected(at)
            variance = chance * (1 - chance)
            known = max(table.size - float(np.trace(own)) * spread**-2, 0.0)  # strengths that the results determine
            square = float(theta @ theta) + SPREAD_WEIGHT * SPREAD**2
            spread = (square / (known + SPREAD_WEIGHT)) ** 0.5
            pair, same = _shared(counts, chance, variance, own)
    found = np.round(at, 9)
    return Strengths(found[: table.size], found[table.size :], covariance, spread, pair, same)


def _mode(counts: _Counts, weights: Floats, precision: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Climb to the mode by Newton's method, at most one logit a step; the covariance is the inverse curvature there."""
    for _ in range(STEPS):
        slope, curvature = _shape(counts, weights, precision, at)
        step = np.linalg.solve(curvature, slope)
        longest = float(np.abs(step).max(initial=0.0))
        at = at + step / max(1.0, longest)
        if longest < 1e-5:  # convergence is quadratic: the rest is below 1e-9
            break
    covariance = np.linalg.inv(_shape(counts, weights, precision, at)[1]).astype(np.float64)
    return at, (covariance + covariance.T) / 2


def _shape(counts: _Counts, weights: Floats, precision: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Slope and negative curvature of the log posterior."""
    size = counts.games.shape[1]
    chance = counts.expected(at)
    rest = weights * (counts.points - counts.games * chance)
    bend = weights * counts.games * chance * (1 - chance)
    flat, met = (each[0] if len(each) == 1 else each.sum(axis=0) for each in (rest, bend))
    slope = np.concatenate((flat.sum(axis=1) - flat.sum(axis=0), rest.sum(axis=(1, 2)))) - precision * at
    curvature = np.diag(precision + np.concatenate((met.sum(axis=1) + met.sum(axis=0), bend.sum(axis=(1, 2)))))
    curvature[:size, :size] -= met + met.T
    lean = bend.sum(axis=2) - bend.sum(axis=1)
    curvature[size:, :size] = lean
    curvature[:size, size:] = lean.T
    return slope, curvature


def _shared(counts: _Counts, chance: Floats, variance: Floats, covariance: Floats) -> tuple[float, float]:
    """Measure the shared variances: mean product of two residuals of one pair, over that of their variances."""
    rest = (counts.points - counts.games * chance).sum(axis=0)
    squares = (counts.squares - 2 * chance * counts.points + counts.games * chance**2).sum(axis=0)
    level = (counts.games * variance).sum(axis=0)
    levels = (counts.games * variance**2).sum(axis=0)
    own = np.diag(covariance)
    unsure = np.maximum(own[:, None] + own - 2 * covariance, 0.0)  # what the fit itself took from the residuals
    found_same = float(np.sum(rest**2 - squares + unsure * (level**2 - levels))) / 2
    found_pair = float(np.sum(unsure * level * level.T - rest * rest.T)) / 2
    most_same, most_pair = float(np.sum(level**2 - levels)) / 2, float(np.sum(level * level.T)) / 2
    same = (found_same + SHARED_WEIGHT * SAME) / (most_same + SHARED_WEIGHT)
    pair = (found_pair + SHARED_WEIGHT * PAIR) / (most_pair + SHARED_WEIGHT)
    return min(max(pair, 0.0), MOST_PAIR), min(max(same, 0.0), MOST_SAME)


def _counts(table: Tally) -> _Counts:
    size, judges = table.size, max(1, len(table.judges))
    key = (table.judge * size + table.first) * size + table.second
    total, points = judges * size * size, table.points
    games, won, squares = (
        np.bincount(key, weights, total).astype(np.float64).reshape(judges, size, size)
        for weights in (None, points, points**2)
    )
    worth = np.where(table.read_off or (False,) * judges, ORDER_WEIGHT, 1.0)
    return _Counts(games, won, squares, worth[:, None, None], games.sum(axis=0))


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Hold linear algebra to one thread: matrices are small, and sums keep one order."""
    limited: AbstractContextManager[object] = _libraries().limit(limits=1)
    return limited


@lru_cache(maxsize=8)
def normals(rows: int, columns: int) -> Floats:
    """Fixed standard normals: Box–Muller over the 53-bit fractions of a SHAKE-256 stream."""
    count = rows * columns
    stream = hashlib.shake_256(b"clara-eval normals draws").digest(16 * ((count + 1) // 2))
    words = ((np.frombuffer(stream, dtype="<u8") >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    u, v = words.reshape(2, -1)
    radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
    values = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count].reshape(rows, columns)
    values.flags.writeable = False
    return values
