"""The status and the review of an evaluation, as tests read and make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.review import Review, save_review
from clara_eval.documents.store_keys import status_key
from clara_eval.store.sql_store import PublicKeys


async def read_status(keys: PublicKeys, chain_id: int, address: str) -> dict[str, Any] | None:
    return await read_document(keys, chain_id, status_key(address))


async def request_review(
    keys: PublicKeys,
    chain_id: int,
    address: str,
    digest: str,
    reasons: Sequence[str],
    now: int,
    *,
    posts_at: int | None = None,
) -> Review:
    review = Review(address, digest, "waiting", tuple(reasons), now, posts_at=posts_at)
    return await save_review(keys, chain_id, review)
