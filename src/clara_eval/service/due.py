"""Decide what is due for one challenge: pure, from the chain's state and what the store remembers.

Invariant: the chain is the source of truth, and time is the time of its blocks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.core.address import Address, to_address
from clara_eval.documents.results import FINAL_STATES, STOPPED_STATES

FINALIZATION_DELAY = 12 * 3600
ALARM_SHARE = 0.5  # Share of the scoring window gone without a post: a person should look
DEEP_SECONDS = 3600  # A post this old is deeper than any reorg that has been seen on a rollup


class DueAction(StrEnum):
    NONE = "none"
    EVALUATE = "evaluate"
    RECORD = "record"  # Scores are on the chain and the store does not say so
    RESEND = "resend"  # An earlier key of ours signed the post, and it is not mined: the recorded bytes go out again
    FINALIZE = "finalize"
    CLOSE = "close"  # The contract ended without scores, and the store does not say so


@dataclass(frozen=True, slots=True)
class RecordedChallenge:
    address: Address
    evaluator: Address
    status: ChallengeStatus
    deadline: int
    scoring_deadline: int
    score_posted_at: int

    @classmethod
    def read(cls, text: str) -> Self:
        """Read it from a stored `Summary`, without the texts: a tick reads hundreds."""
        told = json.loads(text)
        return cls(
            Address(told["address"]),
            to_address(told["evaluator"]),
            ChallengeStatus[told["chainStatus"].upper()],
            told["deadline"],
            told["scoringDeadline"],
            told["scorePostedAt"] or 0,
        )


ChallengeState = Challenge | RecordedChallenge


@dataclass(frozen=True, slots=True)
class Memory:
    """What the store says about earlier work on this challenge."""

    status: str | None = None
    retry_at: int | None = None  # Wall-clock time of the next attempt, if one is planned
    is_approved: bool = False  # A person approved the result that waits
    is_signed: bool = False  # The challenge's evaluator, our present or an earlier key, signed its post in this store
    posts_at: int | None = None  # When the default of the review that waits is posted, by the chain's clock
    objections_until: int | None = None  # When the announced result is posted, by the chain's clock


@dataclass(frozen=True, slots=True)
class Due:
    action: DueAction
    why: str
    window_used: float = 0.0  # Share of the scoring window that is gone, while a post is still missing
    may_change_unseen: bool = False
    """The contract can move on without an event, or a reorg can undo it: read it at every tick."""


def due(
    challenge: ChallengeState, memory: Memory, *, evaluator: Address, chain_now: int, wall_now: float, can_sign: bool
) -> Due:
    if challenge.evaluator != evaluator and not memory.is_signed:
        return Due(DueAction.NONE, "another evaluator")
    if challenge.status in {ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED}:
        ended = challenge.status.name.lower()
        is_told = memory.status in STOPPED_STATES
        return Due(DueAction.NONE if is_told else DueAction.CLOSE, f"the contract is {ended}")
    if challenge.score_posted_at:
        return _posted(challenge, memory, chain_now, can_sign=can_sign)
    if chain_now <= challenge.deadline:
        return Due(DueAction.NONE, "submissions are open")
    if challenge.status is ChallengeStatus.OPEN and not can_sign:
        why = "nobody has called advanceToScoring yet, and a dry run cannot"
        return Due(DueAction.NONE, why, may_change_unseen=True)
    used = window_used(challenge, chain_now)
    if challenge.evaluator != evaluator:
        is_sent = can_sign and challenge.status is ChallengeStatus.SCORING
        action = DueAction.RESEND if is_sent else DueAction.NONE
        return Due(action, "an earlier key signed its post", used, may_change_unseen=True)
    is_lapsed = memory.status == "review" and memory.posts_at is not None and chain_now >= memory.posts_at
    is_closed = memory.objections_until is not None and chain_now >= memory.objections_until
    reason = None if is_lapsed or is_closed else _held_back(memory, wall_now, can_sign=can_sign)
    if reason is not None:
        return Due(DueAction.NONE, reason, used)
    return Due(DueAction.EVALUATE, "the deadline has passed and nothing is posted", used)


def is_over(challenge: ChallengeState, memory: Memory, evaluator: Address) -> bool:
    if challenge.status in {ChallengeStatus.OPEN, ChallengeStatus.SCORING}:
        return False
    return memory.status in FINAL_STATES or (challenge.evaluator != evaluator and not memory.is_signed)


def window_used(challenge: ChallengeState, chain_now: int) -> float:
    """Share of the scoring window that is gone: 0 at the deadline, 1 at the scoring deadline, more after it."""
    window = max(1, challenge.scoring_deadline - challenge.deadline)
    return max(0.0, (chain_now - challenge.deadline) / window)


def _posted(challenge: ChallengeState, memory: Memory, chain_now: int, *, can_sign: bool) -> Due:
    if memory.status != "complete":
        return Due(DueAction.RECORD, "scores are on the chain")
    is_over = chain_now >= challenge.score_posted_at + FINALIZATION_DELAY
    if challenge.status is ChallengeStatus.SCORING and is_over and can_sign:
        return Due(DueAction.FINALIZE, "12 hours have passed since the post")
    is_shallow = chain_now < challenge.score_posted_at + DEEP_SECONDS
    return Due(DueAction.NONE, "posted", may_change_unseen=is_shallow)


def _held_back(memory: Memory, wall_now: float, *, can_sign: bool) -> str | None:
    """Return why an evaluation that is due on the chain does not begin now, or None."""
    if memory.status in STOPPED_STATES:
        return f"it ended as {memory.status}"
    if memory.status == "complete" and not can_sign:
        return "the dry run is complete"
    is_timed = memory.retry_at is not None and wall_now >= memory.retry_at  # the wait for an objection ends
    if memory.status == "review" and not memory.is_approved and not is_timed:
        return "it waits for a person"
    if memory.retry_at is not None and wall_now < memory.retry_at:
        return "its next attempt is later"
    return None
