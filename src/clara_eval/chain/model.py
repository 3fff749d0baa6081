"""Challenges, their events and winners as data, and the `postScores` calldata of the winners.

Invariant: addresses are lower case, amounts base units, times unix seconds; prizes sum to the pool.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from clara_eval.chain.contracts.abi import VERSIONS, Function, Undecodable, contract_version
from clara_eval.config.settings import Network
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.codec import DECIMAL
from clara_eval.core.errors import BadInput, CannotPublish, Unscorable
from clara_eval.core.model import MICRO, Placed, Submission, Version


class ChallengeStatus(IntEnum):
    OPEN = 0
    SCORING = 1
    FINALIZED = 2
    CANCELLED = 3
    EXPIRED = 4


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last block whose events were read; its hash reveals a reorg."""

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
    is_known: bool = True  # Whether the contract returned its decimals; otherwise amounts are base units


@dataclass(frozen=True, slots=True)
class Challenge:
    """The contract's state at `block`, with submissions sorted by submitter."""

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
    replaced: tuple[Version, ...] = ()  # Earlier versions, oldest first
    contract_version: str = "1"  # A key of `contracts.abi.VERSIONS`
    read_at: Block | None = None  # The later block that was read instead, if no node had the state of `block` any more

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
    created_at: int = 0  # The time of its block


@dataclass(frozen=True, slots=True)
class NewClaim:
    challenge: Address
    winner: Address
    amount: int
    tx_hash: str
    block_number: int
    claimed_at: int = 0  # The time of its block


@dataclass(frozen=True, slots=True)
class GivenFeedback:
    endpoint: str
    uri: str
    tx_hash: str
    block_number: int


class PostedBy(StrEnum):
    EVALUATOR = "evaluator"
    POSTER = "poster"
    OTHER = "other"  # Another account, for example a contract wallet of the evaluator or poster

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
    is_final: bool  # Deep enough for this network


@dataclass(frozen=True, slots=True)
class ScoringState:
    """Status of a challenge at one block; `score_posted_at` is 0 while nothing is posted."""

    status: ChallengeStatus
    score_posted_at: int
    deadline: int


def is_dollar(token: Address, network: Network) -> bool:
    return network.usdc is None or token == network.usdc


def worth_micro_usd(token: PrizeToken, amount: int, network: Network) -> int | None:
    return amount * MICRO // int(10**token.decimals) if is_dollar(token.address, network) else None


MIN_SUBMISSIONS = 2  # The contract's limit: with fewer, `advanceToScoring` cancels


@dataclass(frozen=True, slots=True)
class WinnerPrize:
    account: Address
    agent_id: int = field(metadata=DECIMAL)
    score: int
    prize_amount: int = field(metadata=DECIMAL)


@dataclass(frozen=True, slots=True)
class Winners:
    entries: tuple[WinnerPrize, ...]


def prizes(prize_pool: int, payout_bps: Sequence[int]) -> list[int]:
    """Return the prize of each place, rounded down; the last place takes the remainder."""
    shares = [prize_pool * bps // 10_000 for bps in payout_bps]
    return [*shares[:-1], prize_pool - sum(shares[:-1])]


def check_scorable(challenge: Challenge) -> None:
    if challenge.submission_count < MIN_SUBMISSIONS:
        text = f"{challenge.submission_count} submitters: below {MIN_SUBMISSIONS} the contract cancels the challenge."
        raise Unscorable(text, remedy="Anybody may call advanceToScoring(), which refunds the poster.")
    if challenge.submission_count < challenge.winner_count:
        raise Unscorable(
            f"{challenge.submission_count} submitters for {challenge.winner_count} winners: "
            "the contract accepts exactly winnerCount winners, so no scores can be posted.",
            remedy="After scoringDeadline anybody may call expire(); every submitter then claims an equal share.",
        )


def choose_winners(challenge: Challenge, placed: Sequence[Placed]) -> Winners:
    """Return the first `winner_count` accounts with the prizes that the contract will check."""
    best = placed[: challenge.winner_count]
    if len(best) < challenge.winner_count:
        raise Unscorable(f"{len(best)} placed accounts for {challenge.winner_count} winners.")
    if len({place.account for place in best}) != len(best):
        raise CannotPublish("An account has two paid places.")
    agents = {s.submitter: s.agent_id for s in challenge.submissions}
    if unknown := [place.account for place in best if place.account not in agents]:
        raise CannotPublish(f"{unknown[0]} is placed but did not submit.")
    pairs = zip(best, prizes(challenge.prize_pool, challenge.payout_bps), strict=True)
    return Winners(tuple(WinnerPrize(one.account, agents[one.account], one.score, prize) for one, prize in pairs))


MARK = b"CLR1"  # Comes before the trace digest that we append to the calldata


def scoring_function(name: str, version: str = "1") -> Function:
    return contract_version(version).challenge.function(name)


def post_scores(winners: Winners, version: str = "1") -> bytes:
    """Encode the call without the trace digest, as it is recorded in the trace itself."""
    rows = [
        {"account": w.account, "agentId": w.agent_id, "score": w.score, "prizeAmount": w.prize_amount}
        for w in winners.entries
    ]
    return scoring_function("postScores", version).call(rows)


def post_scores_calldata(winners: Winners, trace_digest: str, version: str = "1") -> bytes:
    if not re.fullmatch("(0x)?[0-9a-fA-F]{64}", trace_digest):
        raise BadInput(f"The trace digest {trace_digest[:80]!r} is not 0x and 64 hex digits.", value=trace_digest)
    return post_scores(winners, version) + MARK + bytes.fromhex(trace_digest.removeprefix("0x"))


def read_calldata(data: bytes) -> tuple[Winners, str | None]:
    """Decode winners and, after our mark, the trace digest; BadInput if it is no `postScores` call."""
    version = next((name for name in VERSIONS if data[:4] == scoring_function("postScores", name).selector), None)
    if version is None:
        raise BadInput(f"The calldata starts with 0x{data[:4].hex()}, which is not postScores.", value=data[:4].hex())
    try:
        (entries,) = scoring_function("postScores", version).arguments(data)
    except Undecodable as bad:
        raise BadInput("The calldata is not a list of winners.", value=data[:100].hex()) from bad
    winners = Winners(tuple(winner_of(entry) for entry in entries))
    # The mark counts only right after the canonical encoding: inside it, the bytes could be part of a number.
    call = post_scores(winners, version)
    tail = data[len(call) :] if data.startswith(call) else b""
    return winners, "0x" + tail[4:].hex() if len(tail) == 36 and tail.startswith(MARK) else None


def committed_digest(calldata: bytes) -> str | None:
    """Return the trace digest that posted scores commit to, if any."""
    try:
        return read_calldata(calldata)[1]
    except BadInput:
        return None


def winner_of(fields: Mapping[str, Any]) -> WinnerPrize:
    return WinnerPrize(Address(fields["account"].lower()), fields["agentId"], fields["score"], fields["prizeAmount"])
