"""What the chain settled without us: recorded in the store, so that every door tells the same.

With an empty store this is how the past comes back: who posted, in which transaction, and the winners as the contract
holds them. A ranking that we made ourselves and that was posted is never replaced by this shorter one; one that was not
posted, because somebody else's stands, always is: nobody may take it for the result.
"""

from __future__ import annotations

import time
from typing import Any

from clara_eval.app import App
from clara_eval.challenge.model import Challenge, ChallengeStatus
from clara_eval.engine.attempt_memory import say_status
from clara_eval.errors import BadInput
from clara_eval.hashing import plain_json
from clara_eval.publish.calldata import read_calldata
from clara_eval.publish.posted import Posted
from clara_eval.records.challenge_index import read_document
from clara_eval.trace.store_keys import scores_key


async def record_posted(app: App, challenge: Challenge) -> str | None:
    """Write what is posted; gives back by whom, None where nothing is."""
    posted = await app.chain.posted_by(challenge)
    if posted is None:
        return None
    by = str(posted.by)
    scores = await read_document(app.store, app.chain_id, scores_key(challenge.address))
    ours = scores if scores is not None and _is_posted(scores, posted) else None
    if scores is None or not scores.get("postedBy") or (scores.get("traceDigest") and ours is None):
        await _write_scores(app, challenge, by, posted.tx_hash, ours=ours)
    reason = None if by == "evaluator" else f"Scores were posted by the {by}."
    changes: dict[str, Any] = {"status": "complete", "progress": 100, "reason": reason, "retryAt": None, "postedBy": by}
    await say_status(app.store, app.chain_id, challenge.address, time.time(), **changes)
    return by


def _is_posted(scores: dict[str, Any], posted: Posted) -> bool:
    """Whether this ranking is the posted one: the transaction commits to its trace."""
    try:
        committed = read_calldata(posted.calldata).trace_digest
    except BadInput:
        return False
    return committed is not None and committed == scores.get("traceDigest")


async def _write_scores(app: App, challenge: Challenge, by: str, tx_hash: str, *, ours: dict[str, Any] | None) -> None:
    document = ours or await _on_chain(app, challenge)
    document |= {"postedBy": by, "txHash": tx_hash, "outcome": "already_done", "publishedAt": challenge.score_posted_at}
    await app.store.put(app.chain_id, scores_key(challenge.address), plain_json(document))


async def _on_chain(app: App, challenge: Challenge) -> dict[str, Any]:
    """The winners as the contract holds them; nothing is known about the others."""
    winners = await app.chain.winners_on_chain(challenge.address, challenge.winner_count)
    unknown = dict.fromkeys(("elo", "low", "high", "pTop", "wins", "losses", "ties"))
    rows: list[dict[str, Any]] = [
        {
            "address": winner.account,
            "agentId": winner.agent_id,
            "rank": place,
            "score": winner.score,
            "prizeAmount": str(winner.prize_amount),
            "status": "ranked",
            "reason": None,
            "tiedWith": [],
            **unknown,
        }
        for place, winner in enumerate(winners, start=1)
    ]
    paid = [{"account": row["address"], "prizeAmount": row["prizeAmount"]} for row in rows]
    return {"rankings": rows, "winners": paid, "margin": None, "consistency": None, "flags": [], "traceDigest": None}


async def record_closed(app: App, challenge: Challenge) -> None:
    """The contract ended without scores."""
    if challenge.status is ChallengeStatus.EXPIRED:
        status, reason = "failed", "It expired without scores: every submitter may claim an equal share."
    else:
        status, reason = "unscorable", "The challenge was cancelled and the poster refunded."
    changes: dict[str, Any] = {"status": status, "progress": 100, "reason": reason, "retryAt": None}
    await say_status(app.store, app.chain_id, challenge.address, time.time(), **changes)
