"""The local node: any number side by side, and none that outlives its owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from clara_eval.core.errors import ConfigError
from clara_eval.devnet.anvil import Anvil, AnvilOptions, find_anvil, install_remedy

OWNER = """
import asyncio
from clara_eval.devnet.anvil import Anvil

async def main():
    async with Anvil() as node:
        print(node.rpc_url, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def _ask(url: str, method: str, *params: object) -> object:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
    async with aiohttp.ClientSession() as session, session.post(url, json=request) as response:
        return (await response.json())["result"]


async def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def _falls_silent(url: str) -> bool:
    """Whether nothing listens there any more, within ten seconds."""
    limit = time.monotonic() + 10
    while await _answers(url):
        if time.monotonic() > limit:
            return False
        await asyncio.sleep(0.05)
    return True


async def test_two_nodes_run_side_by_side() -> None:
    """Each gets its own port and its own chain, and both are gone afterwards."""
    async with Anvil() as one, Anvil(AnvilOptions(start_at=2_000_000_000, accounts=3)) as two:
        assert one.rpc_url != two.rpc_url
        urls = (one.rpc_url, two.rpc_url)
        assert [await _ask(url, "eth_chainId") for url in urls] == [hex(31337)] * 2
        accounts = await _ask(two.rpc_url, "eth_accounts")
        assert isinstance(accounts, list)
        assert len(accounts) == 3
        block = await _ask(two.rpc_url, "eth_getBlockByNumber", "0x0", False)
        assert isinstance(block, dict)
        assert int(block["timestamp"], 16) == 2_000_000_000
    assert [await _answers(url) for url in urls] == [False, False]


async def test_the_node_ends_with_an_error_in_the_body() -> None:
    """An exception in the owner's code stops the node and passes on."""
    node = Anvil()
    urls: list[str] = []

    async def fail_inside() -> None:
        async with node:
            urls.append(node.rpc_url)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await fail_inside()
    assert not await _answers(urls[0])


async def test_the_node_dies_with_a_killed_owner() -> None:
    """After SIGKILL of the owner, which runs no clean-up, the node is gone too."""
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    url = (await asyncio.wait_for(owner.stdout.readline(), 60)).decode().strip()
    assert await _answers(url)
    owner.kill()
    await owner.wait()
    assert await _falls_silent(url)


async def test_a_node_that_died_can_still_be_stopped() -> None:
    """Leaving the context after the node was killed raises nothing, and `ended` tells its exit code."""
    async with Anvil() as node:
        assert node.pid is not None
        os.kill(node.pid, signal.SIGKILL)
        assert await node.ended() == -signal.SIGKILL


async def test_a_taken_port_is_told() -> None:
    """Asking for a port that is in use fails at once, names the port and offers a way out."""
    async with Anvil() as first:
        port = urlsplit(first.rpc_url).port
        assert port is not None
        with pytest.raises(ConfigError, match=f"port {port} free"):
            await Anvil(AnvilOptions(port=port)).start()


def test_a_node_that_does_not_run_has_no_address() -> None:
    """Using it outside its context is an error with the remedy."""
    with pytest.raises(ConfigError, match="async with"):
        _ = Anvil().rpc_url


def test_a_missing_node_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the npm packages and without anvil on the PATH the error says what to install, with make or without."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"make setup.*npm install @foundry-rs/anvil"):
        find_anvil([tmp_path])
    assert install_remedy(tmp_path) == "Run `npm install @foundry-rs/anvil`."


@pytest.mark.parametrize("nested", [True, False])
def test_the_node_behind_a_global_npm_install_is_found(
    nested: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`npm install -g` puts a script on the PATH; the binary that npm installed beside it is the one that is run."""
    real = find_anvil()
    modules = tmp_path / "lib" / "node_modules"
    package = modules / "@foundry-rs" / "anvil"
    package.mkdir(parents=True)
    (package / "bin.mjs").write_text("#!/usr/bin/env node\n")
    (package / "bin.mjs").chmod(0o755)
    platform = (package / "node_modules" if nested else modules) / "@foundry-rs" / real.parents[1].name / "bin"
    platform.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "anvil").symlink_to(package / "bin.mjs")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ConfigError):  # a script whose binary is missing is not taken for the node
        find_anvil([tmp_path / "elsewhere"])
    (platform / "anvil").symlink_to(real)
    assert find_anvil([tmp_path / "elsewhere"]) == platform / "anvil"


def test_the_npm_wrapper_is_not_taken_for_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script in `.bin` would leave the node running; a real binary on the PATH is accepted."""
    for folder in ("node_modules/.bin", "bin"):
        script = tmp_path / folder / "anvil"
        script.parent.mkdir(parents=True)
        script.write_text("#!/bin/sh\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "node_modules/.bin"))
    with pytest.raises(ConfigError):
        find_anvil([tmp_path / "elsewhere"])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_anvil([tmp_path / "elsewhere"]) == tmp_path / "bin/anvil"


async def test_a_cancelled_start_leaves_no_node() -> None:
    """Giving up while the node is starting stops it."""
    node = Anvil()
    starting = asyncio.create_task(node.start())
    pid = None
    while pid is None:
        await asyncio.wait({starting}, timeout=0.001)
        pid = node.pid
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
