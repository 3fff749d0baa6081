"""Post the winners exactly once: rehearse, sign, record, send, confirm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clara_eval.chain.ethereum import PostedResults
from clara_eval.chain.model import Challenge, ChallengeStatus, Posted, PostedBy
from clara_eval.chain.sender import Intention, Receipt, SendOutcome, TransactionSender
from clara_eval.chain.transaction import ContractCall, StoredTransaction
from clara_eval.chain.winners import Winners, post_scores_calldata
from clara_eval.challenges.guard import check_call
from clara_eval.core.errors import CannotPublish, NotYet, Temporary


async def publish(
    challenge: Challenge,
    winners: Winners,
    trace_digest: str,
    *,
    sender: TransactionSender,
    results: PostedResults,
    superseded: frozenset[bytes] = frozenset(),
) -> Receipt:
    """Post these winners, or return how scores were posted before; a second call continues the first."""
    data = post_scores_calldata(winners, trace_digest, challenge.contract_version)
    check_call(challenge, winners, trace_digest, data)
    call = ContractCall(challenge.run, Intention.POST_SCORES, challenge.address, data, replaces=superseded - {data})

    async def is_done(attempts: Sequence[StoredTransaction]) -> Receipt | None:
        state = await results.scoring_state(challenge.address)
        if state.score_posted_at:
            return await _posted(call, challenge, results, attempts)
        if state.status is ChallengeStatus.OPEN:
            raise NotYet("The challenge is still Open.", remedy="Call advanceToScoring after the deadline first.")
        if state.status is not ChallengeStatus.SCORING:
            name = state.status.name.capitalize()
            raise CannotPublish(f"The challenge is {name}: scores can no longer be posted.")
        if not await results.blocks.is_canonical(challenge.block):
            raise Temporary(
                f"Block {challenge.block.number}, at which the challenge was read, was replaced.", remedy="Read again."
            )
        return None

    receipt = await sender.send(call, is_done)
    if receipt.outcome is not SendOutcome.CONFIRMED or receipt.posted_by is not None:
        return receipt
    if receipt.calldata != "0x" + data.hex():
        said = "The post of an earlier reading, whose block was replaced, was mined before it could be superseded."
        return replace(receipt, outcome=SendOutcome.ALREADY_DONE, posted_by=PostedBy.EVALUATOR, detail=said)
    by = PostedBy.of(sender.address, evaluator=challenge.evaluator, poster=challenge.poster)
    return replace(receipt, posted_by=by)


async def _posted(
    call: ContractCall, challenge: Challenge, results: PostedResults, attempts: Sequence[StoredTransaction]
) -> Receipt:
    """Find out whose scores are posted, when none of our attempts was seen mined."""
    posted = await results.posted_by(challenge)
    is_mine = posted is not None and posted.tx_hash in {attempt.tx_hash for attempt in attempts}
    if posted is None or is_mine or not posted.is_final:
        # The nodes have not settled: ours is mined but not every node shows it, or the post is not deep enough.
        return _receipt(call, SendOutcome.UNKNOWN, posted, "Scores are posted, but not yet final.")
    # Another process with our key, or we ourselves before the store was lost: the same bytes are the same post.
    if posted.calldata == call.data and posted.by is PostedBy.EVALUATOR:
        return _receipt(call, SendOutcome.CONFIRMED, posted, "")
    detail = f"Scores were already posted, by the {posted.by} ({posted.sender})."
    return _receipt(call, SendOutcome.ALREADY_DONE, posted, detail)


def _receipt(call: ContractCall, outcome: SendOutcome, posted: Posted | None, detail: str) -> Receipt:
    return replace(Receipt.of(call, outcome, posted, detail=detail), posted_by=posted.by if posted else None)
