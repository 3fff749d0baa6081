"""Posted scores and who posted them: the contract lets the poster post, too."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from clara_eval.chain.model import ChallengeStatus
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
    """Status at the newest block; `score_posted_at` is 0 while nothing is posted."""

    status: ChallengeStatus
    score_posted_at: int
