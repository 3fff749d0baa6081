"""Set-up shared by tests: what test_publish_documents.py and others use."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from clara_eval.core.errors import Temporary
from clara_eval.documents.store_keys import (
    features_key,
    pairwise_key,
    review_key,
    scores_key,
    status_key,
)
from clara_eval.store.sql_store import PublicKeys, SqlStore
from clara_eval.store.sqlite import SqliteStore
from clara_eval.store.trace_archive import archived_trace, save_trace

CHAIN, ADDRESS, DIGEST = 31337, "0x" + "ab" * 20, "0xdigest"


SUBMITTERS = [f"0x{number:040x}" for number in range(12)]


TRACE = [f"line {number}\n" * 10_000 for number in range(40)]


@dataclass(frozen=True, slots=True)
class StorePublication:
    """A store as a place of publication."""

    keys: PublicKeys
    name: str = "store"
    takes_keys: ClassVar[bool] = True

    async def check(self) -> None:
        """A store takes everything."""

    async def put_keys(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        await self.keys.put_many(chain_id, pairs)

    async def trace_digest(self, chain_id: int, address: str) -> str | None:
        found = await archived_trace(self.keys, chain_id, address)
        return found.digest if found else None

    async def take_trace(self, chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> None:
        await save_trace(self.keys, chain_id, address, [part async for part in parts], digest)


async def filled(path: Path, *, posted_by: str | None = "evaluator") -> SqlStore:
    """A store after an evaluation: features, pairs, trace, scores, status, and a review that is nobody's business."""
    store = await SqliteStore.open(path)
    pairs = [(features_key(ADDRESS, one), json.dumps({"of": one})) for one in SUBMITTERS]
    pairs += [(pairwise_key(ADDRESS, a, b), '{"winner":"A"}') for a in SUBMITTERS for b in SUBMITTERS if a != b]
    pairs += [(scores_key(ADDRESS), json.dumps({"traceDigest": DIGEST, "postedBy": posted_by}))]
    pairs += [(status_key(ADDRESS), '{"status":"complete"}'), (review_key(ADDRESS), '{"reasons":["private"]}')]
    await store.put_many(CHAIN, pairs)
    await save_trace(store, CHAIN, ADDRESS, TRACE, DIGEST)
    return store


@dataclass
class Breaking:
    """A place that goes down at the n-th call."""

    inner: StorePublication
    calls_left: int
    name: str = "elsewhere"
    takes_keys: ClassVar[bool] = True
    put: list[str] = field(default_factory=list)

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise Temporary("The place of publication is down.")

    async def check(self) -> None:
        await self.inner.check()

    async def put_keys(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        self._count()
        await self.inner.put_keys(chain_id, pairs)
        self.put += [key for key, _ in pairs]

    async def trace_digest(self, chain_id: int, address: str) -> str | None:
        return await self.inner.trace_digest(chain_id, address)

    async def take_trace(self, chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> None:
        self._count()
        await self.inner.take_trace(chain_id, address, digest, parts)
