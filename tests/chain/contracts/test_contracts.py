"""Strangers' contracts: tokens that burn, flood and lie, and registries that say little."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from eth_utils.address import to_checksum_address
from tests.support.agents import agent_settings
from tests.support.faulty_node import FaultyNode, answers, longest_range, refuses

from clara_eval.actions.perform import perform
from clara_eval.actions.submit import SubmissionInput, plan_submit, submit
from clara_eval.app import open_caller
from clara_eval.chain.blocks import FIRST_SPAN
from clara_eval.chain.contracts.abi import FOREIGN_GAS, View
from clara_eval.chain.contracts.clients import IdentityRegistryContract, ReputationRegistryContract
from clara_eval.chain.model import Block
from clara_eval.challenges.calls import EarnedFeedback
from clara_eval.core.address import Address, short
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.local_chain import LocalChain, PostedTerms, create

SILENT = Path(__file__).parents[2] / "support" / "SilentRegistry.json"
HOSTILE = {
    "burns all gas": "0x5b600056",
    "answers a megabyte": "0x621000006000f3",
    "answers 200 kB": "0x620300006000f3",
    "stops on an invalid opcode": "0xfe",
    "answers one byte": "0x60016000f3",
}


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_token_never_stops_a_reading(local_chain: LocalChain, tmp_path: Path, code: str) -> None:
    """Whatever its token does, a challenge is read, with the token named by its address and amounts in base units."""
    chain = local_chain
    token = await create(chain.node, "TestUSDC")
    contract = chain.contract("TestUSDC", token)
    await chain.send(chain.poster, contract, "mint", to_checksum_address(chain.poster.address), 10**12)
    await chain.send(chain.poster, contract, "approve", to_checksum_address(chain.deployment.factory), 10**12)
    address = await chain.post_challenge(PostedTerms(token=token, payout_bps=(7000, 3000)))
    await chain.node.rpc("anvil_setCode", token, code)
    async with open_caller(agent_settings(chain, None, tmp_path / "none.db")) as caller:
        read = await caller.chain.challenges.challenge_at(address, await caller.chain.blocks.head())
        assert (read.token.symbol, read.token.decimals, read.token.is_known) == (short(token), 0, False)
        assert await caller.chain.challenges.token_at(token, await caller.chain.blocks.head()) is None


def test_a_call_to_a_stranger_has_little_gas() -> None:
    """No node is made to run a stranger's code for long."""
    call = IdentityRegistryContract(None, Address("0x" + "11" * 20)).view("ownerOf", 0)  # type: ignore[arg-type] # only the request is looked at
    assert call.request()["gas"] == hex(FOREIGN_GAS)


class Told:
    """A chain that answers every call with the same bytes."""

    def __init__(self, data: str) -> None:
        self.data, self.asked = data, list[View]()

    async def views(self, calls: Sequence[View], _block: Block) -> list[object]:
        self.asked += calls
        return [self.data for _ in calls]


REPUTATION, HEAD = Address("0x" + "80" * 20), Block(1, "0x" + "00" * 32, 1)


def test_feedback_is_written_as_erc_8004_says() -> None:
    """The selectors are those of the registry that stands on Base, and every argument is in its place."""
    earned = EarnedFeedback(
        "1:x", REPUTATION, 7, 8_750, "python", "0xc1", uri="ipfs://trace", content_hash="0x" + "ab" * 32, posted_at=1
    )
    sent = earned.call().data
    called = ReputationRegistryContract.ABI.function("giveFeedback")
    assert sent[:4] == bytes.fromhex(keccak_hex(called.signature.encode())[2:10])
    assert called.types == ("uint256", "int128", "uint8", "string", "string", "string", "string", "bytes32")
    said = called.arguments(sent)
    assert said == (7, 8_750, 2, "challenge", "python", "0xc1", "ipfs://trace", "0x" + "ab" * 32)
    assert ReputationRegistryContract.ABI.function("getSummary").selector.hex() == "81bbba58"
    assert ReputationRegistryContract.ABI.function("getLastIndex").selector.hex() == "f2d81759"


async def test_a_stranger_in_the_place_of_a_registry_is_noticed() -> None:
    """A contract that answers something else never passes for a registry, and is asked with little gas."""
    for nonsense in ("0x", "0x01", "0x" + "ff" * 64):
        chain = Told(nonsense)
        with pytest.raises(NotFound, match="getIdentityRegistry"):
            await ReputationRegistryContract(cast("Any", chain), REPUTATION).one(HEAD, "getIdentityRegistry")
        assert chain.asked[0].request()["gas"] == hex(FOREIGN_GAS)


async def test_agent_0_registers_and_submits_in_one_go(local_chain: LocalChain, tmp_path: Path) -> None:
    """The id comes from the registration's own receipt, and 0 is an id like any other."""
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    submission = SubmissionInput(challenge=address, content="x = 1", register=True)
    async with FaultyNode(local_chain.rpc_url) as node:
        node.instead = answers("eth_getLogs", [])
        settings = agent_settings(local_chain, local_chain.agents[0], tmp_path / "kept.db", {"CLARA_RPC_URL": node.url})
        async with open_caller(settings) as caller:
            found = await perform(caller, submit(submission), confirmed="yes")
    assert found.details["agentId"] == "0"
    assert [item.description for item in found.sent] == ["Register as an agent", "Submit a solution as agent 0"]
    assert node.calls["eth_getLogs"] == 0


@pytest.mark.parametrize("is_registered", [False, True])
async def test_an_agent_of_a_registry_without_events_submits(
    local_chain: LocalChain, tmp_path: Path, is_registered: bool
) -> None:
    """The registry of Base Sepolia emits nothing and gives back the id that there is: `--register` passes twice."""
    node, registry = local_chain.node, local_chain.deployment.identity_registry
    silent = json.loads(SILENT.read_text(encoding="utf-8"))["bytecode"]
    (made,) = await node.receipts([await node.post(local_chain.poster, None, silent)])
    await node.rpc("anvil_setCode", registry, await node.rpc("eth_getCode", made["contractAddress"], "latest"))
    for slot in range(4):
        await node.rpc("anvil_setStorageAt", registry, f"0x{slot:064x}", "0x" + "0" * 64)
    first, agent = local_chain.agents[:2]
    register = "0x" + IdentityRegistryContract.ABI.function("register(string)").call("").hex()
    for one in (first, agent)[: 1 + is_registered]:
        await local_chain.send_data(one, registry, register)
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    submission = SubmissionInput(challenge=address, content="x = 1", register=True)
    async with open_caller(agent_settings(local_chain, agent, tmp_path / "kept.db", {})) as caller:
        found = await perform(caller, submit(submission), confirmed="yes")
    assert found.details["agentId"] == "1"
    assert len(found.sent) == 2 - is_registered


async def test_an_agents_id_is_found_by_a_node_that_answers_short_ranges_only(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """The first pieces asked for fit a node limited to 10,000 blocks; one that is stricter still gets smaller ones."""
    assert FIRST_SPAN <= 10_000
    agent = local_chain.agents[3]
    await local_chain.register(local_chain.agents[2])
    agent_id = await local_chain.register(agent)
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    await local_chain.mine(350)
    async with FaultyNode(local_chain.rpc_url) as node:
        node.instead = longest_range(100, -32614, "eth_getLogs is limited to a 100 range")
        settings = agent_settings(local_chain, None, tmp_path / "none.db", {"CLARA_RPC_URL": node.url})
        async with open_caller(settings) as caller:
            plan = await plan_submit(caller, SubmissionInput(challenge=address, content="x"), agent.address)
    assert plan.details["agentId"] == str(agent_id)


async def test_without_events_the_registry_is_asked_for_the_id(local_chain: LocalChain, tmp_path: Path) -> None:
    """A rehearsed registration tells which ids there are; if that is refused, the owner gives the id."""
    agent = local_chain.agents[0]
    agent_id = await local_chain.register(agent)
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    async with FaultyNode(local_chain.rpc_url) as node:
        node.instead = answers("eth_getLogs", [])
        settings = agent_settings(local_chain, None, tmp_path / "none.db", {"CLARA_RPC_URL": node.url})
        async with open_caller(settings) as caller:
            asked = SubmissionInput(challenge=address, content="x")
            assert (await plan_submit(caller, asked, agent.address)).details["agentId"] == str(agent_id)
            silent = answers("eth_getLogs", [])
            refused = refuses("eth_call", 3, "execution reverted", when=lambda call: "from" in call["params"][0])
            node.instead = lambda call: silent(call) or refused(call)
            with pytest.raises(BadInput, match=r"Give the agent id"):
                await plan_submit(caller, asked, agent.address)
            given = SubmissionInput(challenge=address, content="x", agent_id=agent_id)
            assert (await plan_submit(caller, given, agent.address)).details["agentId"] == "0"
