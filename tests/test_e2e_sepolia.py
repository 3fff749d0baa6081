"""The end-to-end script for Base Sepolia, run against a local node that stands for the network.

The node has the chain id, the block numbers and the contracts at the preset addresses; its registry emits no events, and
a proxy before it refuses ranges of more than 10,000 blocks, as public nodes do.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from eth_utils.address import to_checksum_address

from clara_eval.challenge.model import to_address
from clara_eval.contracts import artifact
from clara_eval.devnet.anvil import Anvil, AnvilOptions
from clara_eval.devnet.dev_node import DevNode
from clara_eval.devnet.local_chain import create
from clara_eval.networks import NETWORKS
from clara_eval.testing.faulty_node import FaultyNode, longest_range

SCRIPT = Path(__file__).parents[1] / "scripts" / "e2e_sepolia.py"
SILENT = Path(__file__).parents[1] / "src" / "clara_eval" / "testing" / "SilentRegistry.json"
SEPOLIA = NETWORKS["base-sepolia"]
AGED_BLOCKS = 10_500
"""From the preset's first block to the node's: more than one request may span, so searches have to go in steps."""


async def move(node: DevNode, source: str, target: str, slots: int) -> None:
    """Let the contract at `source` stand at `target`, with its storage."""
    await node.rpc("anvil_setCode", target, await node.rpc("eth_getCode", source, "latest"))
    for slot in range(slots):
        value = await node.rpc("eth_getStorageAt", source, hex(slot), "latest")
        await node.rpc("anvil_setStorageAt", target, "0x" + f"{slot:064x}", value)


async def create_silent(node: DevNode) -> str:
    bytecode = json.loads(SILENT.read_text())["bytecode"]
    receipt = (await node.receipts([await node.post(node.accounts[0], None, bytecode)]))[0]
    return str(receipt["contractAddress"])


def empty_past(call: dict[str, Any]) -> dict[str, Any] | None:
    """The blocks before the local node's first one are there and empty: mining ten thousand would take minutes."""
    if call["method"] != "eth_getBlockByNumber" or not call["params"][0].startswith("0x"):
        return None
    number = int(call["params"][0], 16)
    if number >= SEPOLIA.from_block + AGED_BLOCKS:
        return None
    names = {"number": hex(number), "hash": f"0x{number:064x}", "parentHash": f"0x{number - 1:064x}"}
    return {
        "result": {**names, "timestamp": hex(1_700_000_000 + 2 * (number - SEPOLIA.from_block)), "transactions": []}
    }


@asynccontextmanager
async def base_sepolia() -> AsyncIterator[tuple[DevNode, str]]:
    """The network in small, and the URL of the limited node before it."""
    options = AnvilOptions(chain_id=SEPOLIA.chain_id, first_block=SEPOLIA.from_block + AGED_BLOCKS, accounts=2)
    async with Anvil(options) as anvil:
        node = await DevNode.connect(anvil.rpc_url)
        assert SEPOLIA.usdc
        assert SEPOLIA.identity_registry
        assert SEPOLIA.factory
        await move(node, await create(node, "TestUSDC"), SEPOLIA.usdc, 12)
        await move(node, await create_silent(node), SEPOLIA.identity_registry, 4)
        registry = to_checksum_address(SEPOLIA.identity_registry)
        implementation = to_checksum_address(await create(node, "Challenge"))
        factory = await create(node, "ChallengeFactory", implementation, registry)
        await move(node, factory, SEPOLIA.factory, 8)
        async with FaultyNode(anvil.rpc_url) as limited:
            refuse = longest_range(10_000, -32600, "query exceeds max block range 10000")
            limited.instead = lambda call: refuse(call) or empty_past(call)
            try:
                yield node, limited.url
            finally:
                await node.close()


@asynccontextmanager
async def blocks(node: DevNode) -> AsyncIterator[None]:
    """The network goes on by itself, as networks do."""

    async def mine() -> None:
        while True:
            await asyncio.sleep(0.2)
            await node.rpc("anvil_mine", 1)

    mining = asyncio.create_task(mine())
    try:
        yield
    finally:
        mining.cancel()


async def started(url: str, key: str, folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), "--state", str(folder),
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "CLARA_RPC_URL": url, "CLARA_E2E_KEY": key},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def ended(process: asyncio.subprocess.Process) -> str:
    said, _ = await asyncio.wait_for(process.communicate(), 150)
    assert process.returncode == 0, said.decode()
    return said.decode()


async def killed_after(process: asyncio.subprocess.Process, fact: str) -> None:
    """SIGKILL right after that step was told."""
    assert process.stdout is not None
    said = []
    async for line in process.stdout:
        said.append(line.decode())
        if line.decode().startswith(fact):
            process.send_signal(signal.SIGKILL)
            await process.wait()
            return
    pytest.fail(f"it ended without {fact}: {''.join(said)}")


async def events_of(node: DevNode, event: str) -> list[Any]:
    challenge = artifact("Challenge")
    topic = node.web3.eth.contract(abi=challenge.abi).events[event]().topic
    first = hex(SEPOLIA.from_block)
    found = await node.rpc("eth_getLogs", {"fromBlock": first, "toBlock": "latest", "topics": [topic]})
    return list(found)


@pytest.mark.timeout(400)
async def test_the_lifecycle_on_base_sepolia_goes_on_over_kills_and_twelve_hours(tmp_path: Path) -> None:
    """Killed after the first entry and waiting twice, it ends with one post, a paid winner and a verified trace."""
    async with base_sepolia() as (node, url), blocks(node):
        key = node.accounts[1].key
        await killed_after(await started(url, key, tmp_path), "entry deque_window")
        assert "The challenge is open." in await ended(await started(url, key, tmp_path))
        assert len(await events_of(node, "SubmissionReceived")) == 3
        await node.move_to(await node.now() + 1000)
        await node.rpc("anvil_mine", 80)
        assert "prizes wait 12 hours" in await ended(await started(url, key, tmp_path))
        await node.move_to(await node.now() + 12 * 3600 + 1)
        said = await ended(await started(url, key, tmp_path))
        assert "done         the whole lifecycle" in said
        told = json.loads((tmp_path / "state.json").read_text())
        assert (told["verified"], told["claimed"]["winner"]) == (told["digest"], "deque_window")
        assert [
            len(await events_of(node, name)) for name in ("ScoresPosted", "ChallengeFinalized", "PrizeClaimed")
        ] == [
            1,
            1,
            1,
        ]
        assert to_address(told["challenge"])


async def test_without_a_key_or_a_node_it_says_what_is_needed(tmp_path: Path) -> None:
    """One line, exit code 2, nothing sent."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), "--state", str(tmp_path), env={"PATH": os.environ["PATH"]},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert said.decode().startswith("e2e-sepolia: CLARA_RPC_URL is not set.")
