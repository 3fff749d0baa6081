"""Elo ratings (1500, K = 32) that do not depend on the order of results.

r_first += K (points − E), r_second −= K (points − E), E = 1 / (1 + 10^((r_second − r_first) / 400)), and then the mean
over 100 seeded permutations of the results. All formulas: docs/trace-format.md, section 9.
Invariant: every machine computes equal bits, so ratings use only +, −, ×, ÷, exact tables and exact sums.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from functools import lru_cache
from math import fsum

import numpy as np

from clara_eval.ranking.results import Floats, Ints

START, K = 1500.0, 32.0  # from the specification
PERMUTATIONS = 100  # the order still changes a mean by a few points, a tenth of its effect on a single pass
DECIMALS = 6  # coarser than rounding errors, finer than the effect of one result
_BLOCK = 1 << 18  # results per call of `_assign_rounds`: bounds its bit sets
_LOG2_10_OVER_400, _LN2 = 0.008304820237218406, 0.6931471805599453
_STEPS, _MAX_EXPONENT = 64, 64  # table entries per power of two; beyond 2^±64, E is within 1e-19 of 0 or 1


def elo(size: int, first: Ints, second: Ints, points: Floats, seed: bytes) -> Floats:
    """Return the mean rating of each item over the seeded permutations, rounded to 1e-6."""
    rows = deal_rounds(size, first, second, seed)
    # Empty places are games between two dummy items, so that no step needs a mask.
    sides = np.stack((np.append(first, size)[rows], np.append(second, size + 1)[rows]))
    result = np.append(points, 0.5)[rows]
    ratings = np.full((PERMUTATIONS, size + 2), START)
    flat, offset = ratings.reshape(-1), np.arange(PERMUTATIONS)[:, None] * (size + 2)  # a flat index is faster
    for step in np.array([row_order(rows, seed, number) for number in range(PERMUTATIONS)], dtype=np.int64).T:
        places = sides.take(step, axis=1) + offset
        both = flat.take(places)
        surprise = result.take(step, axis=0) - expected(both[0] - both[1])
        flat[places] = both + np.multiply.outer((K, -K), surprise)
    return np.array([round(fsum(column) / PERMUTATIONS, DECIMALS) for column in ratings[:, :size].T.tolist()])


def literal_elo(size: int, first: Ints, second: Ints, points: Floats) -> Floats:
    """Return the ratings after the specification's single pass over the results in the given order."""
    ratings = [START] * size
    for a, b, score in zip(first.tolist(), second.tolist(), points.tolist(), strict=True):
        change = K * (score - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400)))
        ratings[a] += change
        ratings[b] -= change
    return np.array([round(rating, DECIMALS) for rating in ratings])


def chain_score(rating: float) -> int:
    """Return the on-chain score, 0–10000: the expected share of points against a 1500 opponent."""
    exponent = min(max((START - rating) / 400, -300.0), 300.0)
    return round(10_000 / (1 + 10**exponent))


def deal_rounds(size: int, first: Ints, second: Ints, seed: bytes) -> Ints:
    """Deal the shuffled results into rounds of bounded width; return their positions, −1 for empty places."""
    if not len(first):
        return np.empty((0, 1), dtype=np.int64)
    shuffled = shuffle(len(first), seed, "results")
    level = _assign_rounds(size, first[shuffled], second[shuffled])
    sizes = np.bincount(level)
    width = min(int(sizes.max()), -(-2 * len(first) // len(sizes)))
    place = np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    row_counts = -(-sizes // width)
    row = np.repeat(np.cumsum(row_counts) - row_counts, sizes) + place // width
    rows = np.full((int(row_counts.sum()), width), -1, dtype=np.int64)
    rows[row, place % width] = shuffled[np.argsort(level, kind="stable")]
    return rows


@lru_cache(maxsize=64)  # rows are played forwards and backwards, and again when verdicts are reversed
def shuffle(count: int, seed: bytes, label: str) -> Ints:
    """Return 0…count−1 sorted by the 64-bit words of SHAKE-256(seed ‖ 0 ‖ label)."""
    stream = hashlib.shake_256(seed + b"\x00" + label.encode()).digest(8 * count)
    order = np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable")
    order.flags.writeable = False
    return order


def row_order(rows: Ints, seed: bytes, number: int) -> Ints:
    order = shuffle(len(rows), seed, f"permutation {number // 2}")
    return order[::-1] if number % 2 else order


def _assign_rounds(size: int, first: Ints, second: Ints) -> Ints:
    """Assign each result the first round in which neither item plays yet; an item's rounds are a bit set."""
    level: list[int] = []
    for start in range(0, len(first), _BLOCK):
        last, taken, block = max(level, default=-1), [0] * size, slice(start, start + _BLOCK)
        for a, b in zip(first[block].tolist(), second[block].tolist(), strict=True):
            busy = taken[a] | taken[b]
            free = ~busy & (busy + 1)
            taken[a] |= free
            taken[b] |= free
            level.append(last + free.bit_length())
    return np.array(level, dtype=np.int64)


def expected(difference: Floats) -> Floats:
    """Return E = 1 / (1 + 10^(−d/400)), by operations that round alike on every machine."""
    x = np.clip(difference * (-_LOG2_10_OVER_400 * _STEPS), -_MAX_EXPONENT * _STEPS, _MAX_EXPONENT * _STEPS)
    steps = np.rint(x)
    x = (x - steps) * (_LN2 / _STEPS)
    series = (((x * (1 / 24) + 1 / 6) * x + 1 / 2) * x + 1.0) * x + 1.0
    powers = _powers_of_two()[steps.astype(np.int64) + _MAX_EXPONENT * _STEPS]
    return np.asarray(1.0 / (series * powers + 1.0))


@lru_cache(maxsize=1)
def _powers_of_two() -> Floats:
    """Return 2^(k/64) for |k| ≤ 4096, correctly rounded."""
    inner = np.array([float(Decimal(2) ** (Decimal(k) / _STEPS)) for k in range(_STEPS)])
    scale = np.array([2.0**k for k in range(-_MAX_EXPONENT, _MAX_EXPONENT)])
    return np.append((scale[:, None] * inner).ravel(), 2.0**_MAX_EXPONENT)
