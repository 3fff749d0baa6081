"""The calls that move a contract on: `advanceToScoring` after the deadline, `finalize` after the post."""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.chain.ethereum import PostedResults
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.chain.sender import Intention, Receipt, SendOutcome, TransactionSender
from clara_eval.chain.transaction import ContractCall, StoredTransaction
from clara_eval.chain.winners import scoring_function
from clara_eval.core.errors import CannotPublish, NotYet


async def advance(
    challenge: Challenge, *, sender: TransactionSender, results: PostedResults, is_seen_open: bool = False
) -> Receipt:
    """Move a closed challenge on to scoring; below two submissions the contract cancels it.

    One that was just seen open is asked again only after a refusal.
    """
    data = scoring_function("advanceToScoring", challenge.contract_version).call()
    call = ContractCall(challenge.run, Intention.ADVANCE_TO_SCORING, challenge.address, data)

    async def is_done(attempts: Sequence[StoredTransaction]) -> Receipt | None:
        nonlocal is_seen_open
        if is_seen_open and not attempts:
            is_seen_open = False  # a refusal asks again
            return None
        state = await results.scoring_state(challenge.address)
        return None if state.status is ChallengeStatus.OPEN else _by_others(call, state.status)

    return await sender.send(call, is_done)


async def finalize(challenge: Challenge, *, sender: TransactionSender, results: PostedResults) -> Receipt:
    """Open the claims, 12 hours after the post."""
    data = scoring_function("finalize", challenge.contract_version).call()
    call = ContractCall(challenge.run, Intention.FINALIZE, challenge.address, data)

    async def is_done(_attempts: Sequence[StoredTransaction]) -> Receipt | None:
        state = await results.scoring_state(challenge.address)
        if state.status is ChallengeStatus.FINALIZED:
            return _by_others(call, state.status)
        if state.status is ChallengeStatus.OPEN or not state.score_posted_at:
            if state.status in {ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED}:
                raise CannotPublish(f"The challenge is {state.status.name.capitalize()}: nothing to finalize.")
            raise NotYet("No scores are posted yet.", remedy="Finalize 12 hours after they are.")
        return None

    return await sender.send(call, is_done)


def _by_others(call: ContractCall, status: ChallengeStatus) -> Receipt:
    return Receipt.of(call, SendOutcome.ALREADY_DONE, detail=f"The challenge is already {status.name.capitalize()}.")
