"""The end-to-end script for Base Sepolia, run against a local node that stands for the network.

The node has the chain id, the block numbers and the contracts at the preset addresses; its registry emits no events, and
a proxy before it refuses ranges of more than 10,000 blocks, as public nodes do.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from eth_utils.address import to_checksum_address
from tests.support.faulty_node import FaultyNode, longest_range
from tests.support.nursery import Forked, Nursery
from tests.support.step_worker import expire_leases

from clara_eval.chain.contracts.abi import abi
from clara_eval.config.settings import NETWORKS
from clara_eval.core.address import to_address
from clara_eval.core.errors import ConfigError
from clara_eval.devnet.anvil import Anvil, AnvilOptions, DevNode
from clara_eval.devnet.local_chain import create

SCRIPT = Path(__file__).parents[1] / "scripts" / "e2e_sepolia.py"
SILENT = Path(__file__).parents[1] / "tests" / "support" / "SilentRegistry.json"
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
async def base_sepolia() -> AsyncIterator[tuple[DevNode, FaultyNode]]:
    """The network in small, and the limited node before it."""
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
                yield node, limited
            finally:
                await node.aclose()


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


def environment(folder: Path, **changes: str) -> dict[str, str]:
    """Nothing of the machine's own settings but where programs are."""
    paths = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return paths | {"HOME": str(folder), **changes}


@dataclass(frozen=True, slots=True)
class Run:
    """A process that runs the script, and the file with all that it says."""

    process: Forked
    log: Path

    async def ended(self) -> tuple[int, str]:
        """Its exit code and what it said."""
        return await asyncio.wait_for(self.process.wait(), 150), self.log.read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def nursery() -> AsyncIterator[Nursery]:
    """The process that has loaded everything, of which each run is a fork."""
    async with Nursery.running() as running:
        yield running


async def started(nursery: Nursery, folder: Path, url: str, key: str) -> Run:
    log = folder / f"{len(nursery.ended)}.log"
    log.touch()
    environ = environment(folder, CLARA_RPC_URL=url, CLARA_E2E_KEY=key)
    return Run(await nursery.fork(environ, log, str(SCRIPT), "--state", str(folder)), log)


async def ended(nursery: Nursery, folder: Path, url: str, key: str) -> tuple[int, str]:
    return await (await started(nursery, folder, url, key)).ended()


async def succeeded(nursery: Nursery, folder: Path, url: str, key: str) -> str:
    code, said = await ended(nursery, folder, url, key)
    assert code == 0, said
    return said


async def killed_at_every_transaction(
    nursery: Nursery, node: DevNode, limited: FaultyNode, folder: Path
) -> tuple[str, int]:
    """SIGKILL whenever the node has taken a new transaction, before the script hears of it; start again until it ends.

    A run that only waits for blocks above its post is started again too. Returns what the last run said, and the kills.
    """
    taken: set[str] = set()
    running: list[Run] = []

    async def kill(body: Any) -> web.Response | None:
        for call in body if isinstance(body, list) else [body]:
            if call["method"] == "eth_sendRawTransaction" and call["params"][0] not in taken:
                taken.add(call["params"][0])
                await node.rpc("eth_sendRawTransaction", call["params"][0])
                running[-1].process.send_signal(signal.SIGKILL)
                return web.Response(status=503)
        return None

    limited.fault = kill
    try:
        kills = 0
        for _ in range(40):
            running.append(await started(nursery, folder, limited.url, node.accounts[1].key))
            code, said = await running[-1].ended()
            kills += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL), said
            if code == 0 and "deep enough" not in said:
                return said, kills
            await expire_leases(f"sqlite:///{folder}/store.db")
        pytest.fail("it is killed for ever")
    finally:
        limited.fault = None


async def events_of(node: DevNode, event: str) -> list[Any]:
    topic = abi("Challenge").event(event).topic
    first = hex(SEPOLIA.from_block)
    found = await node.rpc("eth_getLogs", {"fromBlock": first, "toBlock": "latest", "topics": [topic]})
    return list(found)


@pytest.mark.specification("9", "End-to-end test on Base Sepolia")
@pytest.mark.timeout(600)
async def test_the_lifecycle_on_base_sepolia_goes_on_over_kills_and_twelve_hours(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Killed at each of its transactions and waiting twice, it ends with one post, a paid winner and a verified trace."""
    async with base_sepolia() as (node, limited), blocks(node):
        said, kills = await killed_at_every_transaction(nursery, node, limited, tmp_path)
        assert "The challenge is open." in said
        assert kills == 4 + 1 + 2 + 2 * 3  # gas for four, test dollars, allow and post, register and submit for each
        assert len(await events_of(node, "SubmissionReceived")) == 3
        await node.move_to(await node.now() + 1000)
        await node.rpc("anvil_mine", 80)
        said, kills = await killed_at_every_transaction(nursery, node, limited, tmp_path)
        assert "prizes wait 12 hours" in said
        assert kills == 2
        await node.move_to(await node.now() + 12 * 3600 + 1)
        said, kills = await killed_at_every_transaction(nursery, node, limited, tmp_path)
        assert "done         the whole lifecycle" in said
        assert kills == 2
        told = json.loads((tmp_path / "state.json").read_text())
        assert (told["verified"], told["claimed"]["winner"]) == (told["digest"], "deque_window")
        names = ("SubmissionReceived", "ScoresPosted", "ChallengeFinalized", "PrizeClaimed")
        assert [len(await events_of(node, name)) for name in names] == [3, 1, 1, 1]
        assert to_address(told["challenge"])


async def test_what_a_killed_run_could_not_write_down_is_found_on_chain(nursery: Nursery, tmp_path: Path) -> None:
    """The state is lost after the post and an entry: neither is done twice, and another key is not let in."""
    async with base_sepolia() as (node, limited), blocks(node):
        key = node.accounts[1].key
        assert "The challenge is open." in await succeeded(nursery, tmp_path, limited.url, key)
        told = json.loads((tmp_path / "state.json").read_text())
        kept = {name: told[name] for name in ("funded", "deadline")}
        (tmp_path / "state.json").write_text(json.dumps(kept))
        assert "The challenge is open." in await succeeded(nursery, tmp_path, limited.url, key)
        again = json.loads((tmp_path / "state.json").read_text())
        assert (again["challenge"], again["entry token_bucket"]) == (told["challenge"], "on chain")
        assert len(await events_of(node, "SubmissionReceived")) == 3
        code, said = await ended(nursery, tmp_path, limited.url, "0x" + "5c" * 32)
        assert code == 2
        assert f"belongs to a run of {told['funded']}" in said
        (tmp_path / "state.json").write_text(json.dumps({"funded": told["funded"], "deadline": 1}))
        # Killed before the post, and started again too late.
        await succeeded(nursery, tmp_path, limited.url, key)
        later = json.loads((tmp_path / "state.json").read_text())
        assert later["deadline"] > told["deadline"]
        assert later["challenge"] != told["challenge"]


async def test_a_run_that_goes_on_after_the_deadline_without_entries_says_so(nursery: Nursery, tmp_path: Path) -> None:
    """Killed right after the post and started again too late: nothing can be scored, and the way out is named."""
    async with base_sepolia() as (node, limited), blocks(node):
        key = node.accounts[1].key
        run = await started(nursery, tmp_path, limited.url, key)
        while "\nchallenge" not in run.log.read_text():
            await asyncio.sleep(0.01)
            assert run.process.end is None, run.log.read_text()
        run.process.send_signal(signal.SIGKILL)
        await run.ended()
        assert await events_of(node, "SubmissionReceived") == []
        await node.move_to(await node.now() + 1000)
        code, said = await ended(nursery, tmp_path, limited.url, key)
        assert code == 1
        assert re.search(r"closed with 0 of 3 entries: it cannot be scored\. .* another --state folder", said)


async def test_a_key_without_ether_and_a_node_of_another_chain_are_told(nursery: Nursery, tmp_path: Path) -> None:
    """The address, what it has, what it needs and where to get it; the chain found and the one wanted."""
    poor = "0x" + "5c" * 32
    async with base_sepolia() as (_, limited):
        code, said = await ended(nursery, tmp_path, limited.url, poor)
    assert code == 2
    assert re.search(r"0x[0-9a-f]{40}, .* has 0\.000000 ETH on base-sepolia; the run needs 0\.\d+ ETH\. Send", said)
    async with Anvil(AnvilOptions(accounts=1)) as other:
        code, said = await ended(nursery, tmp_path, other.rpc_url, poor)
    assert code == 2
    assert "is on chain 31337, but the network's chain id is 84532" in said
    assert not (tmp_path / "state.json").exists()


@pytest.mark.parametrize(
    ("settings", "words", "expected"),
    [
        ({"CLARA_E2E_KEY": "0x12"}, (), "CLARA_E2E_KEY is not a private key"),
        ({"CLARA_E2E_KEY_FILE": "/nowhere"}, (), "CLARA_E2E_KEY_FILE='/nowhere' cannot be read"),
        ({"CLARA_E2E_KEY_FILE": "/nowhere", "CLARA_E2E_KEY": "0x12"}, (), "are both set"),
        ({}, (), "CLARA_E2E_KEY is not set"),
        ({"CLARA_E2E_KEY": "0x12"}, ("--state", "/dev/null"), "The state in /dev/null cannot be used"),
        ({"CLARA_E2E_KEY": "0x12"}, ("--open-seconds", "5"), "--open-seconds 5 is less than 300"),
    ],
)
async def test_what_it_cannot_begin_with_is_named(
    settings: dict[str, str],
    words: tuple[str, ...],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One sentence before any node is asked, of a kind that the script ends with exit code 2; no key."""
    monkeypatch.setattr(os, "environ", environment(tmp_path, CLARA_RPC_URL="http://127.0.0.1:9", **settings))
    with pytest.raises((ConfigError, SystemExit)) as ended_with:
        await runpy.run_path(str(SCRIPT))["main"](["--state", str(tmp_path), *words])
    bad = ended_with.value
    assert isinstance(bad, ConfigError) or (isinstance(bad, SystemExit) and bad.code == 2)
    assert expected in f"{bad} {capsys.readouterr().err}"
    assert "0x12" not in str(bad)


async def test_without_a_key_or_a_node_it_says_what_is_needed(tmp_path: Path) -> None:
    """One line, exit code 2, nothing sent."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), "--state", str(tmp_path), env={"PATH": os.environ["PATH"]},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert said.decode().startswith("e2e-sepolia: CLARA_RPC_URL is not set.")
