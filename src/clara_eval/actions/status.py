"""Read what the store knows of an evaluation: its status, its scores, its trace, and what was spent."""

from __future__ import annotations

from collections.abc import AsyncIterator

from clara_eval.actions.spend_report import SpendReport, spend_report
from clara_eval.actions.spend_report import to_json as spend_document
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.documents.results import EvalStatus, Scores, read
from clara_eval.documents.store_keys import index_key, scores_key, status_key
from clara_eval.store.open import existing_store
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import stream_trace

__all__ = ["evaluation_status", "spend_document", "spending", "stored_status", "stored_trace"]


async def evaluation_status(store: SqlStore, chain_id: int, address: Address) -> EvalStatus | None:
    """Read the status; `pending` if only the challenge is known, None if it is not."""
    found = await read(store, chain_id, EvalStatus, status_key(address))
    if found is not None or await store.get(chain_id, index_key(address)) is None:
        return found
    return EvalStatus(status="pending", progress=0)


async def stored_status(settings: Settings, address: Address) -> tuple[EvalStatus | None, Scores | None]:
    async with existing_store(settings.database_url) as store:
        if store is None:
            return None, None
        chain_id = settings.network.chain_id
        status = await evaluation_status(store, chain_id, address)
        return status, await read(store, chain_id, Scores, scores_key(address))


async def stored_trace(settings: Settings, address: Address) -> AsyncIterator[bytes]:
    """Stream the trace of a challenge; nothing if there is none."""
    async with existing_store(settings.database_url) as store:
        if store is not None:
            async for part in stream_trace(store, settings.network.chain_id, address):
                yield part.encode()


async def spending(settings: Settings, since: int) -> SpendReport:
    """Report what was spent on models since a moment."""
    async with existing_store(settings.database_url) as store:
        return spend_report(await store.spends(since=since) if store else [])
