"""The words of a tournament: a game is one ordered pair put to one judge, a result is the judge's verdict.

Items are canonical ids; `first` is the one shown as A. The canonical order of items comes from a hash over challenge
and submission, never from arrival, so that nobody gains a side or an index by submitting early. A game in which the
judge gave no valid verdict has no result at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from clara_eval.hashing import keccak_hex

Winner = Literal["first", "second", "tie"]


@dataclass(frozen=True, slots=True, order=True)
class Game:
    """One question: `first` is shown as A, `second` as B, to one judge."""

    first: str
    second: str
    judge: str = ""


class Result(NamedTuple):
    """One verdict: who of `first` (shown as A) and `second` (shown as B) was better. A tuple, because of millions."""

    first: str
    second: str
    winner: Winner
    judge: str = ""

    @property
    def game(self) -> Game:
        return Game(self.first, self.second, self.judge)


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
