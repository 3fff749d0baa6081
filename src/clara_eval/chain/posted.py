"""What stands on the chain once scores are posted, and who posted them.

The contract lets the poster post too, so a result is not ours until the sender is known: every door says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from clara_eval.chain.model import Block, Challenge, ChallengeStatus
from clara_eval.chain.winners import WinnerPrize
from clara_eval.core.address import Address


class PostedBy(StrEnum):
    EVALUATOR = "evaluator"
    POSTER = "poster"
    OTHER = "other"
    """Through another account, for example a contract wallet in front of one of the two."""

    @classmethod
    def of(cls, sender: Address, *, evaluator: Address, poster: Address) -> PostedBy:
        return {poster: cls.POSTER, evaluator: cls.EVALUATOR}.get(sender, cls.OTHER)


@dataclass(frozen=True, slots=True)
class Posted:
    """The transaction that posted the scores."""

    by: PostedBy
    sender: Address
    tx_hash: str
    block_number: int
    calldata: bytes
    is_final: bool
    """Deep enough for this network."""


@dataclass(frozen=True, slots=True)
class ScoringState:
    """How a challenge stands at the newest block; `score_posted_at` is 0 while nothing is posted."""

    status: ChallengeStatus
    score_posted_at: int


class Results(Protocol):
    """What the chain says about results."""

    async def scoring_state(self, address: Address) -> ScoringState: ...

    async def is_canonical(self, block: Block) -> bool:
        """Whether that block is still part of the chain."""
        ...

    async def posted_by(self, challenge: Challenge) -> Posted | None: ...
    async def winners_on_chain(self, address: Address, count: int) -> tuple[WinnerPrize, ...]: ...
    async def has_claimed(self, address: Address, accounts: Sequence[Address]) -> dict[Address, bool]: ...
