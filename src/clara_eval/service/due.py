"""What is due for one challenge: pure, from what the chain says and what we remember.

Comes in: the challenge at the newest block, our evaluator address, and the memory of earlier attempts. Goes out: one
`Due`. Time is the chain's: the contract compares block times, so a wrong clock here changes nothing. The chain is the
truth: what is posted there is posted, whatever our store says, and what is not is evaluated, even with an empty store.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.challenges.status import STOPPED_STATES
from clara_eval.core.address import Address

FINALIZATION_DELAY = 12 * 3600
ALARM_SHARE = 0.5
"""Of the scoring window gone without a post: a person should look."""


class DueAction(StrEnum):
    NONE = "none"
    EVALUATE = "evaluate"
    RECORD = "record"
    """Scores stand on the chain and our store does not say so."""
    RESEND = "resend"
    """An earlier key of ours signed the post, and it is not mined: the recorded bytes go out again."""
    FINALIZE = "finalize"
    CLOSE = "close"
    """The contract ended without scores, and our store does not say so."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What our store says about earlier work on this challenge."""

    status: str | None = None
    retry_at: int | None = None
    """Wall-clock time of the next attempt, where one is waited for."""
    is_approved: bool = False
    """A person approved the result that waits."""
    is_signed: bool = False
    """The challenge's own evaluator signed its post here; where that is not our address, it is our earlier one."""
    posts_at: int | None = None
    """When the default of the review that waits is posted, by the chain's clock."""


@dataclass(frozen=True, slots=True)
class Due:
    action: DueAction
    why: str
    window_used: float = 0.0
    """Share of the scoring window that is gone, while a post is still missing."""

    @property
    def is_at_risk(self) -> bool:
        return self.window_used >= ALARM_SHARE


def due(
    challenge: Challenge, memory: Memory, *, evaluator: Address, chain_now: int, wall_now: float, can_sign: bool
) -> Due:
    """The one next thing to do."""
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
        return Due(DueAction.NONE, "nobody has called advanceToScoring yet, and a dry run cannot")
    used = window_used(challenge, chain_now)
    if challenge.evaluator != evaluator:
        is_sent = can_sign and challenge.status is ChallengeStatus.SCORING
        return Due(DueAction.RESEND if is_sent else DueAction.NONE, "an earlier key signed its post", used)
    is_lapsed = memory.status == "review" and memory.posts_at is not None and chain_now >= memory.posts_at
    reason = None if is_lapsed else _held_back(memory, wall_now, can_sign=can_sign)
    if reason is not None:
        return Due(DueAction.NONE, reason, used)
    return Due(DueAction.EVALUATE, "the deadline has passed and nothing is posted", used)


def window_used(challenge: Challenge, chain_now: int) -> float:
    """0 at the deadline, 1 at the scoring deadline, more after it."""
    window = max(1, challenge.scoring_deadline - challenge.deadline)
    return max(0.0, (chain_now - challenge.deadline) / window)


def _posted(challenge: Challenge, memory: Memory, chain_now: int, *, can_sign: bool) -> Due:
    if memory.status != "complete":
        return Due(DueAction.RECORD, "scores are on the chain")
    is_over = chain_now >= challenge.score_posted_at + FINALIZATION_DELAY
    if challenge.status is ChallengeStatus.SCORING and is_over and can_sign:
        return Due(DueAction.FINALIZE, "12 hours have passed since the post")
    return Due(DueAction.NONE, "posted")


def _held_back(memory: Memory, wall_now: float, *, can_sign: bool) -> str | None:
    """Why an evaluation that is due on the chain is not begun now, or None."""
    if memory.status in STOPPED_STATES:
        return f"it ended as {memory.status}"
    if memory.status == "complete" and not can_sign:
        return "the dry run is complete"
    is_timed = memory.retry_at is not None and wall_now >= memory.retry_at  # an objection is not waited for for ever
    if memory.status == "review" and not memory.is_approved and not is_timed:
        return "it waits for a person"
    if memory.retry_at is not None and wall_now < memory.retry_at:
        return "its next attempt is later"
    return None
