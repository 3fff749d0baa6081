"""Elo as specified (1500, K = 32), made independent of the order of results.

In come columns of results; out goes one rating per item: the mean over 100 seeded permutations of the canonically
sorted results, each processed one result after the other. What must hold: the numbers are the same on every machine.
So only +, −, ×, ÷ and exact table look-ups touch a rating (no exp of the C library, no BLAS), and the mean is an exact
sum.

How a permutation is drawn. The sorted results are shuffled once and dealt into rounds: each joins the first round in
which neither of its items plays yet; rounds wider than twice the mean are cut. No item plays twice in a round, so the
order inside a round cannot matter and a round is one vector step. Permutations 0, 2, 4 … play the rounds in random
orders of their own, 1, 3, 5 … play these backwards. Each item meets its games in uniformly random order, and the luck
left in the mean is a fifth of what 100 independent orders leave. `permutation` spells any of the 100 out as plain
positions, so that a reader can replay it with a ten-line loop.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from math import fsum

import numpy as np
import numpy.typing as npt

from clara_eval.ranking.tally import Floats, Ints

Small = npt.NDArray[np.int32]
Halves = npt.NDArray[np.float32]
START = 1500.0
K = 32.0
PERMUTATIONS = 100
DECIMALS = 6

_LOG2_10_OVER_400 = 0.008304820237218406
_LN2 = 0.6931471805599453
_STEPS = 64  # table entries per power of two: the rest is so small that four terms of the series suffice
_REACH = 64  # powers of two either way: 10^(d/400) beyond 2^±64 leaves an expectation of exactly 0 or 1
_GROUP_BYTES = 64_000_000
_STEP_SIZE = 25_000  # ratings touched in one vector step
_BLOCK = 1 << 18  # results dealt at a time: keeps the integers of `_first_fit` short


def elo(size: int, first: Ints, second: Ints, points: Floats, seed: bytes) -> Floats:
    """Mean rating of each item over the seeded permutations, rounded to 1e-6."""
    plan = draw_rounds(size, first, second, seed)
    total = np.concatenate(_play_groups(size, first, second, points, plan, seed))
    return np.array([round(fsum(column) / PERMUTATIONS, DECIMALS) for column in total.T.tolist()])


def literal_elo(size: int, first: Ints, second: Ints, points: Floats) -> Floats:
    """The specification's single pass over the results as given."""
    ratings = [START] * size
    for a, b, score in zip(first.tolist(), second.tolist(), points.tolist(), strict=True):
        change = K * (score - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400)))
        ratings[a] += change
        ratings[b] -= change
    return np.array([round(rating, DECIMALS) for rating in ratings])


def score(elo_rating: float) -> int:
    """The 0–10000 score for the chain: the expected share of points against a 1500 opponent."""
    exponent = min(max((START - elo_rating) / 400, -300.0), 300.0)
    return round(10_000 / (1 + 10**exponent))


@dataclass(frozen=True, slots=True)
class Rounds:
    """A padded table: row r lists the positions of the results of round r, −1 where nothing is."""

    table: Ints

    @property
    def count(self) -> int:
        return int(self.table.shape[0])


def draw_rounds(size: int, first: Ints, second: Ints, seed: bytes) -> Rounds:
    """Shuffle the sorted results and deal them into rounds in which no item plays twice."""
    if not len(first):
        return Rounds(np.empty((0, 1), dtype=np.int64))
    shuffled = shuffle(len(first), seed, "results")
    level = _first_fit(size, first[shuffled], second[shuffled])
    order = np.argsort(level, kind="stable")
    sizes = np.bincount(level)
    width = min(int(sizes.max()), -(-2 * len(first) // len(sizes)))
    place = np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    pieces = -(-sizes // width)
    row = np.repeat(np.cumsum(pieces) - pieces, sizes) + place // width
    table = np.full((int(pieces.sum()), width), -1, dtype=np.int64)
    table[row, place % width] = shuffled[order]
    return Rounds(table)


def permutation(plan: Rounds, seed: bytes, number: int) -> Ints:
    """Permutation `number` as positions in the sorted results, in the order in which they are processed."""
    played = plan.table[_round_order(plan, seed, number)].ravel()
    return played[played >= 0]


def _round_order(plan: Rounds, seed: bytes, number: int) -> Ints:
    """Odd permutations are the even ones backwards: what came late once comes early once, and luck cancels."""
    order = shuffle(plan.count, seed, f"permutation {number // 2}")
    return order[::-1] if number % 2 else order


def shuffle(count: int, seed: bytes, label: str) -> Ints:
    """A uniform order of 0…count−1: positions sorted by their 64-bit words of SHAKE-256(seed ‖ label)."""
    stream = hashlib.shake_256(seed + b"\x00" + label.encode()).digest(8 * count)
    return np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable")


def _first_fit(size: int, first: Ints, second: Ints) -> Ints:
    """The number of the first round in which neither item plays yet, block by block."""
    blocks: list[Ints] = []
    base = 0
    for start in range(0, len(first), _BLOCK):
        level, rounds = _deal(size, first[start : start + _BLOCK], second[start : start + _BLOCK])
        blocks.append(level + base)
        base += rounds
    return np.concatenate(blocks)


def _deal(size: int, first: Ints, second: Ints) -> tuple[Ints, int]:
    """The rounds of one block, and how many there are; those that an item has taken are bits of one integer."""
    taken = [0] * size
    level: list[int] = []
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        busy = taken[a] | taken[b]
        free = ~busy & (busy + 1)
        taken[a] |= free
        taken[b] |= free
        level.append(free.bit_length())
    return np.array(level, dtype=np.int64) - 1, max(bits.bit_length() for bits in taken)


def _play_groups(size: int, first: Ints, second: Ints, points: Floats, plan: Rounds, seed: bytes) -> list[Floats]:
    """Ratings after each permutation, computed in groups that fit the processor's cache."""
    group = max(1, min(PERMUTATIONS, _STEP_SIZE // plan.table.shape[1], _GROUP_BYTES // (8 * max(1, plan.count))))
    group = -(-PERMUTATIONS // -(-PERMUTATIONS // group))  # as even as they can be
    groups = [range(start, min(start + group, PERMUTATIONS)) for start in range(0, PERMUTATIONS, group)]
    return [_play(size, first, second, points, plan, seed, numbers) for numbers in groups]


def _play(size: int, first: Ints, second: Ints, points: Floats, plan: Rounds, seed: bytes, numbers: range) -> Floats:
    """Ratings after each of the numbered permutations, one row per permutation; one vector step per round."""
    # Padding plays between two spare items at the end of each row, so that no step needs a mask.
    left = np.append(first, size).astype(np.int32)[plan.table]
    right = np.append(second, size + 1).astype(np.int32)[plan.table]
    result = np.append(points, 0.5).astype(np.float32)[plan.table]  # 0, 1/2 and 1 are exact
    stride = size + 2
    ratings = np.full(len(numbers) * stride, START)
    offset = (np.arange(len(numbers)) * stride)[:, None]
    orders = np.array([_round_order(plan, seed, number) for number in numbers], dtype=np.int64)
    step_of = _Step((len(numbers), left.shape[1]))
    for step in orders.T:
        step_of.play(ratings, left[step], right[step], result[step], offset)
    return ratings.reshape(len(numbers), stride)[:, :size]


class _Step:
    """One vector step, in memory that is taken once: a step is short, and fresh memory costs as much as the sums."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._a, self._b = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        self._rating_a, self._rating_b, self._change = np.empty(shape), np.empty(shape), np.empty(shape)
        self._expected = Expected(shape)

    def play(self, ratings: Floats, left: Small, right: Small, result: Halves, offset: Ints) -> None:
        """Both ratings of every game by K · (points − expected), in place."""
        a, b, rating_a, rating_b, change = self._a, self._b, self._rating_a, self._rating_b, self._change
        np.add(left, offset, out=a)
        np.add(right, offset, out=b)
        ratings.take(a, out=rating_a, mode="clip")
        ratings.take(b, out=rating_b, mode="clip")
        np.subtract(rating_a, rating_b, out=change)
        np.subtract(result, self._expected.of(change), out=change)
        change *= K
        rating_a += change
        rating_b -= change
        ratings[a] = rating_a
        ratings[b] = rating_b


class Expected:
    """1 / (1 + 10^(−d/400)) from exact operations only: the same bits on every machine."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._x, self._steps, self._series = np.empty(shape), np.empty(shape), np.empty(shape)
        self._places = np.empty(shape, dtype=np.int64)

    def of(self, difference: Floats) -> Floats:
        """Overwritten by the next call."""
        x, steps, series = self._x, self._steps, self._series
        np.multiply(difference, -_LOG2_10_OVER_400 * _STEPS, out=x)  # a power of two: exact wherever it stands
        np.clip(x, -_REACH * _STEPS, _REACH * _STEPS, out=x)
        np.rint(x, out=steps)
        x -= steps
        x *= _LN2 / _STEPS
        np.multiply(x, 1 / 24, out=series)
        for term in (1 / 6, 1 / 2, 1.0):
            series += term
            series *= x
        series += 1.0
        steps += _REACH * _STEPS
        np.copyto(self._places, steps, casting="unsafe")
        series *= _powers().take(self._places, out=x, mode="clip")
        series += 1.0
        return np.divide(1.0, series, out=series)


def expected(difference: Floats) -> Floats:
    """The expected points of the first, for each difference of ratings."""
    return Expected(difference.shape).of(difference)


@lru_cache(maxsize=1)
def _powers() -> npt.NDArray[np.float64]:
    """2^(k/64) for |k| ≤ 4096, correctly rounded."""
    inner = np.array([float(Decimal(2) ** (Decimal(k) / _STEPS)) for k in range(_STEPS)])
    scale = np.array([2.0**k for k in range(-_REACH, _REACH)])
    return np.append((scale[:, None] * inner).ravel(), 2.0**_REACH)
