"""A person's decision: recorded, tied to the digest that was looked at, and followed up.

An approval lets the next attempt publish exactly the approved result. A rejection ends the evaluation as `failed` with
the reason; the poster may still post. Where somebody has posted already, that stands, and only the word is recorded.
"""

from __future__ import annotations

import time

from clara_eval.challenge.model import Address
from clara_eval.engine.attempt_memory import read_attempts, save_attempts, say_status
from clara_eval.pipeline.review import Review, ReviewState, decide
from clara_eval.records.challenge_index import read_document
from clara_eval.trace.store import Store
from clara_eval.trace.store_keys import status_key


async def settle_review(
    store: Store, chain_id: int, address: Address, *, approve: bool, note: str, digest: str | None = None
) -> Review:
    """Approve or reject what waits; BadInput or NotFound where nothing does."""
    now = time.time()
    state: ReviewState = "approved" if approve else "rejected"
    review = await decide(store, chain_id, address, state, note=note, now=int(now), digest=digest)
    if approve:
        attempts = await read_attempts(store, chain_id, address)
        await save_attempts(store, chain_id, address, attempts.at_once())
    elif not (await read_document(store, chain_id, status_key(address)) or {}).get("postedBy"):
        reason = f"The result was {state} in review: {note or 'no reason given'}."
        await say_status(store, chain_id, address, now, status="failed", progress=100, reason=reason)
    return review
