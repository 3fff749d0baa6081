"""Questions to a judge and what it answered.

Invariant: the canonical order of items is a hash over challenge and submission, never arrival, so submitting early
gains no side and no index. A question without a valid verdict has no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from clara_eval.core.constants import Winner
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex


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
