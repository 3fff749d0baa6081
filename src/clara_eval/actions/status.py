"""Where the evaluation of a challenge stands, the same for the command and the API."""

from __future__ import annotations

from clara_eval.core.address import Address
from clara_eval.documents.results import EvalStatus, read
from clara_eval.documents.store_keys import index_key, status_key
from clara_eval.store.ports import Store


async def evaluation_status(store: Store, chain_id: int, address: Address) -> EvalStatus | None:
    """The status document; waiting where only the challenge is known, None for one that nobody has heard of."""
    found = await read(store, chain_id, EvalStatus, status_key(address))
    if found is not None or await store.get(chain_id, index_key(address)) is None:
        return found
    return EvalStatus(status="pending", progress=0)
