"""Publishing a posted result: everything arrives, in the right order, whatever interrupts it, and nothing before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.publish_documents import ADDRESS, CHAIN, DIGEST, Breaking, filled

from clara_eval.core.errors import Temporary
from clara_eval.documents.store_keys import (
    pairwise_key,
    review_key,
    scores_key,
    status_key,
)
from clara_eval.store.publication import publish_documents as publishing
from clara_eval.store.publication.publish_documents import publish_documents, unpublished
from clara_eval.store.publication.store_publication import StorePublication
from clara_eval.store.sqlite import SqliteStore
from clara_eval.store.trace_archive import stream_trace


async def test_everything_public_arrives_and_nothing_else(tmp_path: Path) -> None:
    """The five kinds of keys are there as they are here; reviews stay at home; a second call puts nothing."""
    store, there = await filled(tmp_path / "a.db"), await SqliteStore.open(tmp_path / "b.db")
    place = Breaking(StorePublication(there), 10**9)
    assert await publish_documents(store, place, CHAIN, ADDRESS)
    public = [item for item in await store.items(CHAIN, f"challenges:{ADDRESS}:") if item[0] != review_key(ADDRESS)]
    assert await there.items(CHAIN, "") == public
    assert [part async for part in stream_trace(there, CHAIN, ADDRESS)] == [
        part async for part in stream_trace(store, CHAIN, ADDRESS)
    ]
    count = len(place.put)
    assert await publish_documents(store, place, CHAIN, ADDRESS)
    assert len(place.put) == count


async def test_nothing_goes_out_before_the_post(tmp_path: Path) -> None:
    """A result that is not posted, or that is not the archived one, stays at home."""
    store, there = await filled(tmp_path / "a.db", posted_by=None), await SqliteStore.open(tmp_path / "b.db")
    assert not await publish_documents(store, StorePublication(there), CHAIN, ADDRESS)
    await store.put(CHAIN, scores_key(ADDRESS), json.dumps({"traceDigest": "0xother", "postedBy": "evaluator"}))
    assert not await publish_documents(store, StorePublication(there), CHAIN, ADDRESS)
    assert await there.items(CHAIN, "") == []


async def test_an_interruption_at_any_call_is_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it breaks, scores come after what they rest on, status after all; going on puts every key once."""
    monkeypatch.setattr(publishing, "BULK", 7)
    store, there = await filled(tmp_path / "a.db"), await SqliteStore.open(tmp_path / "b.db")
    place = Breaking(StorePublication(there), 0)
    done, calls = False, 0
    while not done:
        place.calls_left = 1
        try:
            done = await publish_documents(store, place, CHAIN, ADDRESS)
        except Temporary:
            assert await there.get(CHAIN, status_key(ADDRESS)) is None
            has_scores = await there.get(CHAIN, scores_key(ADDRESS)) is not None
            assert not has_scores or await StorePublication(there).trace_digest(CHAIN, ADDRESS) == DIGEST
            assert not has_scores or len(await there.keys(CHAIN, pairwise_key(ADDRESS, "", "")[:-1])) == 12 * 11
        calls += 1
        assert calls < 100
    pairs = [key for key in place.put if key not in {scores_key(ADDRESS), status_key(ADDRESS)}]
    assert len(pairs) == len(set(pairs)) == 12 + 12 * 11
    assert place.put[-1] == status_key(ADDRESS)
    assert await there.get(CHAIN, status_key(ADDRESS)) == '{"status":"complete"}'


async def test_what_changes_after_publication_is_put_again(tmp_path: Path) -> None:
    """A status that is written anew goes there alone; scores that are new go before their status, and nothing else."""
    store, there = await filled(tmp_path / "a.db"), await SqliteStore.open(tmp_path / "b.db")
    place = Breaking(StorePublication(there), 10**9)
    assert await publish_documents(store, place, CHAIN, ADDRESS)
    await store.put(CHAIN, status_key(ADDRESS), '{"status":"complete","updatedAt":2}')
    assert await unpublished(store, [place], CHAIN, [ADDRESS]) == [(place, ADDRESS)]
    place.put.clear()
    assert await publish_documents(store, place, CHAIN, ADDRESS)
    assert place.put == [status_key(ADDRESS)]
    scores = json.dumps({"traceDigest": DIGEST, "postedBy": "evaluator", "publishedAt": 7})
    await store.put_many(CHAIN, [(scores_key(ADDRESS), scores), (status_key(ADDRESS), '{"status":"complete"}')])
    place.put.clear()
    place.calls_left = 1
    with pytest.raises(Temporary):
        await publish_documents(store, place, CHAIN, ADDRESS)
    place.calls_left = 1
    assert await publish_documents(store, place, CHAIN, ADDRESS)
    assert place.put == [scores_key(ADDRESS), status_key(ADDRESS)]
    assert await unpublished(store, [place], CHAIN, [ADDRESS]) == []
    for key in place.put:
        assert await there.get(CHAIN, key) == await store.get(CHAIN, key)


async def test_evidence_follows_when_traces_are_no_longer_private(tmp_path: Path) -> None:
    """While they are private only scores and status are there; afterwards all the rest goes, once."""
    store, there = await filled(tmp_path / "a.db"), await SqliteStore.open(tmp_path / "b.db")
    place = Breaking(StorePublication(there), 10**9)
    assert await publish_documents(store, place, CHAIN, ADDRESS, traces_public=False)
    assert place.put == [scores_key(ADDRESS), status_key(ADDRESS)]
    assert await unpublished(store, [place], CHAIN, [ADDRESS], traces_public=False) == []
    assert await unpublished(store, [place], CHAIN, [ADDRESS]) == [(place, ADDRESS)]
    assert await publish_documents(store, place, CHAIN, ADDRESS)
    assert len(place.put) == len(set(place.put)) == 2 + 12 + 12 * 11
    assert await there.items(CHAIN, "") == [
        item for item in await store.items(CHAIN, f"challenges:{ADDRESS}:") if item[0] != review_key(ADDRESS)
    ]
    assert await unpublished(store, [place], CHAIN, [ADDRESS]) == []


async def test_pairs_of_many_submitters_share_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many keys in each as may be: the requests do not follow the number of submitters."""
    monkeypatch.setattr(publishing, "BULK", 50)
    store, there = await filled(tmp_path / "a.db"), await SqliteStore.open(tmp_path / "b.db")
    place = Breaking(StorePublication(there), 10**9)
    assert await publish_documents(store, place, CHAIN, ADDRESS)
    assert 10**9 - place.calls_left == 3 + 1 + 2, "144 keys, the trace, scores, status"
