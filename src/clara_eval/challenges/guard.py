"""The last check before a post is signed: the calldata says what was decided."""

from __future__ import annotations

import itertools

from clara_eval.chain.model import Challenge
from clara_eval.chain.winners import Winners, prizes, read_calldata
from clara_eval.core.errors import BadInput, CannotPublish, Unscorable


def check_call(challenge: Challenge, winners: Winners, trace_digest: str, data: bytes) -> None:
    """Refuse calldata that is not exactly these winners with this digest, or winners the contract would not take."""
    if not _says(data, winners, trace_digest):
        raise CannotPublish("The calldata does not say what was decided.", remedy="Nothing was sent; report this.")
    entries = winners.entries
    if len(challenge.submissions) < challenge.winner_count:
        raise Unscorable(
            f"{len(challenge.submissions)} submitters for {challenge.winner_count} winners: no scores can be posted.",
            remedy="After scoringDeadline anybody may call expire().",
        )
    if len(entries) != challenge.winner_count:
        raise CannotPublish(f"{len(entries)} winners, but the challenge pays exactly {challenge.winner_count}.")
    agents = {submission.submitter: submission.agent_id for submission in challenge.submissions}
    for winner in entries:
        if agents.get(winner.account) != winner.agent_id:
            raise CannotPublish(f"The winner {winner.account} did not submit as agent {winner.agent_id}.")
    if len({winner.account for winner in entries}) != len(entries):
        raise CannotPublish("A winner is named twice.")
    if [winner.prize_amount for winner in entries] != prizes(challenge.prize_pool, challenge.payout_bps):
        raise CannotPublish("The prizes are not the contract's shares of the prize pool.")
    if any(above.score < below.score for above, below in itertools.pairwise(entries)):
        raise CannotPublish("The winners are not in order of their scores.")


def _says(data: bytes, winners: Winners, trace_digest: str) -> bool:
    try:
        read = read_calldata(data)
    except BadInput:
        return False
    return read.winners == winners and read.trace_digest == trace_digest.lower()
