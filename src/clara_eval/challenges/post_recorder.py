"""Record results that the chain holds without us: posts of others, and our own after a loss."""

from __future__ import annotations

from clara_eval.chain.ethereum import PostedResults
from clara_eval.chain.model import Challenge, ChallengeStatus, Posted, PostedBy
from clara_eval.chain.winners import read_calldata
from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.public_documents import rows_on_chain
from clara_eval.challenges.status import StatusWriter
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import State
from clara_eval.documents.store_keys import scores_key
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import bring_back


async def record_posted(store: SqlStore, results: PostedResults, challenge: Challenge) -> Posted | None:
    """Write what is posted and return it; None if nothing is, or nothing deep enough."""
    posted = await results.posted_by(challenge)
    if posted is None:
        return None
    writer = await StatusWriter.resumed(store, challenge.chain_id, challenge.address)
    if not posted.is_final:
        await writer.say("publishing", 95, reason="Scores are posted; their block is not deep enough yet.")
        return None
    scores = await read_document(store, challenge.chain_id, scores_key(challenge.address))
    committed = _committed(posted) if posted.by is PostedBy.EVALUATOR else None
    if committed and (scores is None or scores.get("traceDigest") != committed):
        await bring_back(store, challenge.chain_id, challenge.address, committed)
        scores = await read_document(store, challenge.chain_id, scores_key(challenge.address))
    ours = scores if scores is not None and committed and scores.get("traceDigest") == committed else None
    if scores is None or not scores.get("postedBy") or (scores.get("traceDigest") and ours is None):
        document = ours or await _on_chain(results, challenge, posted.by)
        document |= {"postedBy": str(posted.by), "txHash": posted.tx_hash, "outcome": "already_done"}
        document["publishedAt"] = challenge.score_posted_at
        await store.put(challenge.chain_id, scores_key(challenge.address), plain_json(document))
    reason = None if posted.by is PostedBy.EVALUATOR else f"Scores were posted by the {posted.by}."
    await writer.say("complete", reason=reason, posted_by=str(posted.by))
    return posted


def _committed(posted: Posted) -> str | None:
    try:
        return read_calldata(posted.calldata).trace_digest
    except BadInput:
        return None


async def _on_chain(results: PostedResults, challenge: Challenge, by: PostedBy) -> dict[str, object]:
    """The paid places as the contract holds them; winners only if we posted."""
    winners = await results.winners_on_chain(challenge.address, challenge.winner_count)
    rows = [row.model_dump() for row in rows_on_chain(winners)]
    paid = [{"account": row["address"], "prizeAmount": row["prizeAmount"]} for row in rows]
    chosen = paid if by is PostedBy.EVALUATOR else []
    return {"rankings": rows, "winners": chosen, "margin": None, "consistency": None, "flags": [], "traceDigest": None}


async def record_closed(store: SqlStore, challenge: Challenge) -> None:
    state: State
    if challenge.status is ChallengeStatus.EXPIRED:
        state, reason = "failed", "It expired without scores: every submitter may claim an equal share."
    else:
        state, reason = "unscorable", "The challenge was cancelled and the poster refunded."
    writer = await StatusWriter.resumed(store, challenge.chain_id, challenge.address)
    await writer.say(state, reason=reason)
