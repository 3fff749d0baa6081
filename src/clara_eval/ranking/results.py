"""The words of a tournament: a comparison is one ordered pair put to one judge, a result is the judge's verdict.

Items are canonical ids; `first` is the one shown as A. The canonical order of items comes from a hash over challenge
and submission, never from arrival, so that nobody gains a side or an index by submitting early. A pairing on which the
judge gave no valid verdict has no result at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex

Winner = Literal["first", "second", "tie"]


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
        """What an order of these items says about each pair of them; who is shown earlier is first."""
        place = {item: number for number, item in enumerate(best_first)}
        if sorted(place) != sorted(self.items) or len(best_first) != len(self.items):
            raise BadInput("An order must name every item of its group once.", path="order", value=list(best_first))
        return [
            Result(a, b, "first" if place[a] < place[b] else "second", self.judge, self.items)
            for a, b in combinations(self.items, 2)
        ]


class Result(NamedTuple):
    """One verdict: who of `first` (shown as A) and `second` (shown as B) was better. A tuple, because of millions.

    `group` is empty, or the items of the question from whose order this pair was read off.
    """

    first: str
    second: str
    winner: Winner
    judge: str = ""
    group: tuple[str, ...] = ()

    @property
    def pairing(self) -> Pairing:
        return Pairing(self.first, self.second, self.judge)


def canonical_order(challenge_id: str, submission_hashes: Mapping[str, str]) -> tuple[str, ...]:
    """Items sorted by keccak(challengeId ‖ submissionHash), then by id; both hashes are 0x-hex strings."""
    prefix = _bytes(challenge_id)
    key = {item: keccak_hex(prefix + _bytes(own)) for item, own in submission_hashes.items()}
    return tuple(sorted(key, key=lambda item: (key[item], item)))


def _bytes(text: str) -> bytes:
    """Hex is taken as the bytes it stands for; any other id as its UTF-8."""
    if text.startswith("0x"):
        return bytes.fromhex(text[2:])
    return text.encode()
