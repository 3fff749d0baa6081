"""Publishes the documents of one posted result at a place: the specification's five keys, from our own store.

Comes in: the store that holds them and a `Publication`. Must hold: only a result that is posted goes out. Features and
pairs go first, then the trace, then scores and status: whoever reads `complete` finds everything. What was put is
remembered bulk by bulk in the store, so a process that is killed goes on where it was, and a second call puts nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

from clara_eval.hashing import plain_json
from clara_eval.publication.port import Publication
from clara_eval.trace.archive import archived_trace, stream_trace
from clara_eval.trace.store import PublicKeys
from clara_eval.trace.store_keys import features_key, pairwise_key, scores_key, status_key

BULK = 500
DONE = "done"


@dataclass(frozen=True, slots=True)
class _Progress:
    """Which result is going out, and the last key that is there; `DONE` when all are."""

    digest: str
    last: str = ""


async def publish_documents(store: PublicKeys, place: Publication, chain_id: int, address: str) -> bool:
    """Publish this challenge's documents; False where nothing is posted yet, so nothing may go out."""
    digest = await _posted_digest(store, chain_id, address)
    if digest is None:
        return False
    progress = await _progress(store, place, chain_id, address, digest)
    if progress.last == DONE:
        return True
    async for bulk in _bulks(store, chain_id, address, progress.last):
        await place.put_keys(chain_id, bulk)
        await _remember(store, place, chain_id, address, _Progress(digest, bulk[-1][0]))
    if await place.trace_digest(chain_id, address) != digest:
        await place.take_trace(chain_id, address, digest, stream_trace(store, chain_id, address))
    # In order of key the scores come after all the others: what is remembered says so.
    for key, last in ((scores_key(address), scores_key(address)), (status_key(address), DONE)):
        if progress.last != last:
            await place.put_keys(chain_id, [(key, await store.get(chain_id, key) or "")])
            await _remember(store, place, chain_id, address, _Progress(digest, last))
    return True


async def _posted_digest(store: PublicKeys, chain_id: int, address: str) -> str | None:
    """The digest of the archived trace, where exactly this result is posted."""
    scores = json.loads(await store.get(chain_id, scores_key(address)) or "{}")
    archived = await archived_trace(store, chain_id, address)
    is_posted = scores.get("postedBy") is not None and archived is not None
    return archived.digest if archived and is_posted and scores.get("traceDigest") == archived.digest else None


async def _bulks(store: PublicKeys, chain_id: int, address: str, last: str) -> AsyncIterator[list[tuple[str, str]]]:
    """Features, then pairs, in order of key, from after `last`; never more than one submitter's pairs in memory."""
    every = features_key(address, "")
    features = await store.keys(chain_id, every)
    for prefix in (every, *(pairwise_key(address, key.removeprefix(every), "") for key in features)):
        found = [pair for pair in await store.items(chain_id, prefix) if pair[0] > last]
        for start in range(0, len(found), BULK):
            yield found[start : start + BULK]


def _progress_key(place: Publication, address: str) -> str:
    return f"publication:{place.name}:{address}"


async def _progress(store: PublicKeys, place: Publication, chain_id: int, address: str, digest: str) -> _Progress:
    text = await store.get(chain_id, _progress_key(place, address))
    found = _Progress(**json.loads(text)) if text else _Progress(digest)
    return found if found.digest == digest else _Progress(digest)


async def _remember(store: PublicKeys, place: Publication, chain_id: int, address: str, progress: _Progress) -> None:
    await store.put(chain_id, _progress_key(place, address), plain_json(asdict(progress)))
