"""Read the status of an evaluation as a test compares it: the JSON object in the store."""

from __future__ import annotations

from typing import Any

from clara_eval.challenges.challenge_index import read_document
from clara_eval.documents.store_keys import status_key
from clara_eval.store.sql_store import PublicKeys


async def read_status(keys: PublicKeys, chain_id: int, address: str) -> dict[str, Any] | None:
    return await read_document(keys, chain_id, status_key(address))
