"""Fit a Bradley–Terry model with position bias and correlated verdicts to the results of a round.

Item i, shown first to judge g, beats j with probability p = 1 / (1 + exp(θ_j − θ_i − γ_g)); θ ~ N(0, s²), γ ~ N(0, ½²).
Results on one pair share errors, so each has the weight c / (1 + p (1 − p) · ((n − 1) · same + m · pair)), if n results
show the pair in this sequence and m in the other; c = 1 or ORDER_WEIGHT. Formulas: docs/trace-format.md, section 9.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from threadpoolctl import ThreadpoolController

from clara_eval.ranking.results import Floats, Tally

SPREAD, SPREAD_WEIGHT = 1.5, 3.0  # prior of s, worth 3 items: the judge is right on 4 of 5 random pairs
SIDE_SD = 0.5  # logits; the position bias of published judges is below 1
PAIR, SAME = 0.3, 0.6  # prior of the shared variances: a judge repeats itself, more so in an unchanged sequence
SHARED_WEIGHT = 2.4  # of that prior: worth 60 pairs of results between equals, each with a squared variance of 0.04
MAX_PAIR, MAX_SAME = 2.2, 4.0  # above these a second result adds almost no information
REPEATING = 1.0  # of `same`; from here on orders repeat pairs: 2.3 if all of the noise is shared, 0.65 if half of it is
ORDER_WEIGHT = 0.64  # of a pair from an order of four: its 6 pairs are worth 3.8 separate ones (Plackett–Luce)
SCALE_ROUNDS = 7  # estimates of s, `pair` and `same`; they change by less than 1 % after five
MAX_NEWTON_STEPS = 60
LONGEST_STEP = 2.0  # logits; from further away a full Newton step for one pair would diverge
ELO_PER_LOGIT = 173.7178  # 400 / ln 10


@dataclass(frozen=True, slots=True)
class Strengths:
    """Fitted strength of each item, position bias of each judge, and their joint covariance, in logits."""

    theta: Floats
    side: Floats
    covariance: Floats
    spread: float = SPREAD
    pair: float = PAIR
    same: float = SAME

    def draw(self, count: int) -> Floats:
        """Draw `count` rows of strengths from the posterior: θ ± A n, with A Aᵀ = C and fixed normals n."""
        size = len(self.theta)
        with one_thread():
            root = np.linalg.cholesky(self.covariance[:size, :size])
            half = normals(count // 2, size) @ root.T
        return np.concatenate((self.theta + half, self.theta - half))


@dataclass(frozen=True, slots=True)
class _Counts:
    """Sums over the results by (judge, first, second); `shown` counts them by (first, second)."""

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
        """Return the weight of one result, given the others on its pair."""
        others = np.maximum(self.shown - 1, 0) * same + self.shown.T * pair
        return np.asarray(self.worth / (1 + variance * others))


def fit(table: Tally) -> Strengths:
    """Find the most probable strengths, re-estimating s, `pair` and `same` after each fit."""
    with one_thread():
        counts = _count_games(table)
        spread, pair, same = SPREAD, PAIR, SAME
        at = np.zeros(table.size + len(counts.games))
        variance = np.full(counts.games.shape, 0.25)
        for number in range(SCALE_ROUNDS + 1):
            precision = np.full(len(at), SIDE_SD**-2)
            precision[: table.size] = spread**-2
            at, covariance = _find_mode(counts, counts.weights(variance, same, pair), precision, at)
            if number == SCALE_ROUNDS:
                break
            theta, own = at[: table.size], covariance[: table.size, : table.size]
            chance = counts.expected(at)
            variance = chance * (1 - chance)
            known = max(table.size - float(np.trace(own)) * spread**-2, 0.0)  # effective degrees of freedom
            square = float(theta @ theta) + SPREAD_WEIGHT * SPREAD**2
            spread = (square / (known + SPREAD_WEIGHT)) ** 0.5
            pair, same = _shared_variances(counts, chance, variance, own)
    found = np.round(at, 9)
    return Strengths(found[: table.size], found[table.size :], covariance, spread, pair, same)


def _find_mode(counts: _Counts, weights: Floats, precision: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Find the posterior mode by Newton's method; return it with the inverse Hessian as covariance."""
    for _ in range(MAX_NEWTON_STEPS):
        gradient, hessian = _gradient_and_hessian(counts, weights, precision, at)
        step = np.linalg.solve(hessian, gradient)
        longest = float(np.abs(step).max(initial=0.0))
        at = at + step / max(1.0, longest / LONGEST_STEP)
        if longest < 1e-5:  # convergence is quadratic, so the error left is below 1e-9
            break
    covariance = np.linalg.inv(_gradient_and_hessian(counts, weights, precision, at)[1]).astype(np.float64)
    return at, (covariance + covariance.T) / 2


def _gradient_and_hessian(counts: _Counts, weights: Floats, precision: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Return the gradient and the negative Hessian of the log posterior."""
    size = counts.games.shape[1]
    chance = counts.expected(at)
    residual = weights * (counts.points - counts.games * chance)
    info = weights * counts.games * chance * (1 - chance)
    by_pair, pair_info = (each[0] if len(each) == 1 else each.sum(axis=0) for each in (residual, info))
    gradient = np.concatenate((by_pair.sum(axis=1) - by_pair.sum(axis=0), residual.sum(axis=(1, 2)))) - precision * at
    diagonal = np.concatenate((pair_info.sum(axis=1) + pair_info.sum(axis=0), info.sum(axis=(1, 2))))
    hessian = np.diag(precision + diagonal)
    hessian[:size, :size] -= pair_info + pair_info.T
    item_by_judge = info.sum(axis=2) - info.sum(axis=1)
    hessian[size:, :size] = item_by_judge
    hessian[:size, size:] = item_by_judge.T
    return gradient, hessian


def _shared_variances(counts: _Counts, chance: Floats, variance: Floats, covariance: Floats) -> tuple[float, float]:
    """Estimate `pair` and `same`: Σ r r′ / Σ v v′ over all two results of a pair, shrunk to the prior."""
    residual = (counts.points - counts.games * chance).sum(axis=0)
    squares = (counts.squares - 2 * chance * counts.points + counts.games * chance**2).sum(axis=0)
    level = (counts.games * variance).sum(axis=0)
    levels = (counts.games * variance**2).sum(axis=0)
    own = np.diag(covariance)
    fitted = np.maximum(own[:, None] + own - 2 * covariance, 0.0)  # the part of the residuals that the fit absorbed
    found_same = float(np.sum(residual**2 - squares + fitted * (level**2 - levels))) / 2
    found_pair = float(np.sum(fitted * level * level.T - residual * residual.T)) / 2
    weight_same, weight_pair = float(np.sum(level**2 - levels)) / 2, float(np.sum(level * level.T)) / 2
    same = (found_same + SHARED_WEIGHT * SAME) / (weight_same + SHARED_WEIGHT)
    pair = (found_pair + SHARED_WEIGHT * PAIR) / (weight_pair + SHARED_WEIGHT)
    return min(max(pair, 0.0), MAX_PAIR), min(max(same, 0.0), MAX_SAME)


def _count_games(table: Tally) -> _Counts:
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
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Limit linear algebra to one thread: the matrices are small, and sums stay in one order."""
    limited: AbstractContextManager[object] = _thread_pools().limit(limits=1)
    return limited


@lru_cache(maxsize=8)
def normals(rows: int, columns: int) -> Floats:
    """Return fixed standard normals: Box–Muller over the 53-bit fractions of a SHAKE-256 stream."""
    count = rows * columns
    stream = hashlib.shake_256(b"clara-eval normals draws").digest(16 * ((count + 1) // 2))
    words = ((np.frombuffer(stream, dtype="<u8") >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    u, v = words.reshape(2, -1)
    radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
    values = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count].reshape(rows, columns)
    values.flags.writeable = False
    return values
