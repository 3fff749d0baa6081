"""Posted results reach every place of publication: after the post, after an outage, after a death at any step."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from eth_utils.address import to_checksum_address
from tests.support.faulty_node import FaultyNode, longest_range
from tests.support.ipfs_node import LocalIpfsNode
from tests.support.rounds import closed_round
from tests.support.step_worker import KILLED, PACE, StepWorkers
from tests.support.verified import verify_trace
from tests.support.web3_chain import as_web3

from clara_eval.actions.evaluate import evaluate
from clara_eval.actions.publication import publish_missing
from clara_eval.app import open_app
from clara_eval.chain.model import Challenge
from clara_eval.challenges.challenge_index import read_document, save_summary
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadTrace, NotFound
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.local_chain import HOUR, LocalChain, create
from clara_eval.documents.store_keys import scores_key
from clara_eval.service.loop import run_tick
from clara_eval.service.metrics import Alerts, Metrics
from clara_eval.store.trace_archive import stream_trace


@pytest.fixture
async def node() -> AsyncIterator[LocalIpfsNode]:
    async with LocalIpfsNode() as made:
        await made.start()
        yield made


def settings_of(chain: LocalChain, place: Path, node: LocalIpfsNode) -> Settings:
    changes = {"ipfs_api": node.url, "ipfs_gateway": node.url}
    return local_settings(chain, place / "store.db", place).model_copy(update=changes)


async def test_a_posted_trace_is_pinned_and_verified_from_there(
    local_chain: LocalChain, tmp_path: Path, node: LocalIpfsNode
) -> None:
    """The scores name its CID, and whoever has only the CID and a node verifies the result."""
    address, settings = await closed_round(local_chain), settings_of(local_chain, tmp_path, node)
    async with open_app(settings, pace=PACE) as app:
        done = await evaluate(app, address)
        scores = await read_document(app.store, app.chain_id, scores_key(address)) or {}
        again = await evaluate(app, address)
    assert node.pins == {scores["traceCid"]: 1}
    assert again.digest == done.digest
    stranger = settings.model_copy(update={"database_url": f"sqlite:///{tmp_path}/empty.db"})
    checked = await verify_trace(f"ipfs://{scores['traceCid']}", stranger, rpc=local_chain.rpc_url)
    assert (checked.digest, checked.posted is not None) == (done.digest, True)


async def test_a_place_that_was_down_gets_everything_later(
    local_chain: LocalChain, tmp_path: Path, node: LocalIpfsNode
) -> None:
    """The post does not wait for it; when it answers again, what it lacks goes there, once."""
    address, settings = await closed_round(local_chain), settings_of(local_chain, tmp_path, node)
    await node.stop()
    async with open_app(settings, pace=PACE) as app:
        done = await evaluate(app, address)
        assert done.receipt is not None
        await save_summary(app.store, done.challenge, "evaluator")
        problems = [told.problem async for told in publish_missing(app)]
        assert len(problems) == 1
        assert "does not take the trace" in (problems[0] or "")
        await node.start()
        assert [told.problem async for told in publish_missing(app)] == [None]
        assert [told async for told in publish_missing(app)] == []
        assert node.pins == {(await read_document(app.store, app.chain_id, scores_key(address)) or {})["traceCid"]: 1}


async def test_killed_at_each_step_of_pinning_nothing_is_lost(
    local_chain: LocalChain, tmp_path: Path, node: LocalIpfsNode
) -> None:
    """A real process dies before and after the trace is taken and as it is written down; ticks of others finish it."""
    address = await closed_round(local_chain)
    environ = {
        "CLARA_NETWORK": "local",
        "CLARA_RPC_URL": local_chain.rpc_url,
        "CLARA_CHALLENGE_FACTORY": local_chain.deployment.factory,
        "CLARA_FROM_BLOCK": str(local_chain.deployment.from_block),
        "CLARA_EVALUATOR_KEY": local_chain.evaluator.key,
        "CLARA_DATABASE_URL": f"sqlite:///{tmp_path}/store.db",
        "CLARA_IPFS_API": node.url,
    }
    async with StepWorkers(environ) as workers:
        assert await workers.run("evaluate", address, kill="before:take_trace:1") == KILLED, workers.told
        assert node.pins == {}
        for point in ("after:take_trace:1", "before:put_many:1", "after:put_many:1"):
            assert await workers.run("tick", kill=point) == KILLED, (point, workers.told)
        assert await workers.run("tick") == 0, workers.told
        pinned = dict(node.pins)
        assert await workers.run("tick") == 0, workers.told
        assert node.pins == pinned, "a tick with nothing to do sends nothing"
    async with open_app(Settings.from_env(environ), pace=PACE) as app:
        scores = await read_document(app.store, app.chain_id, scores_key(address)) or {}
        assert list(node.pins) == [scores["traceCid"]]
        progress = json.loads(await app.store.get(app.chain_id, f"publication:ipfs:{address}") or "{}")
    assert progress["last"] == "done"
    logs = await as_web3(local_chain.challenge(address)).events.ScoresPosted.get_logs(from_block=0)
    assert len(logs) == 1


@pytest.mark.specification("1", "Auditable: full eval traces stored")
async def test_an_address_and_a_node_are_enough_to_verify(
    local_chain: LocalChain, tmp_path: Path, node: LocalIpfsNode
) -> None:
    """The digest comes from the chain; the trace from the store, IPFS or a file that has this digest."""
    address, settings = await closed_round(local_chain), settings_of(local_chain, tmp_path, node)
    agents = to_checksum_address(local_chain.deployment.identity_registry)
    registry = await create(local_chain.node, "ReputationRegistry", agents)
    settings = settings.model_copy(update={"reputation": "winners", "reputation_registry": registry.lower()})
    nothing = {"database_url": f"sqlite:///{tmp_path}/empty.db", "trace_dir": tmp_path / "none"}
    stranger = settings.model_copy(update=nothing)
    with pytest.raises(BadTrace, match="No scores"):
        await verify_trace(address, settings, rpc=local_chain.rpc_url)
    async with open_app(settings, pace=PACE) as app:
        done = await evaluate(app, address)
        text = "".join([part async for part in stream_trace(app.store, app.chain_id, address)])
        assert (await verify_trace(address, settings, rpc=local_chain.rpc_url)).digest == done.digest
        with pytest.raises(NotFound, match=r"commits to the trace .* no source here has it"):
            await verify_trace(address, stranger, rpc=local_chain.rpc_url)
        await local_chain.move_time(12 * HOUR + 1)
        for _ in range(2):
            await run_tick(app, Alerts(Metrics()), Metrics(), _nothing)
    assert (await verify_trace(address, stranger, rpc=local_chain.rpc_url)).digest == done.digest, "by the feedback"
    await node.stop()
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / f"{address}.trace.json").write_text(text.replace('"score":', '"scare":', 1))
    with_files = stranger.model_copy(update={"trace_dir": shelf})
    with pytest.raises(NotFound, match="no source here has it"):
        await verify_trace(address, with_files, rpc=local_chain.rpc_url)
    (shelf / f"{address}.copy.json").write_text(text)
    async with FaultyNode(local_chain.rpc_url) as limited:
        limited.instead = longest_range(8, -32614, "eth_getLogs is limited to a 10,000 range")
        checked = await verify_trace(address, with_files, rpc=limited.url)
    assert (checked.digest, checked.posted is not None) == (done.digest, True)


async def _nothing(_challenge: Challenge) -> None:
    """No evaluation is due here."""
