"""Verdicts as columns of small integers, in one canonical order.

In come the items (their order is the canonical index) and results in any order; out goes a `Tally`: sorted columns, so
that everything computed from it is the same for every order of arrival. A result that names an unknown item or an
item against itself is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clara_eval.core.errors import BadInput
from clara_eval.ranking.results import Result, Winner

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
HALF_POINTS: dict[Winner, int] = {"first": 2, "tie": 1, "second": 0}
"""Of the item shown first; integers keep every sum exact."""
READ_OFF = "(read off an order)"
"""Behind the name of a judge: what it said about pairs by putting several in order."""


@dataclass(frozen=True, slots=True)
class Tally:
    """One row per result: canonical index of both items, index of the judge, half points (0, 1, 2) of `first`.

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
    def looks(self) -> list[tuple[int, int]]:
        return list(zip(self.first.tolist(), self.second.tolist(), strict=True))

    def in_canonical_order(self) -> Tally:
        """Sorted by (first, second, judge, verdict): the columns are the digits of one number, sorted and read back."""
        voices = max(1, len(self.judges))
        key = ((self.first * self.size + self.second) * voices + self.judge) * 3 + self.half_points
        key.sort()
        rest, half_points = np.divmod(key, 3)
        judge = np.zeros_like(rest)
        if voices > 1:
            rest, judge = np.divmod(rest, voices)
        first, second = np.divmod(rest, max(1, self.size))
        return Tally(self.items, self.judges, first, second, judge, half_points, self.read_off)

    def refuse_self_play(self) -> None:
        """Nobody is compared with himself."""
        selfish = np.flatnonzero(self.first == self.second)
        if selfish.size:
            item = self.items[int(self.first[selfish[0]])]
            raise BadInput(
                f"A result compares {item!r} with itself.", path="results", value=item, remedy="Drop this result."
            )

    def take(self, keep: npt.NDArray[np.bool_]) -> Tally:
        """The rows marked in `keep`, same items."""
        columns = (self.first[keep], self.second[keep], self.judge[keep], self.half_points[keep])
        return Tally(self.items, self.judges, *columns, self.read_off)

    def without(self, item: int) -> Tally:
        """The same had one item never entered: the others keep their order."""
        rest = self.take((self.first != item) & (self.second != item))
        first, second = (column - (column > item) for column in (rest.first, rest.second))
        items = (*self.items[:item], *self.items[item + 1 :])
        return Tally(items, self.judges, first, second, rest.judge, rest.half_points, self.read_off)

    def beside(self, other: Tally) -> Tally:
        """These rows and those of another table of the same items, whose judges are others."""
        mine, theirs = len(self.judges), len(other.judges)
        read_off = (*(self.read_off or (False,) * mine), *(other.read_off or (False,) * theirs))
        columns = ("first", "second", "half_points")
        first, second, points = (np.concatenate((getattr(self, c), getattr(other, c))) for c in columns)
        judge = np.concatenate((self.judge, other.judge + mine))
        return Tally(self.items, (*self.judges, *other.judges), first, second, judge, points, read_off)


def tally(items: Sequence[str], results: Sequence[Result], *, in_given_order: bool = False) -> Tally:
    """Columns of the results, sorted by (first, second, judge, verdict) unless the given order is asked for."""
    index = _index(items)
    columns = _Columns(*zip(*results, strict=True)) if results else _Columns((), (), (), (), ())
    grouped = any(columns.group)
    marks = map(bool, columns.group) if grouped else repeat(False)
    spoken = sorted(
        set(zip(columns.judge, marks, strict=False)) if grouped else {(j, False) for j in set(columns.judge)}
    )
    judges = tuple(f"{judge} {READ_OFF}".strip() if group else judge for judge, group in spoken)
    voices = {voice: number for number, voice in enumerate(spoken)}
    rows = _rows(index, voices, columns, grouped=grouped)
    read_off = tuple(group for _, group in spoken) if grouped else ()
    given = Tally(tuple(items), judges, *rows, read_off)
    given.refuse_self_play()
    return given if in_given_order else given.in_canonical_order()


def tally_columns(
    items: Sequence[str], first: Sequence[str], second: Sequence[str], winners: Sequence[Winner]
) -> Tally:
    """The same from three columns, by one judge without a name."""
    index = _index(items)
    count = len(first)
    columns = _Columns(tuple(first), tuple(second), tuple(winners), ("",) * count, ((),) * count)
    given = Tally(tuple(items), ("",), *_rows(index, {("", False): 0}, columns, grouped=False))
    given.refuse_self_play()
    return given.in_canonical_order()


def _index(items: Sequence[str]) -> dict[str, int]:
    index = {item: number for number, item in enumerate(items)}
    if len(index) != len(items):
        raise BadInput("An item appears twice in the list of items.", path="items", remedy="List every item once.")
    return index


def content_hash(results: Tally) -> bytes:
    """SHA-256 over names and sorted rows: the same for every order of arrival."""
    names = "\x1e".join((*results.items, "", *results.judges)).encode()
    columns = (results.first, results.second, results.judge, results.half_points)
    return sha256(names + b"".join(column.astype("<i8").tobytes() for column in columns)).digest()


def connected_groups(met: npt.NDArray[np.bool_]) -> Ints:
    """The number of its group for each item: two are in one if they met, even through others."""
    touching = met | met.T
    group = np.full(len(met), -1, dtype=np.int64)
    number = 0
    while np.any(group < 0):
        edge = np.zeros(len(met), dtype=bool)
        edge[np.argmax(group < 0)] = True
        while edge.any():
            group[edge] = number
            edge = touching[edge].any(axis=0) & (group < 0)
        number += 1
    return group


class _Columns(NamedTuple):
    """The fields of all results, one column each."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    winner: tuple[Winner, ...]
    judge: tuple[str, ...]
    group: tuple[tuple[str, ...], ...]


def _rows(
    index: dict[str, int], voices: dict[tuple[str, bool], int], columns: _Columns, *, grouped: bool
) -> tuple[Ints, Ints, Ints, Ints]:
    count = len(columns.first)
    try:
        first = np.fromiter(map(index.__getitem__, columns.first), np.int64, count)
        second = np.fromiter(map(index.__getitem__, columns.second), np.int64, count)
    except KeyError as unknown:
        raise BadInput(
            f"A result names {unknown.args[0]!r}, which is not among the items.",
            path="results",
            value=unknown.args[0],
            remedy="Add it to the items or drop the result.",
        ) from None
    judge = np.zeros(count, dtype=np.int64)
    if len(voices) > 1:
        marks = map(bool, columns.group) if grouped else repeat(False, count)
        judge = np.fromiter(map(voices.__getitem__, zip(columns.judge, marks, strict=True)), np.int64, count)
    return first, second, judge, np.fromiter(map(HALF_POINTS.__getitem__, columns.winner), np.int64, count)
