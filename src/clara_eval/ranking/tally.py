"""Verdicts as columns of small integers, in one canonical order whatever the order of arrival."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from clara_eval.core.constants import Winner
from clara_eval.core.errors import BadInput
from clara_eval.ranking.results import Floats, Ints, Result

HALF_POINTS: dict[Winner, int] = {"first": 2, "tie": 1, "second": 0}  # of the item shown first: exact sums
READ_OFF = "(read off an order)"


@dataclass(frozen=True, slots=True)
class Tally:
    """One row per result: canonical index of both items, index of the judge, half points (0, 1, 2) of the first.

    Pairs read off an order of four are a judge of their own, marked in `read_off` (empty: none are).
    """

    items: tuple[str, ...]
    judges: tuple[str, ...]
    first: Ints
    second: Ints
    judge: Ints
    half_points: Ints
    read_off: tuple[bool, ...] = ()

    @property
    def size(self) -> int:
        return len(self.items)

    @property
    def points(self) -> Floats:
        return self.half_points / 2.0

    @property
    def met(self) -> Floats:
        """How many results each two items have, as a symmetric table."""
        key = self.first * self.size + self.second
        shown = np.bincount(key, minlength=self.size**2).reshape(self.size, self.size)
        met: Floats = (shown + shown.T).astype(np.float64)
        return met

    @property
    def is_complete(self) -> bool:
        """Whether every pair has a verdict."""
        return int(np.count_nonzero(self.met)) == self.size * (self.size - 1)

    def without_repeats(self) -> tuple[Ints, Ints, Floats]:
        """First, second and mean points of every sequence of two that a judge saw, asked or read off, once."""
        names = [name.removesuffix(READ_OFF).strip() for name in self.judges]
        voice = np.array([names.index(name) for name in names], dtype=np.int64)[self.judge]
        key = (self.first * self.size + self.second) * len(names) + voice
        found, place = np.unique(key, return_inverse=True)
        sequence = found // len(names)
        return sequence // self.size, sequence % self.size, np.bincount(place, self.points) / np.bincount(place)

    def by_pair(self) -> Tally:
        """The rows by lower item, higher item and judge, in whatever sequence the two were shown."""
        order = np.lexsort((self.judge, np.maximum(self.first, self.second), np.minimum(self.first, self.second)))
        columns = self.first[order], self.second[order], self.judge[order], self.half_points[order]
        return Tally(self.items, self.judges, *columns, self.read_off)

    def without(self, out: Collection[int]) -> Tally:
        """Leave items and their results out; the others keep their order."""
        stays = ~np.isin(np.arange(self.size), list(out))
        keep = stays[self.first] & stays[self.second]
        place = np.cumsum(stays) - 1
        items = tuple(item for item, stay in zip(self.items, stays, strict=True) if stay)
        columns = (place[self.first[keep]], place[self.second[keep]], self.judge[keep], self.half_points[keep])
        return Tally(items, self.judges, *columns, self.read_off)


def tally(items: Sequence[str], results: Sequence[Result], *, in_given_order: bool = False) -> Tally:
    """Turn results into columns, sorted by (first, second, judge, verdict) unless the given order is asked for."""
    index = {item: number for number, item in enumerate(items)}
    if len(index) != len(items):
        raise BadInput("An item appears twice in the list of items.", path="items", remedy="List every item once.")
    voices = sorted({(result.judge, bool(result.group)) for result in results})
    number = {voice: place for place, voice in enumerate(voices)}
    try:
        rows = [
            (index[r.first], index[r.second], number[r.judge, bool(r.group)], HALF_POINTS[r.winner]) for r in results
        ]
    except KeyError as unknown:
        told = f"A result names {unknown.args[0]!r}, which is not among the items."
        remedy = "Add it to the items or drop the result."
        raise BadInput(told, path="results", value=unknown.args[0], remedy=remedy) from None
    first, second, judge, half_points = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    if (alone := np.flatnonzero(first == second)).size:
        item = items[int(first[alone[0]])]
        told = f"A result compares {item!r} with itself."
        raise BadInput(told, path="results", value=item, remedy="Drop this result.")
    order = slice(None) if in_given_order else np.lexsort((half_points, judge, second, first))
    names = tuple(f"{judge} {READ_OFF}".strip() if group else judge for judge, group in voices)
    read_off = tuple(group for _, group in voices) if any(group for _, group in voices) else ()
    return Tally(tuple(items), names, first[order], second[order], judge[order], half_points[order], read_off)


def content_hash(results: Tally) -> bytes:
    """SHA-256 over names and sorted rows: the same for every order of arrival."""
    names = "\x1e".join((*results.items, "", *results.judges)).encode()
    columns = (results.first, results.second, results.judge, results.half_points)
    return sha256(names + b"".join(column.astype("<i8").tobytes() for column in columns)).digest()


def connected_groups(met: npt.NDArray[np.bool_]) -> Ints:
    """Number the groups of items that met, even through others; `met` is symmetric."""
    group = np.full(len(met), -1, dtype=np.int64)
    number = 0
    while np.any(group < 0):
        edge = np.zeros(len(met), dtype=bool)
        edge[np.argmax(group < 0)] = True
        while edge.any():
            group[edge] = number
            edge = met[edge].any(axis=0) & (group < 0)
        number += 1
    return group
