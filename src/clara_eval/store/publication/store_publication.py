"""The store as a place of publication."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from clara_eval.store.ports import PublicKeys
from clara_eval.store.trace_archive import archived_trace, save_trace


@dataclass(frozen=True, slots=True)
class StorePublication:
    keys: PublicKeys
    name: str = "store"
    takes_keys: bool = True

    async def put_keys(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        await self.keys.put_many(chain_id, pairs)

    async def trace_digest(self, chain_id: int, address: str) -> str | None:
        found = await archived_trace(self.keys, chain_id, address)
        return found.digest if found else None

    async def take_trace(self, chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> None:
        await save_trace(self.keys, chain_id, address, parts, digest)
