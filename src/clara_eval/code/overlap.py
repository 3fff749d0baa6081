"""Count what entries have in common: all pairs exactly, by features as 64-bit numbers.

Invariant: a pair costs what it shares. Of an entry with more than `LARGEST` features a sample is compared, drawn by the
key of the hashes, the same for all entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clara_eval.code.tokens import NO_HASHES, Hashes

LARGEST = 1024
"""Features of one entry that are compared: shares are then right to about 3 percentage points (1/√1024)."""
_LEVELS = 24
"""Halvings of the sample that are possible: 2^24 features are more than an entry can have."""
_BOUNDS = np.array([0xFFFFFFFFFFFFFFFF >> shift for shift in range(_LEVELS)], dtype=np.uint64)
_AT_ONCE = 4_000_000
"""Shared features counted in one go: about 100 MB, however alike the entries are."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(31)
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """The features of one entry, or a sample of them: sorted, each once, with what each counts as evidence."""

    hashes: Hashes
    weights: Ints
    level: int = 0
    """The sample holds every number below 2^(64 − level)."""

    @classmethod
    def of(cls, hashes: Hashes, weights: Ints | None = None) -> FeatureSet:
        """Sample the features; the second occurrence of one is another feature. Without weights each counts 1."""
        order = np.argsort(hashes, kind="stable")
        hashes, first = np.unique(_numbered(hashes[order]), return_index=True)
        weights = np.ones(len(hashes), dtype=np.int64) if weights is None else weights[order][first]
        level = max(0, (len(hashes) - 1).bit_length() - LARGEST.bit_length() + 1) if len(hashes) else 0
        kept = slice(int(np.searchsorted(hashes, _BOUNDS[level], side="right")))
        return cls(hashes[kept], weights[kept], level)

    @property
    def amount(self) -> int:
        """The weight of all features of the entry, estimated from the sample."""
        return int(self.weights.sum()) << self.level

    def without(self, dropped: Bools) -> FeatureSet:
        """Drop the marked features."""
        return FeatureSet(self.hashes[~dropped], self.weights[~dropped], self.level)


def _numbered(hashes: Hashes) -> Hashes:
    """Make repeated numbers different, for sorted ones."""
    places = np.arange(len(hashes))
    is_first = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
    times = (places - np.maximum.accumulate(np.where(is_first, places, 0))).astype(np.uint64)
    mixed = (hashes + times * _MIX) * _MIX
    return np.where(is_first, hashes, mixed ^ (mixed >> _SHIFT))


@dataclass(frozen=True, slots=True)
class Shared:
    """What one set has in common with each earlier one."""

    of_earlier: npt.NDArray[np.float64]
    """The share of the earlier one's features."""
    of_later: npt.NDArray[np.float64]
    amount: Ints
    """The weight of the common features, estimated from the coarser sample."""


def shared_by(sets: Sequence[FeatureSet]) -> Iterator[Shared]:
    """For each set what it shares with every earlier one, through an inverted index."""
    level = np.array([one.level for one in sets], dtype=np.int64)
    levels = 1 + max(level.tolist(), default=0)
    sizes = np.array([np.searchsorted(one.hashes, _BOUNDS[:levels], side="right") for one in sets], dtype=np.int64)
    owners, start, before, ends = _index(sets)
    for later in range(len(sets)):
        mine = slice(ends[later], ends[later + 1])
        common, weight = _counted(owners, start[mine], before[mine], sets[later].weights, later)
        pair = np.maximum(level[:later], level[later])
        theirs, own = sizes[np.arange(later), pair], sizes[later, pair] if later else np.zeros(0, dtype=np.int64)
        yield Shared(common / np.maximum(theirs, 1), common / np.maximum(own, 1), weight << pair)


def common_features(sets: Sequence[FeatureSet], group: Ints, least: int) -> list[Bools]:
    """For each set, which of its features at least so many groups other than its own hold."""
    everything = np.concatenate([*(one.hashes for one in sets), NO_HASHES])
    lengths = [len(one.hashes) for one in sets]
    owner = np.repeat(group, lengths)
    order = np.lexsort((owner, everything))
    is_new = np.append(True, everything[order][1:] != everything[order][:-1])[: len(order)]
    is_run = is_new | np.append(True, owner[order][1:] != owner[order][:-1])[: len(order)]
    feature = np.cumsum(is_new) - 1
    groups = np.bincount(feature[is_run]) if len(order) else np.zeros(0, dtype=np.int64)
    is_common = np.empty(len(order), dtype=bool)
    is_common[order] = groups[feature] - 1 >= least
    return np.split(is_common, np.cumsum(lengths)[:-1]) if sets else []


def _index(sets: Sequence[FeatureSet]) -> tuple[Ints, Ints, Ints, Ints]:
    """The owners of each feature, feature after feature; of each set's features where their owners begin, and how many
    of them are earlier; where each set's features begin.
    """
    lengths = [len(one.hashes) for one in sets]
    everything = np.concatenate([*(one.hashes for one in sets), NO_HASHES])
    by_feature = np.argsort(everything, kind="stable")
    features = everything[by_feature]
    first = np.searchsorted(features, features)
    start, before = np.empty(len(features), dtype=np.int64), np.empty(len(features), dtype=np.int64)
    start[by_feature], before[by_feature] = first, np.arange(len(features)) - first
    owners = np.repeat(np.arange(len(sets)), lengths)[by_feature]
    return owners, start, before, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _counted(owners: Ints, start: Ints, before: Ints, weights: Ints, later: int) -> tuple[Ints, Ints]:
    """Number and weight of the features that each earlier set holds too.

    From `start` on, `before` owners of each feature are earlier.
    """
    common, weight, total = np.zeros(later, dtype=np.int64), np.zeros(later), int(before.sum())
    size = max(1, -(-len(before) // (1 + total // _AT_ONCE)))
    for part in [slice(place, place + size) for place in range(0, len(before) if total else 0, size)]:
        ahead = before[part]
        jumps = np.repeat(start[part] - (np.cumsum(ahead) - ahead), ahead)
        earlier = owners[jumps + np.arange(len(jumps))]
        common += np.bincount(earlier, minlength=later)
        weight += np.bincount(earlier, weights=np.repeat(weights[part], ahead), minlength=later)
    return common, weight.astype(np.int64)
