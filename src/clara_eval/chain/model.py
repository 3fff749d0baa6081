"""A challenge as read at one block, and the events about it.

Addresses are lower case; amounts are base units of the prize token; times are unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.codec import DECIMAL
from clara_eval.core.submission import Submission, Version


class ChallengeStatus(IntEnum):
    OPEN = 0
    SCORING = 1
    FINALIZED = 2
    CANCELLED = 3
    EXPIRED = 4


@dataclass(frozen=True, slots=True)
class Block:
    """The block a reading is about."""

    number: int
    hash: str
    timestamp: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a reader of events has come, with the block's hash so that a reorg is noticed."""

    block_number: int
    block_hash: str


@dataclass(frozen=True, slots=True)
class PrizeToken:
    address: Address
    symbol: str
    decimals: int
    is_known: bool = True
    """Whether it told its scale itself; otherwise amounts are base units."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Everything the contract says about one challenge at `block`, submissions included, in order of submitter."""

    chain_id: int
    address: Address
    block: Block
    poster: Address
    evaluator: Address
    token: PrizeToken
    prize_pool: int = field(metadata=DECIMAL)
    poster_bond: int = field(metadata=DECIMAL)
    deadline: int = field(metadata=DECIMAL)
    scoring_deadline: int = field(metadata=DECIMAL)
    challenge_uri: str
    eval_config_hash: str
    private_set_hash: str
    winner_count: int
    payout_bps: tuple[int, ...]
    identity_registry: Address
    max_participants: int = field(metadata=DECIMAL)
    status: ChallengeStatus
    submission_count: int
    score_posted_at: int
    submissions: tuple[Submission, ...]
    replaced: tuple[Version, ...] = ()
    """Versions that were replaced, oldest first: who had some content first is their author."""
    contract_version: str = "1"
    """Which version of the contracts it is, by `contracts.versions`: it says how the calldata is written."""

    @property
    def is_scored_by_poster(self) -> bool:
        return self.evaluator in {ZERO_ADDRESS, self.poster}

    @property
    def run(self) -> str:
        """The id of its evaluation: the same challenge on another chain is another run."""
        return f"{self.chain_id}:{self.address}"


@dataclass(frozen=True, slots=True)
class NewChallenge:
    """What the factory announced."""

    address: Address
    poster: Address
    token: Address
    prize_pool: int
    poster_bond: int
    deadline: int
    scoring_deadline: int
    challenge_uri: str
    skill_tags: tuple[str, ...]
    block_number: int
    tx_hash: str = ""
    created_at: int = 0
    """The time of its block."""


@dataclass(frozen=True, slots=True)
class NewSubmission:
    """What a challenge announced: somebody submitted, for the first time or again."""

    challenge: Address
    submitter: Address
    agent_id: int
    version: int
    solution_hash: str
    block_number: int


@dataclass(frozen=True, slots=True)
class NewClaim:
    """What a challenge announced: a winner took the prize."""

    challenge: Address
    winner: Address
    amount: int
    tx_hash: str
    block_number: int
    claimed_at: int = 0
    """The time of its block."""
