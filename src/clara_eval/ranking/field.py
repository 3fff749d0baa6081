"""Who is compared, by whom, and how often at most: what every schedule starts from.

In: items, judges and a limit; out: the comparisons that a look at an ordered pair means. Refuses whoever is listed
twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from clara_eval.core.errors import BadInput
from clara_eval.ranking.results import Pairing
from clara_eval.ranking.tally import Ints


@dataclass(frozen=True, slots=True)
class Field:
    """Who plays, who judges and how many comparisons may be asked in all (None: no limit)."""

    items: tuple[str, ...]
    judges: tuple[str, ...] = ("",)
    max_comparisons: int | None = None

    def __post_init__(self) -> None:
        if len(set(self.items)) != len(self.items):
            raise BadInput("An item appears twice in the tournament.", path="items", remedy="List every item once.")
        if not self.judges or len(set(self.judges)) != len(self.judges):
            raise BadInput("A tournament needs judges, each listed once.", path="judges", value=self.judges)

    @property
    def looks(self) -> int | None:
        """Ordered pairs that may be shown: a look costs one comparison for each judge."""
        return None if self.max_comparisons is None else max(0, self.max_comparisons) // len(self.judges)

    def most_questions(self, orders: int) -> int:
        """Every pair in one or both orders for every judge, or what may be asked in all."""
        everything = orders * comb(len(self.items), 2)
        return min(everything, everything if self.looks is None else self.looks) * len(self.judges)

    def pairings(self, looks: Sequence[tuple[int, int]]) -> list[Pairing]:
        """Each look for every judge."""
        return [Pairing(self.items[a], self.items[b], judge) for a, b in looks for judge in self.judges]


def balanced_looks(size: int) -> Iterator[tuple[int, int]]:
    """Every pair i < j once; i is shown first if i + j is odd, so that everybody is A as often as B (±1)."""
    for i in range(size):
        for j in range(i + 1, size):
            yield (i, j) if (i + j) % 2 else (j, i)


def balanced_columns(size: int) -> tuple[Ints, Ints]:
    """The same as two columns of indices."""
    low, high = np.triu_indices(size, 1)
    is_odd = (low + high) % 2 == 1
    return np.where(is_odd, low, high), np.where(is_odd, high, low)


def is_shown(schedule: str, size: int, count: int, first: int, second: int) -> bool:
    """Whether a look at these two, in this order, is among the first `count` of `full` or `both`."""
    low, high = min(first, second), max(first, second)
    place = low * size - low * (low + 1) // 2 + high - low - 1
    is_balanced = (first == low) == bool((low + high) % 2)
    if not is_balanced and schedule != "both":
        return False
    return place + (0 if is_balanced else comb(size, 2)) < count
