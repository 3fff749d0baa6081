"""Results as reputation and as an agent's record: once for each agent and challenge, whatever happens on the way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from tests.support.step_worker import KILLED, PACE, StepWorkers
from tests.support.web3_chain import as_web3, web3_of

from clara_eval.actions.challenges import detail
from clara_eval.app import open_app, open_caller
from clara_eval.chain.contracts.abi import artifact
from clara_eval.challenges.challenge_index import agent_record, read_document
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import ConfigError
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.round import post_round, submit_round
from clara_eval.devnet.local_chain import HOUR, LocalChain, create
from clara_eval.documents.store_keys import scores_key
from clara_eval.store.trace_archive import stream_trace

GIVEN_GAS = 250_000
"""More than one feedback uses, less than two."""


@dataclass
class World:
    chain: LocalChain
    registry: Address
    environ: dict[str, str]
    address: Address

    @property
    def contract(self) -> Any:
        abi = artifact("ReputationRegistry").abi
        return web3_of(self.chain).eth.contract(address=to_checksum_address(self.registry), abi=abi)

    async def given(self) -> list[dict[str, Any]]:
        return [dict(one["args"]) for one in await self.contract.events.NewFeedback.get_logs(from_block=0)]


@pytest.fixture
async def world(local_chain: LocalChain, tmp_path: Path) -> World:
    """A closed round, and a registry of feedback about its agents."""
    chain = local_chain
    registry = await create(chain.node, "ReputationRegistry", to_checksum_address(chain.deployment.identity_registry))
    address = await post_round(chain)
    await submit_round(chain, address)
    await chain.move_time(HOUR + 1)
    environ = {
        "CLARA_NETWORK": "local",
        "CLARA_RPC_URL": chain.rpc_url,
        "CLARA_CHALLENGE_FACTORY": chain.deployment.factory,
        "CLARA_FROM_BLOCK": str(chain.deployment.from_block),
        "CLARA_EVALUATOR_KEY": chain.evaluator.key,
        "CLARA_USDC": chain.deployment.token,
        "CLARA_DATABASE_URL": f"sqlite:///{tmp_path}/store.db",
        "CLARA_REPUTATION": "on",
        "CLARA_REPUTATION_REGISTRY": registry,
    }
    return World(chain, Address(registry.lower()), environ, address)


async def test_feedback_is_given_once_through_deaths_at_every_step(world: World) -> None:
    """Processes die while signing, recording, sending and writing down; each ranked agent is told of exactly once."""
    owner = world.chain.evaluator.address
    first = (await as_web3(world.chain.challenge(world.address)).functions.getSubmission(_submitter(world)).call())[0]
    await world.chain.send(world.chain.agents[0], world.chain.registry, "approve", to_checksum_address(owner), first)
    async with StepWorkers(world.environ) as workers:
        assert await workers.run("evaluate", world.address) == 0, workers.told
        assert await workers.run("tick") == 0, workers.told
        assert await world.given() == [], "nothing before it is final"
        await world.chain.move_time(12 * HOUR + 1)
        assert await workers.run("tick") == 0, workers.told
        await world.chain.mine()
        for point in ("before:put:1", "before:save_transaction:1", "after:save_transaction:1", "before:broadcast:1",
                      "after:broadcast:2", "before:put:2", "after:put:2"):  # fmt: skip
            assert await workers.run("tick", kill=f"{point}@feedback") == KILLED, (point, workers.told)
        for _ in range(3):
            assert await workers.run("tick") == 0, workers.told
        given = await world.given()
        assert await workers.run("tick") == 0, workers.told
        assert len(await world.given()) == len(given)
    async with open_app(Settings.from_env(world.environ), pace=PACE) as app:
        scores = await read_document(app.store, app.chain_id, scores_key(world.address)) or {}
        text = "".join([part async for part in stream_trace(app.store, app.chain_id, world.address)])
    ranked = {row["agentId"]: row["score"] for row in scores["rankings"] if row["status"] == "ranked"}
    assert first in ranked
    assert {one["agentId"]: one["value"] for one in given} == {k: v for k, v in ranked.items() if k != first}
    assert len(given) == len(ranked) - 1, "the evaluator's own agent is skipped, nobody is told of twice"
    for one in given:
        assert (one["valueDecimals"], one["tag1"]) == (2, "challenge")
        assert one["endpoint"] == f"eip155:31337:{world.address}"
        assert "0x" + one["feedbackHash"].hex() == keccak_hex(text.encode())


def _submitter(world: World) -> Any:
    return to_checksum_address(world.chain.agents[0].address)


async def test_a_tick_stays_within_its_gas_and_the_chain_is_believed(world: World, tmp_path: Path) -> None:
    """One feedback fits into this budget, so a tick gives one; a store that lost everything gives none again."""
    environ = {**world.environ, "CLARA_REPUTATION": "winners", "CLARA_REPUTATION_GAS": str(GIVEN_GAS)}
    async with StepWorkers(environ) as workers:
        assert await workers.run("evaluate", world.address) == 0, workers.told
        await world.chain.move_time(12 * HOUR + 1)
        counts = []
        for _ in range(6):
            assert await workers.run("tick") == 0, workers.told
            counts.append(len(await world.given()))
        assert counts[-1] == 3, "winners only"
        assert all(after - before <= 1 for before, after in pairwise(counts))
        async with open_app(Settings.from_env(environ), pace=PACE) as app:
            key = f"feedback:{world.address}"
            plan = json.loads(await app.store.get(app.chain_id, key) or "{}")
            assert plan["isDone"]
            await app.store.put(app.chain_id, key, json.dumps({**plan, "given": {}, "isDone": False}))
            await _forget_transactions(tmp_path / "store.db")
        assert await workers.run("tick") == 0, workers.told
        assert await workers.run("tick") == 0, workers.told
        assert await workers.run("tick") == 0, workers.told
    assert len(await world.given()) == 3, "what stands on chain is not given again"


async def test_what_a_reorg_takes_away_is_given_again_once(world: World) -> None:
    """Feedback is mined and written down, then its blocks are replaced: what is gone is given again, the rest is not."""
    environ = {**world.environ, "CLARA_REPUTATION": "winners"}
    async with StepWorkers(environ) as workers:
        assert await workers.run("evaluate", world.address) == 0, workers.told
        await world.chain.move_time(12 * HOUR + 1)
        while len(first := await world.given()) < 3:
            assert await workers.run("tick") == 0, workers.told
        await world.chain.reorg(2)
        assert len(await world.given()) == 1, "two of three are gone"
        for _ in range(3):
            assert await workers.run("tick") == 0, workers.told
        again = await world.given()
        async with open_app(Settings.from_env(environ), pace=PACE) as app:
            plan = json.loads(await app.store.get(app.chain_id, f"feedback:{world.address}") or "{}")
    assert sorted(one["agentId"] for one in again) == sorted(one["agentId"] for one in first)
    assert len({one["agentId"] for one in again}) == len(again) == 3
    assert {one["feedbackIndex"] for one in again} == {1}
    assert plan["isDone"]


def hostile_code(identity: str, is_sly: bool) -> str:
    """A registry's code that knows no feedback and reverts `giveFeedback`: always, or only where gas has a price."""
    takes = "3a15" if is_sly else "6000"  # GASPRICE ISZERO, or PUSH1 0
    return (
        "0x36606410603157"  # more than 100 bytes of input: giveFeedback
        "3660041460135760206000f3"  # anything else but 4 bytes: 0
        f"5b73{identity[2:].lower()}60005260206000f3"  # 4 bytes: getIdentityRegistry()
        f"5b{takes}603b57600080fd5b00"
    )


@pytest.mark.parametrize("is_sly", [False, True])
async def test_a_registry_that_reverts_is_left_in_peace(world: World, is_sly: bool) -> None:
    """Refused in rehearsal, or taken there and reverted when mined: a few attempts for each agent, then none."""
    registry = "0x" + "77" * 20
    await world.chain.node.rpc(
        "anvil_setCode", registry, hostile_code(world.chain.deployment.identity_registry, is_sly)
    )
    environ = {**world.environ, "CLARA_REPUTATION": "winners", "CLARA_REPUTATION_REGISTRY": registry}
    evaluator = to_checksum_address(world.chain.evaluator.address)
    async with StepWorkers(environ) as workers:
        assert await workers.run("evaluate", world.address) == 0, workers.told
        await world.chain.move_time(12 * HOUR + 1)
        assert await workers.run("tick") == 0, workers.told
        counts = []
        for _ in range(5):
            await workers.run("tick")
            counts.append(await web3_of(world.chain).eth.get_transaction_count(evaluator))
    assert counts[-1] == counts[-2], "no more gas is spent"
    assert (counts[-1] > counts[0]) is is_sly
    assert counts[-1] - counts[0] <= 9
    async with open_app(Settings.from_env(environ), pace=PACE) as app:
        plan = json.loads(await app.store.get(app.chain_id, f"feedback:{world.address}") or "{}")
    assert (plan["given"], sorted(plan["refused"].values()), plan["isDone"]) == ({}, [3, 3, 3], True)


async def _forget_transactions(path: Path) -> None:
    import sqlite3

    with sqlite3.connect(path) as database:
        database.execute("delete from transactions")


async def test_an_agents_record_comes_from_the_chain(world: World) -> None:
    """Entered, won, earned and the average place, for the store's readers and in a challenge's detail."""
    async with StepWorkers(world.environ) as workers:
        assert await workers.run("evaluate", world.address) == 0, workers.told
        assert await workers.run("tick") == 0, workers.told
    settings = Settings.from_env(world.environ)
    async with open_app(settings, pace=PACE) as app:
        scores = await read_document(app.store, app.chain_id, scores_key(world.address)) or {}
        rows = {row["agentId"]: row for row in scores["rankings"]}
        records = {agent: await agent_record(app.store, app.chain_id, agent) for agent in rows}
        nobody = await agent_record(app.store, app.chain_id, 10**30)
        async with open_caller(settings, store=app.store) as caller:
            shown = await detail(caller, world.address)
    assert (nobody.entered, nobody.averagePlace) == (0, None)
    for agent, row in rows.items():
        record = records[agent]
        assert (record.entered, record.won) == (1, 1 if row["prizeAmount"] else 0)
        assert record.averagePlace == (row["rank"] if row["status"] == "ranked" else None)
        assert [one.amount for one in record.earned] == ([row["prizeAmount"]] if row["prizeAmount"] else [])
        assert record.challenges[0].entrants == len(rows)
    assert sum(int(record.earned[0].amount) for record in records.values() if record.earned) == 500_000_000
    assert [agent.won for agent in shown.agents] == [1, 1, 1]
    assert shown.agents[0].averagePlace == 1.0


def test_feedback_needs_a_registry() -> None:
    """Where none is known the settings are refused, with the setting that helps."""
    settings = Settings.from_env({"CLARA_NETWORK": "local", "CLARA_REPUTATION": "on"})
    from clara_eval.app import reputation_registry

    with pytest.raises(ConfigError, match="CLARA_REPUTATION"):
        reputation_registry(settings)
    base = Settings.from_env({"CLARA_NETWORK": "base", "CLARA_REPUTATION": "winners"})
    assert reputation_registry(base) == "0x8004baa17c55a88189ae136b182e5fda19de9b63"
