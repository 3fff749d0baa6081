"""Publish the documents of one posted result, scores and status last; resumable."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Protocol

from clara_eval.core.codec import read_stored
from clara_eval.core.errors import Temporary
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.documents import store_keys
from clara_eval.store.sql_store import PublicKeys
from clara_eval.store.trace_archive import archived_trace, stream_trace


class Refused(Temporary):
    """The place refuses these documents; it may accept others."""


class Publication(Protocol):
    takes_keys: ClassVar[bool]  # Whether it stores keys, or only the trace

    @property
    def name(self) -> str: ...

    async def check(self) -> None:
        """Raise if it cannot store anything now."""

    async def put_keys(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        """Write up to BULK (key, JSON) pairs; Temporary in an outage, Refused if they are not accepted."""

    async def trace_digest(self, chain_id: int, address: str) -> str | None: ...

    async def take_trace(self, chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> str | None:
        """Write a trace in parts of about 1 MB, and return its permanent URI if it has one."""


BULK = 500
DONE = "done"
PROGRESS = "publication:"


@dataclass(frozen=True, slots=True)
class _Progress:
    """Stored progress of the publication of one result in one place."""

    digest: str
    last: str = ""  # The last written key of the evidence, or `DONE`
    uri: str | None = None  # Of the trace, as in the published scores
    evidence: bool = False  # Whether features, pairs and trace are all published
    scores: str = ""  # Hash of the published scores
    status: str = ""  # Hash of the published status


@dataclass(frozen=True, slots=True)
class _Documents:
    """Publisher of the documents of one challenge in one place."""

    store: PublicKeys
    place: Publication
    chain_id: int
    address: str

    async def get(self, key: str) -> str:
        return await self.store.get(self.chain_id, key) or ""

    async def save(self, progress: _Progress) -> _Progress:
        await self.store.put(self.chain_id, f"{PROGRESS}{self.place.name}:{self.address}", plain_json(asdict(progress)))
        return progress

    async def put_evidence(self, progress: _Progress) -> _Progress:
        if self.place.takes_keys:
            async for bulk in self._bulks("" if progress.last == DONE else progress.last):
                await self.place.put_keys(self.chain_id, bulk)
                progress = await self.save(replace(progress, last=bulk[-1][0]))
        if await self.place.trace_digest(self.chain_id, self.address) != progress.digest:
            parts = stream_trace(self.store, self.chain_id, self.address)
            uri = await self.place.take_trace(self.chain_id, self.address, progress.digest, parts)
            if uri is not None:  # stored in a key of its own, too, by which `unpublished` finds outdated scores
                scores = json.loads(await self.get(store_keys.scores_key(self.address)) or "{}")
                scores["traceCid"] = uri.removeprefix("ipfs://")
                pairs = [
                    (store_keys.scores_key(self.address), plain_json(scores)),
                    (store_keys.trace_uri_key(self.address), plain_json({"digest": progress.digest, "uri": uri})),
                ]
                await self.store.put_many(self.chain_id, pairs)
        return replace(progress, evidence=True)

    async def _bulks(self, last: str) -> AsyncIterator[list[tuple[str, str]]]:
        """Yield features, then pairs, in order of key, after `last`."""
        start = store_keys.features_key(self.address, "")
        features = await self.store.keys(self.chain_id, start)
        pairs = (store_keys.pairwise_key(self.address, key.removeprefix(start), "") for key in features)
        waiting: list[tuple[str, str]] = []
        for prefix in (start, *pairs, store_keys.verdicts_key(self.address)):
            waiting += [pair for pair in await self.store.items(self.chain_id, prefix) if pair[0] > last]
            while len(waiting) >= BULK:
                yield waiting[:BULK]
                waiting = waiting[BULK:]
        if waiting:
            yield waiting

    async def put_result(self, progress: _Progress) -> _Progress:
        """Write scores, then status, if they differ from the published ones."""
        scores = await self.get(store_keys.scores_key(self.address))
        if progress.scores != _hash(scores):
            await self.place.put_keys(self.chain_id, [(store_keys.scores_key(self.address), scores)])
            progress = await self.save(replace(progress, scores=_hash(scores), status=""))
        status = await self.get(store_keys.status_key(self.address))
        if progress.status != _hash(status):
            await self.place.put_keys(self.chain_id, [(store_keys.status_key(self.address), status)])
        return replace(progress, status=_hash(status))


async def publish_documents(
    store: PublicKeys, place: Publication, chain_id: int, address: str, *, traces_public: bool = True
) -> bool:
    """Publish a challenge's documents, without evidence if traces are private; False before the post."""
    documents, archived = _Documents(store, place, chain_id, address), await archived_trace(store, chain_id, address)
    scores = json.loads(await documents.get(store_keys.scores_key(address)) or "{}")
    if archived is None or scores.get("postedBy") is None or scores.get("traceDigest") != archived.digest:
        return False
    text = await documents.get(f"{PROGRESS}{place.name}:{address}")
    found = read_stored(_Progress, text) if text else _Progress(archived.digest)
    found = progress = found if found.digest == archived.digest else _Progress(archived.digest)
    if traces_public and not progress.evidence:
        progress = await documents.put_evidence(progress)
    uri = await trace_uri(store, chain_id, address, archived.digest)
    if place.takes_keys:
        progress = await documents.put_result(progress)
    progress = replace(progress, last=DONE, uri=uri)
    if progress != found:
        await documents.save(progress)
    return True


async def trace_uri(store: PublicKeys, chain_id: int, address: str, digest: str) -> str | None:
    found = json.loads(await store.get(chain_id, store_keys.trace_uri_key(address)) or "{}")
    return found["uri"] if found.get("digest") == digest else None


async def forget_published(store: PublicKeys, place: Publication, chain_id: int, address: str) -> None:
    await _Documents(store, place, chain_id, address).save(_Progress(""))


async def unpublished(
    store: PublicKeys,
    places: Sequence[Publication],
    chain_id: int,
    posted: Sequence[str],
    *,
    traces_public: bool = True,
) -> list[tuple[Publication, str]]:
    """List places and posted challenges whose published documents are missing or outdated."""
    rows = await store.items(chain_id, store_keys.TRACE_URIS)
    uris = {key.removeprefix(store_keys.TRACE_URIS): json.loads(text)["uri"] for key, text in rows}
    texts = await store.get_many(chain_id, [store_keys.status_key(address) for address in posted])
    statuses = {address: _hash(texts.get(store_keys.status_key(address), "")) for address in posted}
    found: list[tuple[Publication, str]] = []
    for place in places:
        start = f"{PROGRESS}{place.name}:"
        items = await store.items(chain_id, start)
        progress = {key.removeprefix(start): read_stored(_Progress, text) for key, text in items}
        found += [
            (place, address)
            for address in posted
            if (one := progress.get(address)) is None
            or (one.last, one.uri) != (DONE, uris.get(address))
            or (place.takes_keys and one.status != statuses[address])
            or (traces_public and not one.evidence)
        ]
    return found


def _hash(text: str) -> str:
    return sha256_hex(text.encode())
