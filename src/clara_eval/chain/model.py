"""A challenge as read at one block, events about it, and who posted: lower-case addresses, base units, unix seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from clara_eval.config.networks import Network
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.codec import DECIMAL
from clara_eval.core.dollars import MICRO
from clara_eval.core.submission import Submission, Version


class ChallengeStatus(IntEnum):
    OPEN = 0
    SCORING = 1
    FINALIZED = 2
    CANCELLED = 3
    EXPIRED = 4


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far events were read; the hash shows a reorg."""

    number: int
    hash: str


@dataclass(frozen=True, slots=True)
class Block(Checkpoint):
    timestamp: int


@dataclass(frozen=True, slots=True)
class PrizeToken:
    address: Address
    symbol: str
    decimals: int
    is_known: bool = True
    """Whether it says its scale; otherwise amounts are base units."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """What the contract says at `block`, with submissions in order of submitter."""

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
    """Replaced versions, oldest first: the first to submit some content is its author."""
    contract_version: str = "1"
    """A name in `contracts.versions`: how calldata is written."""
    read_at: Block | None = None
    """The later block whose state was read, if no node had the state of `block` any more."""

    @property
    def is_scored_by_poster(self) -> bool:
        return self.evaluator in {ZERO_ADDRESS, self.poster}

    @property
    def run(self) -> str:
        return f"{self.chain_id}:{self.address}"


@dataclass(frozen=True, slots=True)
class NewChallenge:
    address: Address
    block_number: int
    tx_hash: str = ""
    created_at: int = 0
    """The time of its block."""


@dataclass(frozen=True, slots=True)
class NewClaim:
    challenge: Address
    winner: Address
    amount: int
    tx_hash: str
    block_number: int
    claimed_at: int = 0
    """The time of its block."""


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
    deadline: int


def is_dollar(token: Address, network: Network) -> bool:
    return network.usdc is None or token == network.usdc


def worth_micro_usd(token: PrizeToken, amount: int, network: Network) -> int | None:
    return amount * MICRO // int(10**token.decimals) if is_dollar(token.address, network) else None
