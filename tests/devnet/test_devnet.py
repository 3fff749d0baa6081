"""`clara-eval devnet` as a person or a program uses it: started, asked, warped and ended, as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.shell import Shell
from web3 import AsyncHTTPProvider, AsyncWeb3

from clara_eval.chain.contracts.abi import artifact
from clara_eval.core.errors import BadInput
from clara_eval.devnet.anvil import Anvil, AnvilOptions
from clara_eval.devnet.command import parse_duration

Process = asyncio.subprocess.Process
ALONE = (sys.executable, "-m", "clara_eval")
"""A program of its own, for tests about its process."""


async def _start(program: Sequence[str], *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *program, "devnet", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def _run(shell: Shell, *arguments: str) -> tuple[int | None, str, str]:
    process = await _start([shell.program], *arguments)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def _devnet(*arguments: str, program: Sequence[str]) -> AsyncIterator[tuple[Process, str]]:
    """A running devnet, and what it has printed by the time it is ready."""
    process = await _start(program, *arguments)
    assert process.stderr is not None
    assert process.stdout is not None
    try:
        first = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        assert first.startswith("A local chain answers"), first + (await process.stderr.read()).decode()
        yield process, (await process.stdout.read(100_000)).decode()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _ends_cleanly(process: Process, number: signal.Signals) -> None:
    process.send_signal(number)
    _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert "Traceback" not in err.decode()


async def test_json_describes_a_chain_that_answers_and_ends_on_sigterm(shell: Shell) -> None:
    """One document with every address and key; the contracts are there; SIGTERM ends it with exit code 0."""
    async with _devnet("--json", "--agents", "2", program=[shell.program]) as (process, out):
        document: dict[str, Any] = json.loads(out)
        web3 = AsyncWeb3(AsyncHTTPProvider(document["rpcUrl"]))
        factory = web3.eth.contract(address=document["challengeFactory"], abi=artifact("ChallengeFactory").abi)
        assert await factory.functions.identityRegistry().call() == document["identityRegistry"]
        token = web3.eth.contract(address=document["token"], abi=artifact("TestUSDC").abi)
        assert await token.functions.balanceOf(document["poster"]["address"]).call() == 1_000_000 * 10**6
        assert [agent["agentId"] for agent in document["agents"]] == [0, 1]
        await web3.provider.disconnect()
        assert document["settings"]["CLARA_EVALUATOR_KEY"] == document["evaluator"]["key"]
        await _ends_cleanly(process, signal.SIGTERM)


async def test_exports_are_shell_lines_and_ctrl_c_ends_it() -> None:
    """Every line on standard output is an export, the settings of the other commands first; Ctrl-C is exit code 0."""
    async with _devnet("--agents", "1", program=ALONE) as (process, out):
        lines = out.splitlines()
        assert all(line.startswith("export CLARA_") for line in lines)
        names = [line.removeprefix("export ").partition("=")[0] for line in lines]
        assert names[:6] == [
            "CLARA_NETWORK",
            "CLARA_RPC_URL",
            "CLARA_CHALLENGE_FACTORY",
            "CLARA_FROM_BLOCK",
            "CLARA_EVALUATOR_KEY",
            "CLARA_USDC",
        ]
        await _ends_cleanly(process, signal.SIGINT)


async def test_a_node_that_dies_ends_the_devnet_with_an_error() -> None:
    """When the node is gone the command says so instead of waiting for ever."""
    async with _devnet("--json", "--agents", "1", program=ALONE) as (process, _):
        os.kill(_only_child(process.pid), signal.SIGKILL)
        _, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 2
        assert "ended by itself" in err.decode()
        assert "Traceback" not in err.decode()


def _only_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


async def test_warp_moves_time_by_a_duration_and_refuses_the_past(shell: Shell) -> None:
    """The answer is the new time of the chain; a moment before it is refused with exit code 2."""
    async with Anvil() as node:
        code, out, _ = await _run(shell, "--warp", "12h", "--rpc", node.rpc_url, "--json")
        moved = json.loads(out)
        assert (code, moved["movedSeconds"]) == (0, 12 * 3600)
        code, _, err = await _run(shell, "--to", str(moved["time"]), "--rpc", node.rpc_url)
    assert code == 2
    assert "only moves forward" in err


async def test_warp_goes_to_a_moment(shell: Shell) -> None:
    """`--to` mines a block at exactly that time and says it."""
    async with Anvil(AnvilOptions(start_at=2_000_000_000)) as node:
        code, out, _ = await _run(shell, "--to", "2000086400", "--rpc", node.rpc_url)
    assert (code, out) == (0, "It is now 2033-05-19 03:33:20 UTC (2000086400).\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--warp", "12h", "--to", "5"), "either"),
        (("--warp", "soon"), "not a duration"),
        (("--warp", "1h", "--rpc", "http://127.0.0.1:1"), "No node answers"),
        (("--port", "--port"), "--port"),
        (("--agents", "0"), "--agents"),
    ],
)
async def test_wrong_usage_is_one_sentence(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, the reason on standard error, no traceback."""
    code, out, err = await _run(shell, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("45s", 45), ("30m", 1800), ("12h", 43200), ("7d", 604800), ("1W", 604800)]
)
def test_durations_are_read(text: str, seconds: int) -> None:
    """Numbers with a unit, or plain seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1h", "1.5h", "0", "0d", "12 h", "1y", "999999999999w", "١٢h"])
def test_other_durations_are_refused(text: str) -> None:
    """What is no duration, goes back or stands still is refused with the accepted forms."""
    with pytest.raises(BadInput, match="12h"):
        parse_duration(text)
