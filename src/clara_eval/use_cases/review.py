"""A person's word about a result: what waits, why, and the decision with what follows from it.

The reasons are the operator's: they name who stands near the money. An approval lets the next attempt publish exactly
the approved result. A rejection ends the evaluation as `failed` with the note; the poster may still post. Where
somebody has posted already, that stands, and only the word is recorded.
"""

from __future__ import annotations

import time

from clara_eval.challenge.model import Address
from clara_eval.pipeline.attempt_memory import read_attempts, save_attempts
from clara_eval.pipeline.review import Review, decide, known_review, list_reviews
from clara_eval.pipeline.status import StatusWriter, read_status
from clara_eval.trace.store import Store

__all__ = ["approve", "known_review", "list_reviews", "reject"]


async def approve(store: Store, chain_id: int, address: Address, *, note: str, digest: str | None = None) -> Review:
    """Let exactly this result be posted; BadInput or NotFound where nothing waits, or another result does."""
    review = await decide(store, chain_id, address, "approved", note=note, now=int(time.time()), digest=digest)
    attempts = await read_attempts(store, chain_id, address)
    await save_attempts(store, chain_id, address, attempts.at_once())
    return review


async def reject(store: Store, chain_id: int, address: Address, *, note: str, digest: str | None = None) -> Review:
    """End the evaluation as failed; BadInput or NotFound where nothing waits, or another result does."""
    review = await decide(store, chain_id, address, "rejected", note=note, now=int(time.time()), digest=digest)
    if not (await read_status(store, chain_id, address) or {}).get("postedBy"):
        status = await StatusWriter.resumed(store, chain_id, address)
        await status.say("failed", reason=f"The result was rejected in review: {note or 'no reason given'}.")
    return review
