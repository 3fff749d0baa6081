"""`clara-eval serve` as a process: it starts whatever the node does, says what is wrong, and leaves when asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.service import alerts_in
from tests.support.shell import Shell
from tests.support.web3_chain import as_web3, web3_of

from clara_eval.devnet.demo.round import post_round, submit_round
from clara_eval.devnet.local_chain import HOUR, LocalChain

pytestmark = pytest.mark.xdist_group("processes")
COMMAND = (sys.executable, "-m", "clara_eval")
ENVIRON = {
    "CLARA_NETWORK": "local",
    "CLARA_RPC_URL": "http://127.0.0.1:9",
    "CLARA_CHALLENGE_FACTORY": "0x" + "11" * 20,
    "CLARA_EVALUATOR_KEY": "0x" + "4c" * 32,
    "CLARA_ADMIN_API_KEY": "a-long-enough-admin-key",
    "CLARA_HOST": "127.0.0.1",
}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def served(
    place: Path, *arguments: str, command: tuple[str, ...] = COMMAND, **environ: str
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    port = free_port()
    given = {**ENVIRON, "CLARA_DATABASE_URL": f"sqlite:///{place}/served.db", "CLARA_PORT": str(port), **environ}
    process = await asyncio.create_subprocess_exec(
        *command, "serve", *arguments, env={**os.environ, **given}, cwd=place, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def answer(url: str) -> tuple[int, dict[str, Any]]:
    """The answer, as soon as there is one."""
    async with aiohttp.ClientSession() as http:
        for _ in range(900):
            try:
                async with http.get(url) as found:
                    return found.status, await found.json(content_type=None)
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)
    raise AssertionError("the service does not answer")


async def test_it_starts_without_a_node_and_leaves_in_order(tmp_path: Path) -> None:
    """Health is 200 and names the problem, the log hides the key, and SIGTERM ends with code 0."""
    async with served(tmp_path) as (url, process):
        for _ in range(300):
            status, health = await answer(f"{url}/healthz")
            if health["problems"]:
                break
            await asyncio.sleep(0.1)
        assert (status, health["status"]) == (200, "degraded")
        assert (await answer(f"{url}/api/v1/challenges"))[1]["total"] == 0
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        log = (await asyncio.wait_for(process.stderr.read(), 60)).decode()
        assert await process.wait() == 0
    events = [json.loads(line)["event"] for line in log.splitlines() if line.startswith("{")]
    assert "tick_failed" in events
    assert events[-1] == "engine_stopped"
    assert "4c" * 32 not in log


async def test_workers_with_different_keys_share_a_database(
    local_chain: LocalChain, postgres_url: str, shell: Shell, tmp_path: Path
) -> None:
    """After a change of address a worker of each key runs: every round is posted by its own key, and no alarm rings."""
    keys = [local_chain.evaluator, local_chain.agents[20]]
    rounds = [await post_round(local_chain, evaluator=keys[place % 2].address) for place in range(4)]
    for address in rounds:
        await submit_round(local_chain, address)
    await local_chain.move_time(HOUR + 1)
    environ = {
        "CLARA_RPC_URL": local_chain.rpc_url,
        "CLARA_CHALLENGE_FACTORY": local_chain.deployment.factory,
        "CLARA_DATABASE_URL": postgres_url,
        "CLARA_TICK_SECONDS": "1",
    }
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        for place, one in enumerate(keys):
            (tmp_path / str(place)).mkdir()
            given = {**environ, "CLARA_EVALUATOR_KEY": one.key}
            worker = served(tmp_path / str(place), "--worker-only", command=(shell.program,), **given)
            urls.append((await stack.enter_async_context(worker))[0])
        for address in rounds:
            contract = local_chain.challenge(address)
            for _ in range(600):
                if await as_web3(contract).functions.scorePostedAt().call():
                    break
                await asyncio.sleep(0.1)
            (posted,) = await as_web3(contract).events.ScoresPosted().get_logs(from_block=0)
            sender = (await web3_of(local_chain).eth.get_transaction(posted["transactionHash"]))["from"]
            assert sender == await as_web3(contract).functions.evaluator().call()
        async with aiohttp.ClientSession() as http:
            for url in urls:
                async with http.get(f"{url}/metrics") as found:
                    assert alerts_in(await found.text()) == set()


async def test_a_second_process_on_sqlite_is_told_why(shell: Shell, tmp_path: Path) -> None:
    """It ends with code 2 and one sentence, and the first goes on."""
    async with served(tmp_path, "--api-only", command=(shell.program,)) as (url, first):
        assert (await answer(f"{url}/healthz"))[0] == 200
        for _ in range(100):
            if (tmp_path / "served.db.lock").exists():
                break
            await asyncio.sleep(0.1)
        async with served(tmp_path, "--worker-only", command=(shell.program,)) as (_, second):
            assert second.stderr is not None
            said = (await asyncio.wait_for(second.stderr.read(), 90)).decode()
            assert await second.wait() == 2
        assert "Another clara-eval process" in said
        assert "Postgres" in said
        assert "Traceback" not in said
        assert first.returncode is None


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (("--worker-only", "--api-only"), {}, "exclude each other"),
        ((), {"CLARA_EVALUATOR_KEY": ""}, "CLARA_EVALUATOR_KEY"),
        ((), {"CLARA_CHALLENGE_FACTORY": ""}, "CLARA_CHALLENGE_FACTORY"),
        ((), {"CLARA_ADMIN_API_KEY": "short"}, "CLARA_ADMIN_API_KEY"),
    ],
)
async def test_settings_that_cannot_work_end_it_at_once(
    tmp_path: Path, shell: Shell, arguments: tuple[str, ...], environ: dict[str, str], said: str
) -> None:
    """Code 2, the setting's name, no traceback."""
    async with served(tmp_path, *arguments, command=(shell.program,), **environ) as (_, process):
        assert process.stderr is not None
        text = (await asyncio.wait_for(process.stderr.read(), 90)).decode()
        assert await process.wait() == 2
    assert said in text
    assert "Traceback" not in text
