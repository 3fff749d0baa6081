"""Where the evaluation of a challenge stands, the same for the command and the API."""

from __future__ import annotations

from typing import Any

from clara_eval.challenge.model import Address
from clara_eval.pipeline.status import read_status
from clara_eval.trace.store import Store
from clara_eval.trace.store_keys import index_key

_NOT_BEGUN = {"status": "pending", "progress": 0}
_UNKNOWN_YET = ("startedAt", "updatedAt", "reason", "retryAt", "stage", "estimateUsd")


async def evaluation_status(store: Store, chain_id: int, address: Address) -> dict[str, Any] | None:
    """The status document; waiting where only the challenge is known, None for one that nobody has heard of."""
    found = await read_status(store, chain_id, address)
    if found is not None or await store.get(chain_id, index_key(address)) is None:
        return found
    return {**_NOT_BEGUN, **dict.fromkeys(_UNKNOWN_YET)}
