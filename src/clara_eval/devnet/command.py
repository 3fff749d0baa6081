"""The command `clara-eval devnet`: run a local chain with every contract, or move its time."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated

import typer
from eth_utils.address import to_checksum_address

from clara_eval.config.settings import Settings, listed
from clara_eval.core.errors import BadInput, ConfigError, Temporary
from clara_eval.devnet.anvil import LOCAL_CHAIN_ID, Anvil, AnvilOptions, DevAccount, DevNode
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.interfaces.cli.output import emit_json

_FIXED_ACCOUNTS = 3  # Owner, poster and evaluator
_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LONGEST_WARP = 100 * 365 * 86400


def devnet(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the node; 0 takes a free one.")] = 0,
    agents: Annotated[int, typer.Option(min=1, max=200, help="Registered agents with a funded wallet.")] = 7,
    block_time: Annotated[
        int | None, typer.Option(min=1, help="Seconds between blocks; without it each transaction is mined at once.")
    ] = None,
    warp: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Move the time of a running one: 90, 30m, 12h, 7d, 1w.")
    ] = None,
    to: Annotated[int | None, typer.Option(help="Move it to this unix time instead.")] = None,
    rpc: Annotated[str | None, typer.Option(help="The running node; CLARA_RPC_URL if not given.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of exports.")] = False,
) -> None:
    """Start a local chain, deploy everything, print the settings, and run until Ctrl-C; or move its time."""
    if warp is not None or to is not None:
        _move_time(warp, to, rpc, json_output=json_output)
        return
    options = AnvilOptions(port=port, accounts=agents + _FIXED_ACCOUNTS)
    asyncio.run(_run_chain(options, block_time, json_output=json_output))


def _move_time(duration: str | None, to: int | None, rpc: str | None, *, json_output: bool) -> None:
    if duration is not None and to is not None:
        raise BadInput("It is not clear how far to move.", remedy="Give either --warp or --to.")
    seconds = None if duration is None else parse_duration(duration)
    urls = (rpc,) if rpc else listed(Settings.from_env().rpc_url)
    if not urls:
        raise ConfigError("CLARA_RPC_URL is empty.", remedy="Set it, or give --rpc.")
    before, after = asyncio.run(_warp(urls[0], seconds, to))
    if json_output:
        emit_json({"time": after, "movedSeconds": after - before})
    else:
        typer.echo(f"It is now {datetime.fromtimestamp(after, UTC):%Y-%m-%d %H:%M:%S} UTC ({after}).")


def parse_duration(text: str) -> int:
    """Parse `90`, `30m`, `12h`, `7d` or `1w` to seconds."""
    found = re.fullmatch(r"([0-9]{1,12})([smhdw]?)", text.strip().lower())
    seconds = int(found[1]) * _UNIT_SECONDS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_WARP:
        raise BadInput(
            f"{text[:40]!r} is not a duration.",
            value=text,
            remedy="Give seconds, or a number with s, m, h, d or w: 90, 30m, 12h, 7d, 1w; at most 100 years.",
        )
    return seconds


async def _warp(rpc_url: str, seconds: int | None, to: int | None) -> tuple[int, int]:
    async with aclosing(await DevNode.connect(rpc_url)) as node:
        before = await node.now()
        target = before + seconds if seconds is not None else to
        if target is None or target > before + _LONGEST_WARP:
            raise BadInput(f"--to {to} is more than 100 years ahead.", value=to, remedy="Give unix seconds.")
        return before, await node.move_to(target)


async def _run_chain(options: AnvilOptions, block_time: int | None, *, json_output: bool) -> None:
    asked_to_end = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
    async with Anvil(options) as node, aclosing(await LocalChain.deploy(node.rpc_url)) as chain:
        await _announce(chain, json_output=json_output)
        if block_time is not None:  # only now: at this interval deploying would be slow
            await chain.node.rpc("evm_setIntervalMining", block_time)
        await _wait_for_end(asked_to_end, node)
    typer.echo("The local chain has ended.", err=True)


async def _wait_for_end(asked_to_end: asyncio.Event, node: Anvil) -> None:
    """Wait for the signal; Temporary if the node ends before it."""
    asked = asyncio.create_task(asked_to_end.wait())
    died = asyncio.create_task(node.ended())
    done, pending = await asyncio.wait({asked, died}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if asked not in done:
        raise Temporary(f"The local node ended by itself (exit code {died.result()}).", remedy="Start it again.")


def _describe_account(account: DevAccount) -> dict[str, object]:
    return {"address": to_checksum_address(account.address), "key": account.key}


def _describe(chain: LocalChain, agents: dict[int, DevAccount], exports: dict[str, str]) -> dict[str, object]:
    return {
        "network": "local",
        "chainId": LOCAL_CHAIN_ID,
        "rpcUrl": chain.rpc_url,
        "challengeFactory": exports["CLARA_CHALLENGE_FACTORY"],
        "fromBlock": chain.deployment.from_block,
        "identityRegistry": exports["CLARA_DEVNET_IDENTITY_REGISTRY"],
        "token": exports["CLARA_DEVNET_TOKEN"],
        "owner": _describe_account(chain.owner),
        "poster": _describe_account(chain.poster),
        "evaluator": _describe_account(chain.evaluator),
        "agents": [{**_describe_account(agent), "agentId": number} for number, agent in agents.items()],
        "settings": exports,
    }


async def _announce(chain: LocalChain, *, json_output: bool) -> None:
    agents = {await chain.register(agent): agent for agent in chain.agents}
    deployment = chain.deployment
    token = to_checksum_address(deployment.token)
    exports = {
        "CLARA_NETWORK": "local",
        "CLARA_RPC_URL": chain.rpc_url,
        "CLARA_CHALLENGE_FACTORY": to_checksum_address(deployment.factory),
        "CLARA_FROM_BLOCK": str(deployment.from_block),
        "CLARA_EVALUATOR_KEY": chain.evaluator.key,
        "CLARA_USDC": token,
        "CLARA_DEVNET_TOKEN": token,
        "CLARA_DEVNET_IDENTITY_REGISTRY": to_checksum_address(deployment.identity_registry),
        "CLARA_DEVNET_POSTER_KEY": chain.poster.key,
        **{f"CLARA_DEVNET_AGENT_{number}_KEY": agent.key for number, agent in agents.items()},
    }
    if json_output:
        emit_json(_describe(chain, agents, exports))
    else:
        typer.echo("\n".join(f"export {name}={value}" for name, value in exports.items()))
    typer.echo(
        f"A local chain answers at {chain.rpc_url}. Its keys are public: never send real money to them.\n"
        "To act as poster or agent, set CLARA_WALLET_KEY to one of the keys. "
        f"To move time: clara-eval devnet --warp 12h --rpc {chain.rpc_url}\n"
        "Ctrl-C ends it.",
        err=True,
    )
