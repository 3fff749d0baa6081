"""Faults around one round: nodes that are behind, lie or flap, reorgs, poison, half-open connections; one by one seed.

Comes in: a local chain with a closed round, and a seed. Goes out: what does not hold, in sentences; empty is good. A
round is evaluated as the engine does it: what ends as an outage is tried again, what ends for good is stuck. Must hold
in the end: the scores are posted exactly once, and the trace of the post verifies against the chain as it stands.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web
from eth_utils.address import to_checksum_address
from tests.support.chaos import ChaosPlan, post_challenge
from tests.support.faulty_node import FaultyNode
from tests.support.half_open import half_open
from tests.support.statuses import read_status
from tests.support.web3_chain import as_web3, web3_of

from clara_eval.actions.evaluate import evaluate
from clara_eval.app import App, open_app
from clara_eval.chain.account import EthereumAccount
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import scoring_function
from clara_eval.chain.rpc import NodeRetries, Rpc
from clara_eval.chain.sender import SendOutcome, SendTimeouts, TransactionSender
from clara_eval.chain.transaction import evaluator_policy
from clara_eval.chain.wallet import open_wallet
from clara_eval.challenges.replay import check_trace
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import ClaraError
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.local_chain import HOUR, LocalChain, PostedTerms, create
from clara_eval.interfaces.serve import serving
from clara_eval.service.attempt_runner import ending_of
from clara_eval.service.due import EngineOptions
from clara_eval.service.engine import Engine
from clara_eval.service.metrics import Alerts, Metrics
from clara_eval.store.trace_archive import stream_trace

PATIENCE_SECONDS = 90.0
_PACE = SendTimeouts(poll_seconds=0.05, lease_seconds=5, give_up_after_seconds=10)
_OPTIONS = EngineOptions(retry_seconds=1, retry_seconds_max=2)
_QUIET_ENGINE = replace(_OPTIONS, tick_cron="0 0 1 1 *", poll_seconds=0.1)
"""Ticks once, at its start."""
HALF_OPEN = 1000
_SMALL = ChaosPlan(challenges=1, submissions=3, workers=0, kills=0, by_rules=True)
_QUIET_BLOCKS = 70
"""After the deadline, so that no reorg reaches the submissions."""
TOKENS = ("0x5b600056", "0xfe", "0x621000006000f3", "0x620300006000f3", "0x60016000f3", "0x00", "0x60006000fd")
URIS = (
    "data:application/json," + "[" * 5000,
    "data:application/json;base64,@@@@",
    'data:application/json,{"title":"\\ud800"}',
    'data:application/json,{"title":"\\u0000"}\x00',
    'data:application/json,{"title":' + "9" * 5000 + "}",
    "ipfs://",
    "https://127.0.0.1:1/" + "x" * 4000,
    "",
)


_LAG: ContextVar[int] = ContextVar("lag", default=0)


class LaggingNode(FaultyNode):
    """A backend that some requests meet a few blocks late: what it has not seen yet, it does not know."""

    def __init__(self, target: str, lag: Callable[[], int]) -> None:
        super().__init__(target)
        self._lag = lag

    async def _serve(self, request: web.Request) -> web.Response:
        """One request meets one backend."""
        _LAG.set(self._lag())
        return await super()._serve(request)

    async def _one(self, call: dict[str, Any]) -> dict[str, Any]:
        lag = _LAG.get()
        if lag == 0:
            return await super()._one(call)
        newest = max(0, int((await self._ask("eth_blockNumber"))["result"], 16) - lag)
        return await super()._one(call) if await self._knows(call, newest) else _unknown(call)

    async def _knows(self, call: dict[str, Any], newest: int) -> bool:
        """Rewrites the call to the backend's own newest block; False where it is asked about a later one."""
        method, params = call["method"], call["params"]
        if method == "eth_getTransactionReceipt":
            found = (await self._ask(method, *params)).get("result")
            return found is None or int(found["blockNumber"], 16) <= newest
        for place, value in enumerate(params):
            if value in ("latest", "pending", "safe", "finalized"):
                params[place] = hex(newest)
            elif isinstance(value, dict) and "blockHash" in value:
                block = (await self._ask("eth_getBlockByHash", value["blockHash"], False)).get("result")
                return block is not None and int(block["number"], 16) <= newest
            elif place == _BLOCK_AT.get(method) and isinstance(value, str):
                return int(value, 16) <= newest
        return True

    async def _ask(self, method: str, *params: Any) -> dict[str, Any]:
        return await super()._one({"jsonrpc": "2.0", "id": 0, "method": method, "params": list(params)})


_BLOCK_AT = {"eth_getBlockByNumber": 0, "eth_call": 1, "eth_estimateGas": 1, "eth_getTransactionCount": 1}


def _unknown(call: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": call["id"]}
    if call["method"] in {"eth_getBlockByNumber", "eth_getTransactionReceipt"}:
        return answer | {"result": None}
    return answer | {"error": {"code": -32000, "message": "header not found"}}


async def closed_round(chain: LocalChain) -> Address:
    """A small round by rules past its deadline, with quiet blocks behind it."""
    address = await post_challenge(chain, _SMALL, 0)
    await chain.move_time(HOUR + 1)
    await chain.mine(_QUIET_BLOCKS)
    return address


@asynccontextmanager
async def opened(chain: LocalChain, place: Path, rpc_url: str, *, confirmations: int = 1) -> AsyncIterator[App]:
    """The real app on that node, with that depth."""
    settings = local_settings(chain, place / "scenario.db", place).model_copy(update={"rpc_url": rpc_url})
    async with open_app(settings, pace=_PACE) as app:
        network = replace(settings.network, confirmations=confirmations)
        rpc = Rpc([rpc_url], chain_id=network.chain_id, retries=NodeRetries(timeout_seconds=3))
        node = EthereumChain(rpc, network, first_block=settings.first_block)
        wallet = open_wallet(settings, evaluator_policy(network.chain_id))
        account = EthereumAccount(node, wallet, factory=to_address(settings.factory))
        sender = TransactionSender(account, app.store, _PACE)
        try:
            yield replace(app, chain=node, sender=sender)
        finally:
            await node.close()


async def until_posted(app: App, address: Address, seconds: float = PATIENCE_SECONDS) -> list[str]:
    """Evaluate as the engine does, without its pauses; what ended it for good, or nothing."""
    until = time.monotonic() + seconds
    last = "it never began"
    while time.monotonic() < until:
        try:
            done = await evaluate(app, address)
        except Exception as bad:  # noqa: BLE001 - every error has an ending
            ending = ending_of(bad, address, failures=0, now=time.time(), options=_OPTIONS)
            if ending.retry_at is None:
                return [f"{address}: stuck as {ending.status}: {ending.reason}"]
            last = str(ending.reason)
            await asyncio.sleep(0.2)
        else:
            if done.receipt is not None and done.receipt.outcome in {SendOutcome.CONFIRMED, SendOutcome.ALREADY_DONE}:
                return []
            last = "sent, not seen mined"
    return [f"{address}: not posted in {seconds:.0f} s: {last}"]


async def ended_well(app: App, chain: LocalChain, address: Address) -> list[str]:
    """One post, complete, with a trace that verifies against the chain as it stands now."""
    problems: list[str] = []
    posts = await posts_of(chain, address)
    if posts != 1:
        problems.append(f"{address}: {posts} posts on the chain")
    status = await read_status(app.store, app.chain_id, address) or {"status": "none"}
    if status["status"] != "complete":
        problems.append(f"{address}: its status is {status['status']}")
    pieces = [piece async for piece in stream_trace(app.store, app.chain_id, address)]
    try:
        checked = await check_trace("".join(pieces).splitlines(keepends=True), app.chain)
    except ClaraError as bad:
        return [*problems, f"{address}: its trace does not verify: {bad}"]
    if checked.posted is None:
        return [*problems, f"{address}: its trace is not the posted one"]
    # What is on its way cannot be called back: a node may mine it although the block that was read is gone.
    first = (await app.store.transactions(f"{app.chain_id}:{address}", "post_scores"))[0]
    if checked.posted.tx_hash != first.tx_hash and not await app.chain.blocks.is_canonical(checked.challenge.block):
        problems.append(f"{address}: its trace names a block that is gone")
    return problems


async def _closed_at(chain: LocalChain, address: Address) -> int:
    """The newest block before which nothing can be posted."""
    number: int = await web3_of(chain).eth.block_number
    deadline = await as_web3(chain.challenge(address)).functions.deadline().call()
    while (await web3_of(chain).eth.get_block(number))["timestamp"] > deadline:
        number = max(0, number - 50)
    return number


async def posts_of(chain: LocalChain, address: Address) -> int:
    """Successful posts of anybody to that challenge, from every block that could hold one."""
    web3, count = web3_of(chain), 0
    for number in range(await _closed_at(chain, address), await web3.eth.block_number + 1):
        block: Any = await web3.eth.get_block(number, full_transactions=True)
        for tx in block["transactions"]:
            if (tx["to"] or "").lower() == address and bytes(tx["input"])[:4] == scoring_function(
                "postScores"
            ).selector:
                count += (await web3.eth.get_transaction_receipt(tx["hash"]))["status"]
    return count


@asynccontextmanager
async def mining(chain: LocalChain, seconds: float = 0.1) -> AsyncIterator[asyncio.Lock]:
    """Blocks that come by themselves, except while somebody holds the lock."""
    quiet = asyncio.Lock()

    async def mine() -> None:
        while True:
            await asyncio.sleep(seconds)
            async with quiet:
                await chain.mine()

    task = asyncio.create_task(mine())
    try:
        yield quiet
    finally:
        task.cancel()
        await asyncio.wait((task,))


# the classes


NODE_KINDS = ("stale", "inconsistent", "lying", "flapping")


async def node_scenario(chain: LocalChain, address: Address, place: Path, seed: int) -> list[str]:
    """A node that misbehaves in one of four ways for a while, from before the evaluation begins."""
    rng = random.Random(seed)
    kind = NODE_KINDS[seed % len(NODE_KINDS)]
    bad_until = time.monotonic() + rng.uniform(2, 6)

    def lag() -> int:
        if kind == "inconsistent":
            return rng.choice((0, 0, 0, 1, 2, 3))
        return rng.choice((1, 2, 3)) if kind == "stale" and time.monotonic() < bad_until else 0

    async with LaggingNode(chain.rpc_url, lag) as node, mining(chain, 0.3):
        if kind in ("lying", "flapping"):
            node.fault = _fault(kind, rng, lambda: time.monotonic() < bad_until)
        async with opened(chain, place, node.url) as app:
            problems = await until_posted(app, address)
    async with opened(chain, place, chain.rpc_url) as app:
        return [f"{kind}: {problem}" for problem in problems or await ended_well(app, chain, address)]


def _fault(kind: str, rng: random.Random, is_bad: Callable[[], bool]) -> Any:
    lies = (
        web.Response(status=429), web.Response(status=502, text="<html>"), web.Response(text="{}"),
        web.Response(text='{"jsonrpc":"2.0","id":0,"result":null}'), web.Response(text="not JSON"),
        web.Response(text='{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"internal error"}}'),
    )  # fmt: skip

    async def fault(_body: Any) -> web.Response | None:
        if not is_bad() or rng.random() < (0.6 if kind == "lying" else 0.3):
            return None
        if kind == "flapping":
            return web.Response(status=503)
        chosen = rng.choice(lies)
        return web.Response(status=chosen.status, text=chosen.text)

    return fault


DEPTHS = (1, 2, 3, 5, 8, 13, 21, 34, 64)
CONFIRMATIONS = (1, 3, 10)


async def reorg_scenario(chain: LocalChain, address: Address, place: Path, seed: int) -> list[str]:
    """The last blocks are replaced after the post was signed, often with the block that was read among them."""
    rng = random.Random(seed)
    depth, confirmations = rng.choice(DEPTHS), CONFIRMATIONS[seed % len(CONFIRMATIONS)]
    async with opened(chain, place, chain.rpc_url, confirmations=confirmations) as app:
        run = f"{app.chain_id}:{address}"
        async with mining(chain) as quiet:
            first = asyncio.create_task(until_posted(app, address))
            while not first.done() and not await app.store.transactions(run, "post_scores"):  # noqa: ASYNC110 - a row
                await asyncio.sleep(0.02)
            await asyncio.sleep(rng.choice((0, 0.05, 0.3)))
            async with quiet:
                await chain.reorg(depth)
            problems = await first
            if not problems:
                # What was confirmed before the reorg is found again, or posted again, by the next look.
                problems = await _until_deep(app, chain, address, confirmations)
            problems = problems or await ended_well(app, chain, address)
    return [f"depth {depth}, confirmations {confirmations}: {problem}" for problem in problems]


async def _until_deep(app: App, chain: LocalChain, address: Address, confirmations: int) -> list[str]:
    """Look again until the post is as deep as the network demands."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        problems = await until_posted(app, address)
        posted_at = await as_web3(chain.challenge(address)).functions.scorePostedAt().call()
        if problems or (posted_at and await _depth(chain, posted_at) >= confirmations):
            return problems
        await asyncio.sleep(0.1)
    return [f"{address}: its post never became deep enough"]


async def _depth(chain: LocalChain, posted_at: int) -> int:
    head: Any = await web3_of(chain).eth.get_block("latest")
    depth, number = 1, head["number"]
    while number > 0 and (await web3_of(chain).eth.get_block(number))["timestamp"] > posted_at:
        depth, number = depth + 1, number - 1
    return depth


async def poison_scenario(chain: LocalChain, address: Address, place: Path, seed: int) -> list[str]:
    """A challenge with a hostile token or hostile metadata beside a round that is due: the round is posted."""
    rng = random.Random(seed)
    poison = await post_poison(chain, rng)
    settings = local_settings(chain, place / "scenario.db", place)
    async with open_app(settings, pace=_PACE) as app:
        metrics = Metrics()
        async with Engine(app, metrics, Alerts(metrics), options=_QUIET_ENGINE).running() as engine:
            await _posted(chain, address, time.monotonic() + PATIENCE_SECONDS)
            problems = [] if engine.health.tick_problem is None else [f"the tick fails: {engine.health.tick_problem}"]
        if not await as_web3(chain.challenge(address)).functions.scorePostedAt().call():
            problems.append(f"{address}: not posted beside {poison}")
    return problems


async def connections_scenario(chain: LocalChain, address: Address, place: Path, _seed: int) -> list[str]:
    """A thousand requests that never end, while a round is due: it is posted."""
    settings = local_settings(chain, place / "scenario.db", place)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with (
            serving(settings, listening, mode="all", options=_QUIET_ENGINE, pace=_PACE),
            half_open(url, HALF_OPEN),
        ):
            await _posted(chain, address, time.monotonic() + PATIENCE_SECONDS)
    is_posted = await as_web3(chain.challenge(address)).functions.scorePostedAt().call()
    return [] if is_posted else [f"{address}: not posted beside {HALF_OPEN} half-open connections"]


async def _posted(chain: LocalChain, address: Address, until: float) -> None:
    contract = chain.challenge(address)
    while time.monotonic() < until and not await as_web3(contract).functions.scorePostedAt().call():  # noqa: ASYNC110 - a chain
        await asyncio.sleep(0.2)


async def post_poison(chain: LocalChain, rng: random.Random) -> Address:
    """One hostile challenge."""
    if rng.random() < 0.5:
        return await chain.post_challenge(PostedTerms(challenge_uri=rng.choice(URIS), payout_bps=(7000, 3000)))
    token = await create(chain.node, "TestUSDC")
    contract = chain.contract("TestUSDC", token)
    await chain.send(chain.poster, contract, "mint", to_checksum_address(chain.poster.address), 10**12)
    await chain.send(chain.poster, contract, "approve", to_checksum_address(chain.deployment.factory), 10**12)
    address = await chain.post_challenge(PostedTerms(token=token, payout_bps=(7000, 3000)))
    await chain.node.rpc("anvil_setCode", token, rng.choice(TOKENS))
    return address
