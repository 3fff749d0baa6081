"""Bradley–Terry with a prior and a position term: how strong each item is, and how sure we are.

P(first beats second) = σ(θ_first − θ_second + γ_judge), a tie is half a win for each, θ ~ N(0, 1.5²),
γ ~ N(0, 0.5²) for each judge. In comes a `Tally`; out go the most probable θ and γ and the Laplace covariance. The
priors make the fit finite and unique for undefeated, winless and unconnected items and for no results at all.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from threadpoolctl import ThreadpoolController

from clara_eval.tournament.tally import Floats, Ints, Tally

PRIOR_SD = 1.5
BIAS_SD = 0.5
ELO_PER_LOGIT = 173.7178  # 400 / ln 10
_STEPS = 60
_DECIMALS = 9


@dataclass(frozen=True, slots=True)
class Strengths:
    """`theta` per item, `bias` per judge (positive: the judge favours the item shown first), joint covariance."""

    theta: Floats
    bias: Floats
    covariance: Floats

    def draws(self, count: int, label: str = "draws") -> Floats:
        """`count` posterior draws of θ (rows), from fixed normals in mirrored pairs: the same every time."""
        size = len(self.theta)
        with one_thread():
            half = normals((count + 1) // 2, size, label) @ np.linalg.cholesky(self.covariance[:size, :size]).T
        draws: Floats = self.theta + np.concatenate((half, -half))[:count]
        return draws


@dataclass(frozen=True, slots=True)
class _Cells:
    """Results merged by (first, second, judge): games played and points of the first."""

    first: Ints
    second: Ints
    judge: Ints
    games: Floats
    points: Floats


def fit(results: Tally) -> Strengths:
    """The posterior mode by Newton's method with halved steps where a full one would not improve."""
    with one_thread():
        return _newton(results)


def _newton(results: Tally) -> Strengths:
    size, judges = results.size, max(1, len(results.judges))
    precision = np.concatenate((np.full(size, PRIOR_SD**-2), np.full(judges, BIAS_SD**-2)))
    cells = _merge(results)
    at = np.zeros(size + judges)
    slope, curvature, height = _shape(at, cells, size, precision)
    for _ in range(_STEPS):
        step = np.linalg.solve(curvature, slope)
        for _ in range(_STEPS):
            slope, curvature, new_height = _shape(at + step, cells, size, precision)
            if new_height >= height - 1e-9:
                break
            step /= 2
        at += step
        height = new_height
        if float(np.abs(step).max(initial=0.0)) < 1e-6:  # convergence is quadratic: the error is now below 1e-11
            break
    rounded = np.round(at, _DECIMALS)
    return Strengths(rounded[:size], rounded[size:], np.linalg.inv(curvature).astype(np.float64))


def gradient(at: Floats, results: Tally) -> Floats:
    """Slope of the log posterior at (θ, γ); zero at the fit."""
    size = results.size
    precision = np.concatenate((np.full(size, PRIOR_SD**-2), np.full(len(at) - size, BIAS_SD**-2)))
    return _shape(at, _merge(results), size, precision)[0]


def _merge(results: Tally) -> _Cells:
    judges = max(1, len(results.judges))
    key = (results.first * results.size + results.second) * judges + results.judge
    found, where = np.unique(key, return_inverse=True)
    games = np.bincount(where, minlength=len(found)).astype(float)
    points = np.bincount(where, weights=results.half_points, minlength=len(found)) / 2
    pair, judge = np.divmod(found, judges)
    return _Cells(pair // results.size, pair % results.size, judge, games, points)


def _shape(at: Floats, cells: _Cells, size: int, precision: Floats) -> tuple[Floats, Floats, float]:
    """Slope, negative curvature and height of the log posterior."""
    total = len(at)
    voice = size + cells.judge
    z = at[cells.first] - at[cells.second] + at[voice]
    p = 1 / (1 + np.exp(-z))
    height = float(np.sum(cells.points * z - cells.games * np.logaddexp(0, z)) - precision @ at**2 / 2)
    rest = cells.points - cells.games * p
    weight = cells.games * p * (1 - p)
    plus, minus = (np.bincount(i, w, total) for i, w in ((cells.first, rest), (cells.second, rest)))
    slope = plus - minus + np.bincount(voice, rest, total) - precision * at
    a, b, g = cells.first, cells.second, voice
    mixed: Floats = _sums(np.concatenate((a * total + b, b * total + g)), np.tile(-weight, 2), total * total)
    mixed += _sums(a * total + g, weight, total * total)
    curvature: Floats = mixed.reshape(total, total)
    curvature = curvature + curvature.T
    diagonal = np.bincount(np.concatenate((a, b, g)), np.tile(weight, 3), total) + precision
    curvature[np.arange(total), np.arange(total)] += diagonal
    return slope, curvature, height


def _sums(where: Ints, weight: Floats, size: int) -> Floats:
    return np.bincount(where, weight, size).astype(np.float64, copy=False)


@lru_cache(maxsize=1)
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Linear algebra on one thread: the same sums in the same order, and no threads fighting over small matrices."""
    return cast("AbstractContextManager[object]", _threads().limit(limits=1))


@lru_cache(maxsize=8)
def normals(rows: int, columns: int, label: str) -> Floats:
    """Fixed standard normals: Box–Muller over the 53-bit fractions of a SHAKE-256 stream."""
    count = rows * columns
    stream = hashlib.shake_256(b"clara-eval normals " + label.encode()).digest(16 * ((count + 1) // 2))
    words = (np.frombuffer(stream, dtype="<u8") >> np.uint64(11)).astype(float) + 0.5
    u, v = (words / 2.0**53).reshape(2, -1)
    radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
    values = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count].reshape(rows, columns)
    values.flags.writeable = False
    return values
