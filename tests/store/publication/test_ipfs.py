"""A trace at IPFS: under its own CID or not at all, whatever the node says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.support.ipfs import file_cid
from tests.support.ipfs_node import Lie, LocalIpfsNode
from tests.support.publish_documents import ADDRESS, CHAIN, DIGEST, TRACE, Breaking, StorePublication, filled

from clara_eval.core.errors import Temporary
from clara_eval.documents.store_keys import scores_key
from clara_eval.store.publication.ipfs import IpfsPublication
from clara_eval.store.publication.publish_documents import publish_documents, trace_uri, unpublished
from clara_eval.store.sqlite import SqliteStore

CID = file_cid("".join(TRACE).encode())


async def parts(texts: Sequence[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def test_a_trace_is_pinned_under_the_cid_that_is_computed_here(tmp_path: Path) -> None:
    """The scores name the CID, a second call sends nothing, and a place that had the scores before gets them anew."""
    store, there = await filled(tmp_path / "a.db"), await SqliteStore.open(tmp_path / "b.db")
    mirror = Breaking(StorePublication(there), 10**9)
    assert await publish_documents(store, mirror, CHAIN, ADDRESS)
    assert await unpublished(store, [mirror], CHAIN, [ADDRESS]) == []
    async with LocalIpfsNode() as node:
        await node.start()
        place = IpfsPublication(node.url + "/")
        assert await unpublished(store, [place, mirror], CHAIN, [ADDRESS]) == [(place, ADDRESS)]
        assert await publish_documents(store, place, CHAIN, ADDRESS)
        assert await publish_documents(store, place, CHAIN, ADDRESS)
        assert node.pins == {CID: 1}
    assert await trace_uri(store, CHAIN, ADDRESS, DIGEST) == f"ipfs://{CID}"
    assert json.loads(await store.get(CHAIN, scores_key(ADDRESS)) or "")["traceCid"] == CID
    assert await unpublished(store, [place, mirror], CHAIN, [ADDRESS]) == [(mirror, ADDRESS)]
    count = len(mirror.put)
    assert await publish_documents(store, mirror, CHAIN, ADDRESS)
    assert len(mirror.put) == count + 2, "scores and status, and nothing else"
    assert json.loads(await there.get(CHAIN, scores_key(ADDRESS)) or "")["traceCid"] == CID
    assert await unpublished(store, [place, mirror], CHAIN, [ADDRESS]) == []


@pytest.mark.parametrize("lie", ["another cid", "no pin", "broken off", "garbage", "refused", "endless"])
async def test_a_node_that_lies_or_fails_is_an_outage(tmp_path: Path, lie: Lie) -> None:
    """No CID is told on its word; when it is honest again, the same trace goes out."""
    store = await filled(tmp_path / "a.db")
    async with LocalIpfsNode() as node:
        await node.start()
        node.lie = lie
        place = IpfsPublication(node.url)
        with pytest.raises(Temporary, match="IPFS node"):
            await publish_documents(store, place, CHAIN, ADDRESS)
        assert await trace_uri(store, CHAIN, ADDRESS, DIGEST) is None
        assert "traceCid" not in json.loads(await store.get(CHAIN, scores_key(ADDRESS)) or "")
        node.lie = ""
        assert await publish_documents(store, place, CHAIN, ADDRESS)
        assert CID in node.pins
    with pytest.raises(Temporary, match="does not take the trace"):
        await place.take_trace(CHAIN, ADDRESS, DIGEST, parts(TRACE))


async def test_private_traces_go_nowhere(tmp_path: Path) -> None:
    """Where the operator keeps traces private, only scores and status are published."""
    store, there = await filled(tmp_path / "a.db"), await SqliteStore.open(tmp_path / "b.db")
    place = Breaking(StorePublication(there), 10**9)
    assert await publish_documents(store, place, CHAIN, ADDRESS, traces_public=False)
    assert sorted(key.rpartition(":")[2] for key in place.put) == ["eval-status", "scores"]
    assert len(await there.items(CHAIN, "")) == 2
