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

from clara_eval.errors import BadInput
from clara_eval.tournament.results import Result, Winner

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
    index = {item: number for number, item in enumerate(items)}
    if len(index) != len(items):
        raise BadInput("An item appears twice in the list of items.", path="items", remedy="List every item once.")
    columns = _Columns(*zip(*results, strict=True)) if results else _Columns((), (), (), (), ())
    grouped = any(columns.group)
    marks = map(bool, columns.group) if grouped else repeat(False)
    spoken = sorted(
        set(zip(columns.judge, marks, strict=False)) if grouped else {(j, False) for j in set(columns.judge)}
    )
    judges = tuple(f"{judge} {READ_OFF}".strip() if group else judge for judge, group in spoken)
    voices = {voice: number for number, voice in enumerate(spoken)}
    rows = _rows(index, voices, columns, grouped=grouped)
    _refuse_self_play(rows, items)
    if not in_given_order:
        key = ((rows[0] * len(items) + rows[1]) * max(1, len(judges)) + rows[2]) * 3 + rows[3]
        rows = rows[:, np.argsort(key, kind="stable")]
    read_off = tuple(group for _, group in spoken) if grouped else ()
    return Tally(tuple(items), judges, rows[0], rows[1], rows[2], rows[3], read_off)


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


def _rows(index: dict[str, int], voices: dict[tuple[str, bool], int], columns: _Columns, *, grouped: bool) -> Ints:
    rows = np.empty((4, len(columns.first)), dtype=np.int64)
    try:
        rows[0] = list(map(index.__getitem__, columns.first))
        rows[1] = list(map(index.__getitem__, columns.second))
    except KeyError as unknown:
        raise BadInput(
            f"A result names {unknown.args[0]!r}, which is not among the items.",
            path="results",
            value=unknown.args[0],
            remedy="Add it to the items or drop the result.",
        ) from None
    if len(voices) > 1:
        marks = map(bool, columns.group) if grouped else repeat(False, len(columns.judge))
        rows[2] = list(map(voices.__getitem__, zip(columns.judge, marks, strict=True)))
    else:
        rows[2] = 0
    rows[3] = list(map(HALF_POINTS.__getitem__, columns.winner))
    return rows


def _refuse_self_play(rows: Ints, items: Sequence[str]) -> None:
    selfish = np.flatnonzero(rows[0] == rows[1])
    if selfish.size:
        item = items[int(rows[0, selfish[0]])]
        raise BadInput(
            f"A result compares {item!r} with itself.", path="results", value=item, remedy="Drop this result."
        )
