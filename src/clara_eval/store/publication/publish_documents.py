"""Publish the documents of one posted result, scores and status last; what was interrupted continues where it was."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Protocol

from clara_eval.core.codec import read_stored
from clara_eval.core.errors import Temporary
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.documents.store_keys import (
    TRACE_URIS,
    features_key,
    pairwise_key,
    scores_key,
    status_key,
    trace_uri_key,
    verdicts_key,
)
from clara_eval.store.sql_store import PublicKeys
from clara_eval.store.trace_archive import archived_trace, stream_trace


class Refused(Temporary):
    """The place answers and refuses these documents; others may go there."""


class Publication(Protocol):
    takes_keys: ClassVar[bool]
    """Whether the keys go there, or only the trace."""

    @property
    def name(self) -> str: ...

    async def check(self) -> None:
        """Raise if it would not take anything now."""
        ...

    async def put_keys(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        """Put some hundred (key, JSON) pairs; Temporary in an outage, Refused if it does not take them."""
        ...

    async def trace_digest(self, chain_id: int, address: str) -> str | None: ...

    async def take_trace(self, chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> str | None:
        """Take a trace in parts of about a megabyte, and return its lasting URI if it has one."""
        ...


BULK = 500
DONE = "done"
PROGRESS = "publication:"


@dataclass(frozen=True, slots=True)
class _Progress:
    """Which result is being published, and how much of it is there."""

    digest: str
    last: str = ""
    """The last key of the evidence, or `DONE` when everything that may go out is there."""
    uri: str | None = None
    """The trace's, as told there."""
    evidence: bool = False
    """Whether features, pairs and trace are all there."""
    scores: str = ""
    status: str = ""
    """Hashes of these two documents, as they are there."""


async def publish_documents(
    store: PublicKeys, place: Publication, chain_id: int, address: str, *, traces_public: bool = True
) -> bool:
    """Publish the documents of this challenge (scores and status if traces are private); False before the post."""
    digest = await _posted_digest(store, chain_id, address)
    if digest is None:
        return False
    text = await store.get(chain_id, _progress_key(place, address))
    found = read_stored(_Progress, text) if text else _Progress(digest)
    found = progress = found if found.digest == digest else _Progress(digest)
    if traces_public and not progress.evidence:
        progress = await _put_evidence(store, place, chain_id, address, progress)
    uri = await trace_uri(store, chain_id, address, digest)
    if place.takes_keys:
        progress = await _put_result(store, place, chain_id, address, progress)
    progress = replace(progress, last=DONE, uri=uri)
    if progress != found:
        await _remember(store, place, chain_id, address, progress)
    return True


async def _put_evidence(
    store: PublicKeys, place: Publication, chain_id: int, address: str, progress: _Progress
) -> _Progress:
    digest = progress.digest
    if place.takes_keys:
        async for bulk in _bulks(store, chain_id, address, "" if progress.last == DONE else progress.last):
            await place.put_keys(chain_id, bulk)
            progress = replace(progress, last=bulk[-1][0])
            await _remember(store, place, chain_id, address, progress)
    if await place.trace_digest(chain_id, address) != digest:
        uri = await place.take_trace(chain_id, address, digest, stream_trace(store, chain_id, address))
        if uri is not None:  # in the scores and in a list of its own, so that other places get the newer scores
            scores = json.loads(await store.get(chain_id, scores_key(address)) or "{}")
            scores["traceCid"] = uri.removeprefix("ipfs://")
            told = plain_json({"digest": digest, "uri": uri})
            pairs = [(scores_key(address), plain_json(scores)), (trace_uri_key(address), told)]
            await store.put_many(chain_id, pairs)
    return replace(progress, evidence=True)


async def _put_result(
    store: PublicKeys, place: Publication, chain_id: int, address: str, progress: _Progress
) -> _Progress:
    """Put scores, then status, if they differ from those at the place."""
    scores = await store.get(chain_id, scores_key(address)) or ""
    if progress.scores != _hash(scores):
        await place.put_keys(chain_id, [(scores_key(address), scores)])
        progress = replace(progress, scores=_hash(scores), status="")
        await _remember(store, place, chain_id, address, progress)
    status = await store.get(chain_id, status_key(address)) or ""
    if progress.status != _hash(status):
        await place.put_keys(chain_id, [(status_key(address), status)])
        progress = replace(progress, status=_hash(status))
    return progress


async def trace_uri(store: PublicKeys, chain_id: int, address: str, digest: str) -> str | None:
    found = json.loads(await store.get(chain_id, trace_uri_key(address)) or "{}")
    return found["uri"] if found.get("digest") == digest else None


async def forget_published(store: PublicKeys, place: Publication, chain_id: int, address: str) -> None:
    await _remember(store, place, chain_id, address, _Progress(""))


async def unpublished(
    store: PublicKeys,
    places: Sequence[Publication],
    chain_id: int,
    posted: Sequence[str],
    *,
    traces_public: bool = True,
) -> list[tuple[Publication, str]]:
    """List the places and posted challenges whose documents there differ from those here."""
    rows = await store.items(chain_id, TRACE_URIS)
    uris = {key.removeprefix(TRACE_URIS): json.loads(text)["uri"] for key, text in rows}
    texts = await store.get_many(chain_id, [status_key(address) for address in posted])
    statuses = {address: _hash(texts.get(status_key(address), "")) for address in posted}
    found: list[tuple[Publication, str]] = []
    for place in places:
        start = _progress_key(place, "")
        told = {
            key.removeprefix(start): read_stored(_Progress, text) for key, text in await store.items(chain_id, start)
        }
        found += [
            (place, address)
            for address in posted
            if (one := told.get(address)) is None
            or (one.last, one.uri) != (DONE, uris.get(address))
            or (place.takes_keys and one.status != statuses[address])
            or (traces_public and not one.evidence)
        ]
    return found


async def _posted_digest(store: PublicKeys, chain_id: int, address: str) -> str | None:
    scores = json.loads(await store.get(chain_id, scores_key(address)) or "{}")
    archived = await archived_trace(store, chain_id, address)
    is_posted = scores.get("postedBy") is not None and archived is not None
    return archived.digest if archived and is_posted and scores.get("traceDigest") == archived.digest else None


async def _bulks(store: PublicKeys, chain_id: int, address: str, last: str) -> AsyncIterator[list[tuple[str, str]]]:
    """Yield features, then pairs, in order of key, after `last`."""
    every = features_key(address, "")
    features = await store.keys(chain_id, every)
    pairs = (pairwise_key(address, key.removeprefix(every), "") for key in features)
    waiting: list[tuple[str, str]] = []
    for prefix in (every, *pairs, verdicts_key(address)):
        waiting += [pair for pair in await store.items(chain_id, prefix) if pair[0] > last]
        while len(waiting) >= BULK:
            yield waiting[:BULK]
            waiting = waiting[BULK:]
    if waiting:
        yield waiting


def _hash(text: str) -> str:
    return sha256_hex(text.encode())


def _progress_key(place: Publication, address: str) -> str:
    return f"{PROGRESS}{place.name}:{address}"


async def _remember(store: PublicKeys, place: Publication, chain_id: int, address: str, progress: _Progress) -> None:
    await store.put(chain_id, _progress_key(place, address), plain_json(asdict(progress)))
