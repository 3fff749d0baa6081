"""The nouns the contract speaks: a challenge and its submissions, as read at one block.

Values here are already valid and frozen. Addresses are lower case; amounts are base units of the prize token;
moments are unix seconds, because that is what the contract compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NewType

from clara_eval.camel_json import DECIMAL
from clara_eval.errors import BadInput

Address = NewType("Address", str)
"""0x and 40 lower-case hex digits."""

ZERO_ADDRESS = Address("0x" + "0" * 40)
_HEX = frozenset("0123456789abcdef")


def to_address(text: str, *, what: str = "address") -> Address:
    """Lower-case form of an address, or an error that shows what came in."""
    lowered = text.strip().lower()
    if len(lowered) == 42 and lowered.startswith("0x") and _HEX.issuperset(lowered[2:]):
        return Address(lowered)
    raise BadInput(
        f"{what} {text[:80]!r} is not an address.",
        value=text,
        remedy="An address is 0x followed by 40 hex digits.",
    )


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
class Submission:
    submitter: Address
    agent_id: int = field(metadata=DECIMAL)
    solution_uri: str
    solution_hash: str
    submitted_at: int
    version: int


@dataclass(frozen=True, slots=True)
class Version:
    """A submission that a later one of the same submitter replaced, as the chain's events tell it."""

    submitter: Address
    solution_hash: str
    submitted_at: int
    version: int = 1


def short(address: str) -> str:
    """An address, or any hex, for people."""
    return f"{address[:6]}…{address[-4:]}"


@dataclass(frozen=True, slots=True)
class Token:
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
    token: Token
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
