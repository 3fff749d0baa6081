"""Post a recorded result and write down how that ended; recognise scores that are posted already."""

from __future__ import annotations

from typing import Any, cast

from clara_eval.chain.ethereum import PostedResults
from clara_eval.chain.model import Challenge, Posted, PostedBy
from clara_eval.chain.sender import Intention, Receipt, SendOutcome
from clara_eval.chain.winners import committed_digest, post_scores_calldata
from clara_eval.challenges.calls import check_call, publish
from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.prepare import RoundCase
from clara_eval.challenges.public_documents import is_posted, misplaced, rows_on_chain, scores_document, with_receipt
from clara_eval.challenges.recorded import RecordedResult
from clara_eval.challenges.status import StatusWriter
from clara_eval.challenges.venue import superseded
from clara_eval.core.hashing import plain_json
from clara_eval.documents.store_keys import scores_key
from clara_eval.store.sql_store import PublicKeys, SqlStore
from clara_eval.store.trace_archive import bring_back


async def post_result(case: RoundCase, found: RecordedResult, status: StatusWriter) -> Receipt:
    await status.say("publishing", 92)
    challenge, ports, store = case.challenge, case.ports, case.ports.store
    if not ports.sender.can_sign and case.is_open:
        # A dry run of a challenge that is still Open: the contract could not take the call yet.
        data = post_scores_calldata(found.winners, found.digest, challenge.contract_version)
        check_call(challenge, found.winners, found.digest, data)
        told = "Dry run: the challenge is still Open, so the call was checked but not rehearsed; nothing was sent."
        receipt = Receipt(SendOutcome.DRY_RUN, Intention.POST_SCORES, "0x" + data.hex(), detail=told)
    else:
        gone = await superseded(store, challenge.run)
        receipt = await publish(
            challenge, found.winners, found.digest, sender=ports.sender, results=ports.chain.results, superseded=gone
        )
    case.options.sent(receipt)
    posted_at = None
    if is_posted(receipt) and receipt.block_number is not None:
        posted_at = (await ports.chain.blocks.block_at(receipt.block_number)).timestamp
    elif is_posted(receipt):
        posted_at = (await ports.chain.results.scoring_state(challenge.address)).score_posted_at
    document = with_receipt(await _scores(case, found), receipt, posted_at)
    await store.put(challenge.chain_id, scores_key(challenge.address), plain_json(document))
    await _say_outcome(status, receipt)
    return receipt


async def save_scores(case: RoundCase, found: RecordedResult) -> None:
    """Save the scores before the post, unless an earlier run wrote down who posted."""
    challenge, store = case.challenge, case.ports.store
    earlier = await read_scores(store, challenge.chain_id, challenge.address) or {}
    if not earlier.get("postedBy"):
        text = plain_json(await _scores(case, found))
        await store.put(challenge.chain_id, scores_key(challenge.address), text)


async def _scores(case: RoundCase, found: RecordedResult) -> dict[str, object]:
    challenge = case.challenge
    earlier = await read_scores(case.ports.store, challenge.chain_id, challenge.address) or {}
    if found.result is None:
        return earlier
    cid = earlier.get("traceCid") if earlier.get("traceDigest") == found.digest else None
    scores = scores_document(challenge, found.result, found.winners, found.digest, cid)
    if case.options.settings.traces_public == "never":  # nor the names of tests in a harness that was hidden
        for row in cast("list[dict[str, Any]]", scores["rankings"]):
            row["executed"] = row["executed"] and {**row["executed"], "failed": {}}
    return {**scores, "misplaced": await misplaced(case, found.result)}


async def _say_outcome(status: StatusWriter, receipt: Receipt) -> None:
    posted_by = str(receipt.posted_by) if receipt.posted_by else None
    match receipt.outcome:
        case SendOutcome.CONFIRMED | SendOutcome.ALREADY_DONE:
            await status.say("complete", 100, reason=receipt.detail or None, posted_by=posted_by or "evaluator")
        case SendOutcome.DRY_RUN:
            said = receipt.detail or "Dry run: checked and rehearsed, nothing was sent."
            await status.say("complete", 100, reason=said)
        case SendOutcome.UNKNOWN:
            waits = "Sent, not seen mined yet: the chain is asked again."
            await status.say("publishing", 95, reason=f"{waits} {receipt.detail}".strip())
        case SendOutcome.REVERTED:
            await status.say("failed", 100, reason=f"The post was mined but reverted: {receipt.detail}")


async def read_scores(store: PublicKeys, chain_id: int, address: str) -> dict[str, Any] | None:
    return await read_document(store, chain_id, scores_key(address))


async def record_posted(store: SqlStore, results: PostedResults, challenge: Challenge) -> Posted | None:
    """Write what is posted and return it; None if nothing is, or nothing deep enough."""
    posted, chain_id, address = await results.posted_by(challenge), challenge.chain_id, challenge.address
    if posted is None:
        return None
    is_evaluators = posted.by is PostedBy.EVALUATOR
    writer = await StatusWriter.resumed(store, chain_id, address)
    if not posted.is_final:
        await writer.say("publishing", 95, reason="Scores are posted; their block is not deep enough yet.")
        return None
    scores = await read_scores(store, chain_id, address) or {}
    committed = committed_digest(posted.calldata) if is_evaluators else None
    if committed and scores.get("traceDigest") != committed:
        await bring_back(store, chain_id, address, committed)
        scores = await read_scores(store, chain_id, address) or {}
    is_ours = committed and scores.get("traceDigest") == committed
    if not scores.get("postedBy") or (scores.get("traceDigest") and not is_ours):
        if not is_ours:
            winners = await results.winners_on_chain(address, challenge.winner_count)
            rows = [row.model_dump() for row in rows_on_chain(winners)]
            paid = [{"account": row["address"], "prizeAmount": row["prizeAmount"]} for row in rows]
            scores = {"rankings": rows, "winners": paid if is_evaluators else []}
            scores |= {"margin": None, "consistency": None, "flags": [], "traceDigest": None}
        scores |= {"postedBy": str(posted.by), "txHash": posted.tx_hash, "outcome": "already_done"}
        scores["publishedAt"] = challenge.score_posted_at
        await store.put(chain_id, scores_key(address), plain_json(scores))
    reason = None if is_evaluators else f"Scores were posted by the {posted.by}."
    await writer.say("complete", reason=reason, posted_by=str(posted.by))
    return posted
