"""Bradley–Terry with ties, a position term and a prior: how strong each item is, and how sure we are.

For a look at (first, second) by a judge let z = θ_first − θ_second + γ_judge. Verdicts follow Davidson's model: win,
loss and tie weigh e^(z/2), e^(−z/2) and ν; without ties (ν = 0) this is Bradley–Terry. θ ~ N(0, prior), γ ~ N(0, 0.5²)
for each judge. In comes a `Tally` and a `Scale`; out go the most probable θ and γ and their covariance. The priors make
the fit finite and unique for undefeated, winless and unconnected items and for no results at all.

A `Scale` holds what one set of results is not enough to see in a single look: how far strengths spread, how often
verdicts are ties, and how much looks at the same pair have in common (a judge's quirk about exactly these two, or a
jury that errs together). Looks that share an error count for less: each is weighed by what it adds. `estimate` measures
the scale; `fit` takes it as given, by default the plain one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from functools import lru_cache
from math import erf, sqrt
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from clara_eval.ranking.tally import Floats, Ints, Tally

PRIOR_SD = 1.5
BIAS_SD = 0.5
ELO_PER_LOGIT = 173.7178  # 400 / ln 10
ATTENUATION = 0.346  # a logistic curve blurred by a normal of variance s² is one flattened by √(1 + .346 s²)
ORDER_WEIGHT = 0.64  # of a pair read off an order of four: 6 pairs tell as much as 3.8 asked one by one
FEW_CELLS, SMALL_FIELD = 8, 60
MANY_GAMES = 100  # for each item: then the share of points is a good first guess
EVERY, PART = slice(None), 1 << 15  # cells
_STEPS = 60
_DECIMALS = 9


@dataclass(frozen=True, slots=True)
class Scale:
    """`spread`: sd of strengths that `features` do not explain, `explained`: of those they do. `tie`: ν. `pair`:
    variance that all looks at one pair share, `look`: that judges of the same look share, and orders that show a pair
    in the same sequence again; both on the blurred scale.
    """

    spread: float = PRIOR_SD
    tie: float = 0.0
    pair: float = 0.0
    look: float = 0.0
    explained: float = 0.0
    features: Floats | None = None

    @property
    def blur(self) -> float:
        """How much larger strengths are than they look through the quirks of single pairs."""
        return float((1 + ATTENUATION * self.quirk**2) ** 0.5)

    @property
    def quirk(self) -> float:
        """The sd of a judge's quirk about one pair, in logits."""
        return float((self.pair / (1 - ATTENUATION * self.pair)) ** 0.5)

    def precision(self, size: int, judges: int) -> Floats:
        """Of the prior of (θ, γ), as a matrix."""
        found = np.zeros((size + judges, size + judges))
        found[range(size), range(size)] = self.spread**-2
        if self.features is not None and self.explained > 0:
            found[:size, :size] = np.linalg.inv(self.covariance(size))
        spots = range(size, size + judges)
        found[spots, spots] = BIAS_SD**-2
        return found

    def covariance(self, size: int) -> Floats:
        """Of the prior of θ."""
        own: Floats = self.spread**2 * np.eye(size)
        if self.features is None:
            return own
        return own + self.explained**2 * self.features @ self.features.T


PLAIN = Scale()


@dataclass(frozen=True, slots=True)
class Strengths:
    """`theta` per item, `bias` per judge (positive: the judge favours the item shown first), and how sharply the
    posterior bends around them on the blurred scale, from which their joint covariance comes when it is asked for.
    """

    theta: Floats
    bias: Floats
    curvature: Floats
    scale: Scale = PLAIN
    _memo: dict[str, Floats] = attribute(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def covariance(self) -> Floats:
        """Of (θ, γ)."""
        if "covariance" not in self._memo:
            with one_thread():
                self._memo["covariance"] = self.scale.blur**2 * np.linalg.inv(self.curvature).astype(np.float64)
        return self._memo["covariance"]

    @property
    def beginning(self) -> Strengths:
        """Where a next fit begins: without the tables that only tell how sure this one is."""
        return replace(self, curvature=np.empty((0, 0)))

    def ahead(self, i: int, j: int) -> float:
        """The chance that one item is really stronger than another."""
        c = self.covariance
        sd = sqrt(max(float(c[i, i] + c[j, j] - 2 * c[i, j]), 1e-12))
        return (1 + erf(float(self.theta[i] - self.theta[j]) / sd / sqrt(2))) / 2

    def draws(self, count: int, label: str = "draws") -> Floats:
        """`count` posterior draws of θ (rows), from fixed normals in mirrored pairs: the same every time."""
        size = len(self.theta)
        with one_thread():
            half = normals((count + 1) // 2, size, label) @ np.linalg.cholesky(self.covariance[:size, :size]).T
        draws: Floats = np.empty((2 * len(half), size))
        draws[: len(half)] = half
        np.negative(half, out=draws[len(half) :])
        draws += self.theta
        return draws[:count]


@dataclass(frozen=True, slots=True)
class Cells:
    """Results merged by (first, second, judge): games, points of the first, ties; and how each stands to the others of
    its pair: `mates` are games in the other order, by whomever, `peers` those of other judges in the same order.
    `worth` is 1, or less for pairs read off an order.
    """

    size: int
    voices: int
    first: Ints
    second: Ints
    judge: Ints
    games: Floats
    points: Floats
    ties: Floats
    mates: Floats
    peers: Floats
    worth: Floats

    def looks(self, at: Floats, part: slice = EVERY) -> Floats:
        """Z of every cell, or of some."""
        z: Floats = at[self.first[part]]
        z -= at[self.second[part]]
        z += at[self.size] if self.voices == 1 else at[self.size + self.judge[part]]
        return z

    def parts(self) -> list[slice]:
        """The cells in parts whose numbers fit the processor's cache."""
        return [slice(start, start + PART) for start in range(0, max(1, len(self.first)), PART)]

    @property
    def is_complete(self) -> bool:
        """One judge saw every pair in both orders: the cells are a matrix without its diagonal, row after row."""
        return self.voices == 1 and self.size > 1 and len(self.first) == self.size * (self.size - 1)

    @property
    def is_read_off(self) -> npt.NDArray[np.bool_]:
        """Which cells hold what was read off orders: there a pair shown again in the same sequence is the same look."""
        return self.worth < 1.0

    @property
    def has_orders(self) -> bool:
        return bool(len(self.worth)) and float(self.worth.min()) < 1.0

    def met(self, table: Floats) -> Floats:
        """Of a value for every ordered pair, those of the cells."""
        if not self.is_complete:
            found: Floats = table[self.first, self.second]
            return found
        beside: Floats = _beside_diagonal(np.ascontiguousarray(table)).ravel()
        return beside

    def table(self, values: Floats) -> Floats:
        """The reverse for one judge's cells: a matrix, zero where nobody met."""
        made = np.zeros((self.size, self.size))
        if self.is_complete:
            _beside_diagonal(made)[:] = values.reshape(self.size - 1, self.size)
        else:
            made[self.first, self.second] = values
        return made

    def weights(self, variance: Floats, scale: Scale) -> Floats:
        """What a game of each cell adds, given the others of its pair."""
        shared = (self.games - 1 + self.mates) * scale.pair + self.peers * scale.look
        if self.has_orders:
            shared += self.is_read_off * (self.games - 1) * max(scale.look - scale.pair, 0.0)
        weights: Floats = self.worth / (1 + variance * shared)
        return weights


def fit(results: Tally, scale: Scale = PLAIN) -> Strengths:
    """The posterior mode by Newton's method with halved steps where a full one would not improve."""
    with one_thread():
        return newton(merge(results), scale)


class Expectation(NamedTuple):
    """Every cell at some (θ, γ): expected points of the first, and their variance."""

    mean: Floats
    variance: Floats


def picture(cells: Cells, at: Floats, tie: float) -> Expectation:
    mean, variance = np.empty(len(cells.first)), np.empty(len(cells.first))
    for part in cells.parts():
        mean[part], variance[part], _ = spread_of(cells.looks(at, part), tie)
    return Expectation(mean, variance)


def newton(cells: Cells, scale: Scale, at: Floats | None = None, weights: Floats | None = None) -> Strengths:
    """The same from merged results, perhaps from where an earlier fit ended (on the blurred scale).

    `weights` are those of the cells there, if they are known.
    """
    precision = scale.precision(cells.size, cells.voices)
    at = _first_guess(cells, scale) if at is None else at.copy()
    if weights is None:
        weights = cells.weights(picture(cells, at, scale.tie).variance, scale)
    slope, curvature, height = shape(at, cells, precision, scale.tie, weights)
    for _ in range(_STEPS):
        step = np.linalg.solve(curvature, slope)
        del curvature
        for _ in range(_STEPS):
            slope, curvature, new_height = shape(at + step, cells, precision, scale.tie, weights)
            if new_height >= height - 1e-9:
                break
            step /= 2
        at += step
        height = new_height
        if float(np.abs(step).max(initial=0.0)) < 1e-6:  # convergence is quadratic: the error is now below 1e-11
            break
    found = np.round(scale.blur * at, _DECIMALS)
    return Strengths(found[: cells.size], found[cells.size :], curvature, scale)


def fit_without(results: Tally, strengths: Strengths, group: Ints, groups: int) -> Floats:
    """θ fitted again on the same scale had a group not taken part, one row per group.

    All of them at once, from the strengths with everybody: Newton's method on stacked matrices.
    """
    with one_thread():
        cells, scale = merge(results), strengths.scale
        total, numbers = cells.size + cells.voices, np.arange(groups)[:, None]
        took_part = (group[cells.first] != numbers) & (group[cells.second] != numbers)
        level = spread_of(cells.looks(_first_guess(cells, scale)), scale.tie)[1]
        stack = _Stack(cells, took_part * cells.weights(level, scale), scale)
        at = np.tile(np.append(strengths.theta, strengths.bias) / scale.blur, (groups, 1))
        slope, curvature, height = stack.shape(at)
        for _ in range(_STEPS):
            step = np.linalg.solve(curvature, slope[:, :, None])[:, :, 0]
            for _ in range(_STEPS):
                slope, curvature, new_height = stack.shape(at + step)
                worse = new_height < height - 1e-9
                if not worse.any():
                    break
                step[worse] /= 2
            at += step
            height = new_height
            if float(np.abs(step).max(initial=0.0)) < 1e-6:
                break
        theta: Floats = np.round(scale.blur * at, _DECIMALS)[:, : total - cells.voices]
        return theta


class _Stack:
    """The same cells with other weights in every row."""

    def __init__(self, cells: Cells, weights: Floats, scale: Scale) -> None:
        self._cells, self._weights, self._tie = cells, weights, scale.tie
        self._precision = scale.precision(cells.size, cells.voices)
        rows, total = len(weights), cells.size + cells.voices
        a, b, g = cells.first, cells.second, cells.size + cells.judge
        self._design = np.zeros((len(a), total))
        cell = np.arange(len(a))
        self._design[cell, a], self._design[cell, b], self._design[cell, g] = 1.0, -1.0, 1.0
        self._places = np.concatenate((a * total + b, a * total + g, b * total + g))
        self._places = (np.arange(rows)[:, None] * total * total + self._places).ravel()

    def shape(self, at: Floats) -> tuple[Floats, Floats, Floats]:
        """Slope, negative curvature and height, row by row."""
        cells, weights, (rows, total) = self._cells, self._weights, at.shape
        z = at @ self._design.T
        mean, variance, log_total = spread_of(z, self._tie)
        pull = at @ self._precision
        told = weights * ((cells.points - cells.games / 2) * z - cells.games * log_total)
        height: Floats = told.sum(axis=1) - np.sum(at * pull, axis=1) / 2
        slope: Floats = (weights * (cells.points - cells.games * mean)) @ self._design - pull
        bend = weights * cells.games * variance
        half = np.bincount(self._places, np.concatenate((-bend, bend, -bend), axis=1).ravel(), rows * total * total)
        half = half.reshape(rows, total, total)
        curvature: Floats = half + half.transpose(0, 2, 1) + self._precision
        curvature[:, range(total), range(total)] += bend @ np.abs(self._design)
        return slope, curvature, height


def _first_guess(cells: Cells, scale: Scale) -> Floats:
    """Strengths by the share of points alone, drawn in by the prior; from nothing where games are few."""
    guess = np.zeros(cells.size + cells.voices)
    if len(cells.games) < MANY_GAMES * cells.size:
        return guess
    a, b, size = cells.first, cells.second, cells.size
    won = np.bincount(a, cells.points, size) + np.bincount(b, cells.games - cells.points, size)
    played = np.bincount(a, cells.games, size) + np.bincount(b, cells.games, size)
    share = (won + 1) / (played + 2)
    guess[:size] = (1 + ATTENUATION * scale.spread**2 / scale.blur**2) ** 0.5 * np.log(share / (1 - share))
    return guess


def gradient(at: Floats, results: Tally) -> Floats:
    """Slope of the plain log posterior at (θ, γ); zero at the plain fit."""
    cells = merge(results)
    precision = PLAIN.precision(cells.size, cells.voices)
    return shape(at, cells, precision, PLAIN.tie, cells.worth)[0]


def _beside_diagonal(table: Floats) -> Floats:
    """A view of a square matrix without its diagonal, in the order of its memory."""
    size = len(table)
    view: Floats = table.reshape(-1)[1:].reshape(size - 1, size + 1)[:, :-1]
    return view


def _constant(values: Floats) -> Floats:
    """The same values; in no memory where they are all one number."""
    if len(values) and bool(np.all(values == values[0])):
        return np.broadcast_to(values[0], values.shape)
    return values


def merge(results: Tally) -> Cells:
    """Results of one cell together; cells in the order of (first, second, judge)."""
    size, voices = results.size, max(1, len(results.judges))
    key = cell_keys(results, voices)
    games = np.bincount(key, minlength=size * size * voices)
    found = np.flatnonzero(games)
    points: Floats = np.bincount(key, results.half_points, len(games))[found].astype(np.float64, copy=False)
    points /= 2
    ties: Floats = np.bincount(key, results.half_points == 1, len(games))[found].astype(np.float64, copy=False)
    is_alone = np.array_equal(found, key)
    del key
    pair, judge = (found, found) if voices == 1 else np.divmod(found, voices)
    # Where every cell has one game, in order: no second copy of them.
    first, second = (results.first, results.second) if is_alone else np.divmod(pair, size)
    del pair
    count = _constant(games[found].astype(np.float64))
    judge = np.broadcast_to(np.int64(0), judge.shape) if voices == 1 else judge
    worth = _worth(results.read_off, judge)
    mates, peers = _company(games, found, size, voices)
    return Cells(size, voices, first, second, judge, count, points, ties, mates, peers, worth)


def cell_keys(results: Tally, voices: int) -> Ints:
    """The number of each result's cell."""
    key: Ints = results.first * results.size
    key += results.second
    key *= voices
    key += results.judge
    return key


def _worth(read_off: tuple[bool, ...], judge: Ints) -> Floats:
    """What a game of each cell counts; one number in no memory where no pair was read off an order."""
    if not any(read_off):
        return np.broadcast_to(1.0, judge.shape)
    return np.where(np.array(read_off)[judge], ORDER_WEIGHT, 1.0)


def _company(games: Ints, found: Ints, size: int, voices: int) -> tuple[Floats, Floats]:
    """For each cell: games of its pair in the other order, by whomever; and by other judges in its own order."""
    table = games.reshape(size, size, voices)
    here, there = table, table.transpose(1, 0, 2)
    if voices == 1:
        return _constant(there.ravel()[found].astype(np.float64)), np.broadcast_to(0.0, found.shape)
    peers = here.sum(axis=2, keepdims=True) - here
    mates = np.broadcast_to(there.sum(axis=2, keepdims=True), there.shape)
    return mates.ravel()[found].astype(np.float64), peers.ravel()[found].astype(np.float64)


def spread_of(z: Floats, tie: float) -> tuple[Floats, Floats, Floats]:
    """Expected points of the first, their variance, and the log of the weights' sum."""
    win = z / 2
    np.exp(np.clip(win, -30.0, 30.0, out=win), out=win)
    total = 1 / win
    total += win
    total += tie
    mean = win + tie / 2
    mean /= total
    win += tie / 4
    win /= total
    win -= mean * mean
    return mean, win, np.log(total, out=total)


def shape(at: Floats, cells: Cells, precision: Floats, tie: float, weights: Floats) -> tuple[Floats, Floats, float]:
    """Slope, negative curvature and height of the log posterior."""
    total, height = len(at), 0.0
    ahead, behind, said = np.zeros((3, total))
    bend = np.empty(len(cells.first))
    for part in cells.parts():
        games, points, weight = cells.games[part], cells.points[part], weights[part]
        z = cells.looks(at, part)
        mean, variance, log_total = spread_of(z, tie)
        z *= points - games / 2
        log_total *= games
        z -= log_total
        height += float(weight @ z)
        mean *= games
        rest = np.subtract(points, mean, out=mean)
        rest *= weight
        ahead += np.bincount(cells.first[part], rest, total)
        behind += np.bincount(cells.second[part], rest, total)
        said += np.bincount(cells.size + cells.judge[part], rest, total)
        np.multiply(weight * games, variance, out=bend[part])
    pull = precision @ at
    curvature = _curvature(cells, bend)
    curvature += precision
    return ahead - behind + said - pull, curvature, height - float(at @ pull / 2)


def _curvature(cells: Cells, weight: Floats) -> Floats:
    """Of the log likelihood, negative."""
    if len(weight) * FEW_CELLS < cells.size**2 * cells.voices or cells.size < SMALL_FIELD:
        return _summed(cells, weight)
    return _put(cells, weight)


def _summed(cells: Cells, weight: Floats) -> Floats:
    """Cell by cell: faster where a field is small or few have met."""
    total = cells.size + cells.voices
    a, b, g = cells.first, cells.second, cells.size + cells.judge
    places = np.concatenate((a * total + b, a * total + g, b * total + g))
    half = np.bincount(places, np.concatenate((-weight, weight, -weight)), total * total).reshape(total, total)
    own = np.bincount(a, weight, total) + np.bincount(b, weight, total) + np.bincount(g, weight, total)
    curvature: Floats = (half + half.T).astype(np.float64)
    curvature[range(total), range(total)] += own
    return curvature


def _put(cells: Cells, weight: Floats) -> Floats:
    """As whole tables: each judge has one cell for an ordered pair, so cells are put, not summed."""
    size, total = cells.size, cells.size + cells.voices
    curvature = np.zeros((total, total))
    for voice in range(cells.voices):
        if cells.voices == 1:
            met = cells.table(weight)
        else:
            mine = cells.judge == voice
            met = np.zeros((size, size))
            met[cells.first[mine], cells.second[mine]] = weight[mine]
        as_first, as_second = met.sum(axis=1), met.sum(axis=0)
        curvature[:size, :size] -= met
        curvature[:size, :size] -= met.T
        curvature[range(size), range(size)] += as_first + as_second
        curvature[:size, size + voice] = as_first - as_second
        curvature[size + voice, :size] = as_first - as_second
        curvature[size + voice, size + voice] = as_first.sum()
    return curvature


class _OneThread:
    """The libraries of linear algebra, held to one thread while anybody in this process asks for it."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = Lock(), 0, [0]
        self._libraries = ThreadpoolController().lib_controllers

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = [library.num_threads for library in self._libraries]
                self._set([1] * len(self._libraries))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._set(self._before)

    def _set(self, counts: Sequence[int]) -> None:
        for library, count in zip(self._libraries, counts, strict=True):
            if library.num_threads != count:
                library.set_num_threads(count)


@lru_cache(maxsize=1)
def one_thread() -> AbstractContextManager[None]:
    """Linear algebra on one thread: the same sums in the same order, and no threads fighting over small matrices."""
    return _OneThread()


@lru_cache(maxsize=8)
def normals(rows: int, columns: int, label: str) -> Floats:
    """Fixed standard normals: Box–Muller over the 53-bit fractions of a SHAKE-256 stream."""
    count = rows * columns
    stream = hashlib.shake_256(b"clara-eval normals " + label.encode()).digest(16 * ((count + 1) // 2))
    words = (np.frombuffer(stream, dtype="<u8") >> np.uint64(11)).astype(float)
    del stream
    words += 0.5
    words /= 2.0**53
    u, v = words.reshape(2, -1)
    radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
    del words, u, v
    values = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count].reshape(rows, columns)
    values.flags.writeable = False
    return values
