"""Choose the winners and their prizes, in the contract's own arithmetic.

Output: exactly `winner_count` winners whose prizes sum to the pool to the last unit, or Unscorable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clara_eval.chain.model import Challenge
from clara_eval.core.address import Address
from clara_eval.core.codec import DECIMAL
from clara_eval.core.errors import CannotPublish, Unscorable
from clara_eval.core.submission import Placed

MIN_SUBMISSIONS = 2
"""Of the contract: with fewer, `advanceToScoring` cancels."""


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
    """Return each place's share, rounded down; the last place takes what is left."""
    shares = [prize_pool * bps // 10_000 for bps in payout_bps]
    return [*shares[:-1], prize_pool - sum(shares[:-1])]


def check_scorable(challenge: Challenge) -> None:
    """Raise Unscorable if no result can ever be posted."""
    if challenge.submission_count < MIN_SUBMISSIONS:
        raise Unscorable(
            f"{challenge.submission_count} submitters: below {MIN_SUBMISSIONS} the contract cancels the challenge.",
            remedy="Anybody may call advanceToScoring(), which refunds the poster.",
        )
    if challenge.submission_count < challenge.winner_count:
        raise Unscorable(
            f"{challenge.submission_count} submitters for {challenge.winner_count} winners: "
            "the contract accepts exactly winnerCount winners, so no scores can be posted.",
            remedy="After scoringDeadline anybody may call expire(); every submitter then claims an equal share.",
        )


def choose_winners(challenge: Challenge, placed: Sequence[Placed]) -> Winners:
    """Return the top `winner_count` with the prizes that the contract will check."""
    best = placed[: challenge.winner_count]
    if len(best) < challenge.winner_count:
        raise Unscorable(f"{len(best)} placed accounts for {challenge.winner_count} winners.")
    if len({place.account for place in best}) != len(best):
        raise CannotPublish("An account stands on two paid places.")
    agents = {s.submitter: s.agent_id for s in challenge.submissions}
    strangers = [place.account for place in best if place.account not in agents]
    if strangers:
        raise CannotPublish(f"{strangers[0]} is placed but did not submit.")
    amounts = prizes(challenge.prize_pool, challenge.payout_bps)
    return Winners(
        tuple(
            WinnerPrize(place.account, agents[place.account], place.score, amount)
            for place, amount in zip(best, amounts, strict=True)
        )
    )
