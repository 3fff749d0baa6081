"""Who is compared and paid, the questions to a judge, and what it answered.

Invariant: the canonical order of items is a hash over challenge and submission, never arrival, so submitting early
gains no side and no index. A question without a valid verdict has no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clara_eval.core.constants import Winner
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, order=True)
class Pairing:
    """One question: `first` is shown as A, `second` as B, to one judge."""

    first: str
    second: str
    judge: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """One question about several: `items` as they are shown, to one judge; the answer is an order of them."""

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
    """One verdict on `first` (shown as A) and `second`; `group` has the four shown together, if it is from an order."""

    first: str
    second: str
    winner: Winner
    judge: str = ""
    group: tuple[str, ...] = ()

    @property
    def question(self) -> Pairing | Group:
        return Group(self.group, self.judge) if self.group else Pairing(self.first, self.second, self.judge)


def canonical_order(challenge_id: str, submission_hashes: Mapping[str, str]) -> tuple[str, ...]:
    """Sort items by keccak(challengeId ‖ submissionHash), then by id; 0x-hex counts as bytes, other ids as UTF-8."""
    prefix = _bytes(challenge_id)
    key = {item: keccak_hex(prefix + _bytes(own)) for item, own in submission_hashes.items()}
    return tuple(sorted(key, key=lambda item: (key[item], item)))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


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


def balanced_columns(size: int) -> tuple[Ints, Ints]:
    """Every pair i < j once; i is shown first if i + j is odd, so each item is A as often as B (±1)."""
    low, high = np.triu_indices(size, 1)
    is_odd = (low + high) % 2 == 1
    return np.where(is_odd, low, high), np.where(is_odd, high, low)


def checked_payout(winner_count: int, payout_bps: Sequence[int] | None) -> tuple[int, ...]:
    """The shares as given, or an equal split in which the last winner takes the rest, as in the contract."""
    if winner_count < 1:
        told = f"{winner_count} winners asked for."
        raise BadInput(told, path="winner_count", value=winner_count, remedy="At least one wins.")
    share = 10_000 // winner_count
    equal = (*[share] * (winner_count - 1), 10_000 - share * (winner_count - 1))
    payout = equal if payout_bps is None else tuple(payout_bps)
    if len(payout) != winner_count or sum(payout) != 10_000 or min(payout) < 0:
        told = f"The payout {list(payout)} does not fit {winner_count} winners."
        remedy = "Give one share in basis points for each winner; together they are 10000."
        raise BadInput(told, path="payout_bps", value=payout, remedy=remedy)
    return payout
