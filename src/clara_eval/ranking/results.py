"""The data of a tournament: questions to judges, results as columns of integers, equal records.

Invariant: the order of the columns does not depend on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from math import comb, fsum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clara_eval.core.errors import BadInput
from clara_eval.core.model import Winner

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
HALF_POINTS: dict[Winner, int] = {"first": 2, "tie": 1, "second": 0}  # of the item shown first; integers for exact sums
READ_OFF = "(read off an order)"


@dataclass(frozen=True, slots=True, order=True)
class Pairing:
    """One question: `first` is shown as A, `second` as B, to one judge."""

    first: str
    second: str
    judge: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """One question about several items, in the sequence shown to one judge, who puts them in order."""

    items: tuple[str, ...]
    judge: str = ""

    def read_off(self, best_first: Sequence[str]) -> list[Result]:
        """Turn an order of these items into a result for each pair; the item shown earlier is first."""
        place = {item: number for number, item in enumerate(best_first)}
        if sorted(place) != sorted(self.items) or len(best_first) != len(self.items):
            raise BadInput("An order must name every item of its group once.", path="order", value=list(best_first))
        return [
            Result(a, b, "first" if place[a] < place[b] else "second", self.judge, self.items)
            for a, b in combinations(self.items, 2)
        ]


class Result(NamedTuple):
    """One verdict on a pair; `group` has all items shown together, if it was read off an order."""

    first: str
    second: str
    winner: Winner
    judge: str = ""
    group: tuple[str, ...] = ()

    @property
    def question(self) -> Pairing | Group:
        return Group(self.group, self.judge) if self.group else Pairing(self.first, self.second, self.judge)


@dataclass(frozen=True, slots=True)
class Field:
    """Items, judges, and the most questions that may be asked in total (None: no limit)."""

    items: tuple[str, ...]
    judges: tuple[str, ...] = ("",)
    max_comparisons: int | None = None

    def __post_init__(self) -> None:
        if len(set(self.items)) != len(self.items):
            raise BadInput("An item appears twice in the tournament.", path="items", remedy="List every item once.")
        if not self.judges or len(set(self.judges)) != len(self.judges):
            raise BadInput("A tournament needs judges, each listed once.", path="judges", value=self.judges)

    @property
    def looks(self) -> int:
        """How many ordered pairs may be shown; each costs one question per judge."""
        everything = 2 * comb(len(self.items), 2)
        most = everything * len(self.judges) if self.max_comparisons is None else max(0, self.max_comparisons)
        return min(everything, most // len(self.judges))

    def most_questions(self, orders: int) -> int:
        return min(orders * comb(len(self.items), 2), self.looks) * len(self.judges)


def balanced_columns(size: int) -> tuple[Ints, Ints]:
    """Return every pair i < j once, i first if i + j is odd, so that each item is A as often as B (±1)."""
    low, high = np.triu_indices(size, 1)
    is_odd = (low + high) % 2 == 1
    return np.where(is_odd, low, high), np.where(is_odd, high, low)


def checked_payout(winner_count: int, payout_bps: Sequence[int] | None) -> tuple[int, ...]:
    """Return valid shares, by default an equal split with the rest for the last, as in the contract."""
    if winner_count < 1:
        problem = f"{winner_count} winners asked for."
        raise BadInput(problem, path="winner_count", value=winner_count, remedy="At least one wins.")
    share = 10_000 // winner_count
    equal = (*[share] * (winner_count - 1), 10_000 - share * (winner_count - 1))
    payout = equal if payout_bps is None else tuple(payout_bps)
    if len(payout) != winner_count or sum(payout) != 10_000 or min(payout) < 0:
        problem = f"The payout {list(payout)} does not fit {winner_count} winners."
        remedy = "Give one share in basis points for each winner; together they are 10000."
        raise BadInput(problem, path="payout_bps", value=payout, remedy=remedy)
    return payout


@dataclass(frozen=True, slots=True)
class Tally:
    """Results as columns: indices of both items and of the judge, half points (0, 1, 2) of the first.

    Pairs read off an order of four count as a separate judge, marked in `read_off` (empty: there are none).
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
        """Symmetric table of the number of results for each pair of items."""
        key = self.first * self.size + self.second
        shown = np.bincount(key, minlength=self.size**2).reshape(self.size, self.size)
        return np.asarray(shown + shown.T, dtype=np.float64)

    @property
    def is_complete(self) -> bool:
        return int(np.count_nonzero(self.met)) == self.size * (self.size - 1)

    def without_repeats(self) -> tuple[Ints, Ints, Floats]:
        """Return first, second and mean points per judge and sequence; as asked, else as read off an order."""
        names = [name.removesuffix(READ_OFF).strip() for name in self.judges]
        name_index = np.array([names.index(name) for name in names], dtype=np.int64)[self.judge]
        key = (self.first * self.size + self.second) * len(names) + name_index
        asked = ~np.isin(self.judge, np.flatnonzero(self.read_off))
        counts = asked | ~np.isin(key, key[asked])
        found, place = np.unique(key[counts], return_inverse=True)
        sequence = found // len(names)
        return sequence // self.size, sequence % self.size, np.bincount(place, self.points[counts]) / np.bincount(place)

    def by_pair(self) -> Tally:
        """Sort the rows by lower item, higher item and judge, regardless of which was shown first."""
        order = np.lexsort((self.judge, np.maximum(self.first, self.second), np.minimum(self.first, self.second)))
        columns = self.first[order], self.second[order], self.judge[order], self.half_points[order]
        return Tally(self.items, self.judges, *columns, self.read_off)

    def without(self, out: Collection[int]) -> Tally:
        """Drop these items and their results; the others keep their order."""
        stays = ~np.isin(np.arange(self.size), list(out))
        keep = stays[self.first] & stays[self.second]
        place = np.cumsum(stays) - 1
        items = tuple(item for item, stay in zip(self.items, stays, strict=True) if stay)
        columns = (place[self.first[keep]], place[self.second[keep]], self.judge[keep], self.half_points[keep])
        return Tally(items, self.judges, *columns, self.read_off)


def tally(items: Sequence[str], results: Sequence[Result], *, in_given_order: bool = False) -> Tally:
    """Turn results into columns, sorted by (first, second, judge, verdict) unless `in_given_order`."""
    index = {item: number for number, item in enumerate(items)}
    if len(index) != len(items):
        raise BadInput("An item appears twice in the list of items.", path="items", remedy="List every item once.")
    sources = sorted({(result.judge, bool(result.group)) for result in results})
    number = {source: place for place, source in enumerate(sources)}
    try:
        rows = [
            (index[r.first], index[r.second], number[r.judge, bool(r.group)], HALF_POINTS[r.winner]) for r in results
        ]
    except KeyError as unknown:
        problem = f"A result names {unknown.args[0]!r}, which is not among the items."
        remedy = "Add it to the items or drop the result."
        raise BadInput(problem, path="results", value=unknown.args[0], remedy=remedy) from None
    first, second, judge, half_points = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    if (alone := np.flatnonzero(first == second)).size:
        item = items[int(first[alone[0]])]
        problem = f"A result compares {item!r} with itself."
        raise BadInput(problem, path="results", value=item, remedy="Drop this result.")
    order = slice(None) if in_given_order else np.lexsort((half_points, judge, second, first))
    names = tuple(f"{judge} {READ_OFF}".strip() if group else judge for judge, group in sources)
    read_off = tuple(group for _, group in sources) if any(group for _, group in sources) else ()
    return Tally(tuple(items), names, first[order], second[order], judge[order], half_points[order], read_off)


def content_hash(results: Tally) -> bytes:
    """Return the SHA-256 of names and rows, which does not depend on the order of arrival."""
    names = "\x1e".join((*results.items, "", *results.judges)).encode()
    columns = (results.first, results.second, results.judge, results.half_points)
    return sha256(names + b"".join(column.astype("<i8").tobytes() for column in columns)).digest()


def connected_groups(met: Bools) -> Ints:
    """Number the connected components of the graph of items that met."""
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


def equal_records(table: Tally) -> Ints:
    """Return the class of each item: equal points, and equally many results against each class."""
    size, met = table.size, table.met
    gained = np.bincount(table.first, table.half_points, size) + np.bincount(table.second, 2 - table.half_points, size)
    classes: Ints = np.unique(gained, return_inverse=True)[1].astype(np.int64)
    if np.all(met + met[:1, 1:2] * np.eye(size) == met[:1, 1:2]):
        return classes  # all pairs met equally often, so no class can split
    while True:
        members = classes[:, None] == np.arange(classes.max(initial=-1) + 1)
        rows = np.column_stack((classes, met @ members))  # exact: the counts are far below 2^53
        finer: Ints = np.unique(rows, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
        if finer.max(initial=-1) == classes.max(initial=-1):
            return classes
        classes = finer


def average_classes(ratings: Floats, classes: Ints, decimals: int) -> Floats:
    """Give all members of a class their mean rating, from an exact sum, rounded."""
    members: dict[int, list[int]] = {}
    for item, number in enumerate(classes.tolist()):
        members.setdefault(number, []).append(item)
    averaged = ratings.copy()
    for group in members.values():
        if len(group) > 1:
            averaged[group] = round(fsum(ratings[group].tolist()) / len(group), decimals)
    return averaged


def sort_items(
    items: Sequence[str],
    ratings: Floats,
    arrival: Mapping[str, int],
    *,
    by_name: bool,
    among: Iterable[int] | None = None,
) -> list[int]:
    """Return indices, best first; equals by arrival, then by name (`by_name`) or index."""
    latest = max(arrival.values(), default=0) + 1
    return sorted(
        range(len(items)) if among is None else among,
        key=lambda i: (-ratings[i], arrival.get(items[i], latest), items[i] if by_name else "", i),
    )


def group_ties(order: Sequence[int], ratings: Floats) -> list[list[int]]:
    """Return the groups of items with exactly equal ratings, best first."""
    groups: dict[float, list[int]] = {}
    for i in order:
        groups.setdefault(float(ratings[i]), []).append(i)
    return [group for group in groups.values() if len(group) > 1]
