"""Who is compared, by whom, and how often at most."""

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
    """Items, judges, and how many questions may be asked in all (None: no limit)."""

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
        """Ordered pairs that may be shown: a look costs one question for each judge."""
        everything = 2 * comb(len(self.items), 2)
        most = everything * len(self.judges) if self.max_comparisons is None else max(0, self.max_comparisons)
        return min(everything, most // len(self.judges))

    def looks_left(self, questions: int) -> int:
        """How many more looks may be shown after so many questions."""
        return self.looks - -(-questions // len(self.judges))

    def most_questions(self, orders: int) -> int:
        return min(orders * comb(len(self.items), 2), self.looks) * len(self.judges)

    def pairings(self, looks: Sequence[tuple[int, int]]) -> list[Pairing]:
        return [Pairing(self.items[a], self.items[b], judge) for a, b in looks for judge in self.judges]


def balanced_looks(size: int) -> Iterator[tuple[int, int]]:
    """Every pair i < j once; i is shown first if i + j is odd, so each item is A as often as B (±1)."""
    return zip(*(column.tolist() for column in balanced_columns(size)), strict=True)


def balanced_columns(size: int) -> tuple[Ints, Ints]:
    """The balanced looks as two columns of indices."""
    low, high = np.triu_indices(size, 1)
    is_odd = (low + high) % 2 == 1
    return np.where(is_odd, low, high), np.where(is_odd, high, low)
