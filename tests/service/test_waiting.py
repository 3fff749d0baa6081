"""What can pass is waited for and told, one round never holds another, and each goes on by itself afterwards."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from eth_utils.address import to_checksum_address
from tests.support.chaos import ChaosPlan, CountingEndpoint, post_challenge
from tests.support.fake_endpoint import Fault, Seen
from tests.support.scenarios import ended_well, mining, opened, posts_of, until_posted
from tests.support.service import FAST, PACE, Turning, eventually, raised, settings_of
from tests.support.statuses import read_status
from tests.support.web3_chain import as_web3
from typer.testing import CliRunner

from clara_eval.actions.review import approve
from clara_eval.app import open_app
from clara_eval.chain.model import Challenge, scoring_function
from clara_eval.challenges.review import known_review
from clara_eval.challenges.status import read_attempts
from clara_eval.challenges.venue import look_at_challenge, window_of
from clara_eval.core.address import Address
from clara_eval.devnet.local_chain import HOUR, LocalChain
from clara_eval.interfaces.cli import app as command
from clara_eval.interfaces.serve import serving
from clara_eval.judge.retrying_llm import RetryPolicy
from clara_eval.service.engine import Engine
from clara_eval.service.loop import run_tick
from clara_eval.service.metrics import Alerts, Metrics, Webhook
from clara_eval.store.open import opened_store

ASKED = ChaosPlan(challenges=1, submissions=3, workers=0, kills=0, latency=0.0)
BY_RULES = ChaosPlan(challenges=1, submissions=3, workers=0, kills=0, by_rules=True)


async def closed(chain: LocalChain, *plans: ChaosPlan) -> list[Address]:
    """Rounds past their deadlines."""
    posted = [await post_challenge(chain, plan, number) for number, plan in enumerate(plans)]
    await chain.move_time(HOUR + 1)
    return posted


def asking(endpoint: CountingEndpoint) -> dict[str, str]:
    judge = f"openai:scripted@{endpoint.url}"
    return {"CLARA_JUDGES": judge, "CLARA_PRICES": f"{judge}=1/2", "OPENAI_API_KEY": "not-a-real-key"}


@asynccontextmanager
async def watched(
    chain: LocalChain, place: Path, environ: dict[str, str] | None = None, webhook: Webhook | None = None
) -> AsyncIterator[Turning]:
    """An engine whose alerts go somewhere, with little patience for a judge within one attempt."""
    metrics = Metrics()
    alerts = Alerts(metrics, webhook)
    async with open_app(settings_of(chain, place, **(environ or {})), pace=PACE) as app:
        app.models.patience = RetryPolicy(tries=2, first_pause_seconds=0.01)
        async with Engine(app, metrics, alerts, options=FAST).running() as engine:
            yield Turning(engine, app)
        await alerts.close(patience_seconds=0.1)


async def ticking_until(world: Turning, address: Address, *wanted: str, told: str = "") -> dict[str, Any]:
    """Tick until the round has one of these statuses and says this."""
    for _ in range(300):
        await world.engine.tick()
        status = await world.status(address)
        if status["status"] in wanted and told in (status.get("reason") or ""):
            return status
        await asyncio.sleep(0.2)
    raise AssertionError(status)


async def test_a_judge_that_talks_nonsense_is_down_and_nobodys_loss(local_chain: LocalChain, tmp_path: Path) -> None:
    """While it talks nonsense the round waits with that reason and keeps nothing of it; then it is posted."""
    endpoint = CountingEndpoint(latency=0.0)
    endpoint.script = lambda _seen: Fault("text", text="I am a teapot, short and stout.")
    [address] = await closed(local_chain, ASKED)
    async with endpoint.running(), watched(local_chain, tmp_path, asking(endpoint)) as world:
        await ticking_until(world, address, "pending", told="not what was asked for")
        nonsense = endpoint.paid
        endpoint.script = None
        await ticking_until(world, address, "complete")
        assert await ended_well(world.app, local_chain, address) == []
        calls = await world.app.store.calls_of(f"{world.app.chain_id}:{address}")
        answers = await world.app.store.answers([request for request, _, _ in calls])
        kept = [paid.answer.text for paid in answers.values()]
    assert nonsense > 0
    assert not any("teapot" in text for text in kept)
    assert len(kept) <= 3 + 6


async def test_a_judge_that_fails_is_named_while_it_is_asked_again(local_chain: LocalChain, tmp_path: Path) -> None:
    """After its first failed calls status, page and command line name it, in the first attempt; healed, none does."""
    endpoint = CountingEndpoint(latency=0.0)
    endpoint.script = lambda _seen: Fault("status", 503, message="overloaded")
    [address] = await closed(local_chain, ASKED)
    async with endpoint.running(), AsyncExitStack() as stack:
        settings = settings_of(local_chain, tmp_path, **asking(endpoint))
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        await stack.enter_async_context(serving(settings, listening, mode="all", options=FAST, pace=PACE))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        store = await stack.enter_async_context(opened_store(settings.database_url))

        async def said() -> dict[str, Any]:
            return await read_status(store, 31337, address) or {}

        async def is_told() -> bool:
            return f"openai:scripted@{endpoint.url} failed (503)" in ((await said()).get("reason") or "")

        await eventually(is_told)
        assert max(seen.times for seen in endpoint.seen) <= 1, "each question was asked once, or once again"
        attempts = await read_attempts(store, 31337, address)
        assert ((await said())["status"], attempts.number, attempts.failures) == ("extracting", 1, 0)
        page = await (await http.get(f"{url}/challenges/{address}")).text()
        assert "openai:scripted… failed (503)" in page, page[page.find("<h2") :][:1500]
        words = ["status", address]
        told = await asyncio.to_thread(CliRunner().invoke, command, words, env={"CLARA_API_URL": url})
        assert "failed (503)" in " ".join(told.stdout.split())
        endpoint.script = None

        async def is_complete() -> bool:
            return bool((await said())["status"] == "complete")

        await eventually(is_complete)
        assert (await said())["reason"] is None


async def test_nonsense_to_the_end_of_the_window_is_a_persons_matter(local_chain: LocalChain, tmp_path: Path) -> None:
    """A judge that loses its mind after one verdict is waited for; near the end a person gets what there is to decide."""
    endpoint, verdicts = CountingEndpoint(latency=0.0), 0

    def script(seen: Seen) -> Fault | None:
        nonlocal verdicts
        has_judged, is_asked = verdicts > 0, "SOLUTION B FEATURES" in seen.text
        verdicts += is_asked
        return Fault("text", text="I am a teapot, short and stout.") if has_judged else None

    endpoint.script = script
    [address] = await closed(local_chain, ASKED)
    async with endpoint.running(), watched(local_chain, tmp_path, asking(endpoint)) as world:
        await ticking_until(world, address, "pending", told="comparisons got no answer")
        window = window_of(await look_at_challenge(world.app.chain, address))
        await local_chain.move_time(int(1.1 * window.seconds_left))
        status = await ticking_until(world, address, "review")
        review = await known_review(world.app.store, world.app.chain_id, address)
        assert any("have no verdict" in reason for reason in review.reasons), status
        await approve(world.app.store, world.app.chain_id, address, note="The facts bear it out.", digest=review.digest)
        await ticking_until(world, address, "complete")
        assert await ended_well(world.app, local_chain, address) == []


async def test_rounds_that_wait_for_their_judge_hold_no_place(local_chain: LocalChain, tmp_path: Path) -> None:
    """Four rounds whose judge asks for an hour fill no place of four: a fifth, by rules, is posted; the four say why."""
    endpoint = CountingEndpoint(latency=0.0)
    endpoint.script = lambda _seen: Fault("status", 429, {"retry-after": "3600"})
    *held, free = await closed(local_chain, ASKED, ASKED, ASKED, ASKED, BY_RULES)
    async with endpoint.running(), watched(local_chain, tmp_path, asking(endpoint)) as world:
        await ticking_until(world, free, "complete")
        for address in held:
            status = await ticking_until(world, address, "pending", told="600 s")
            ends = await as_web3(local_chain.challenge(address)).functions.scoringDeadline().call()
            assert 0 < status["retryAt"] < ends
        assert "EvaluationStuck" in raised(world.engine.metrics)
        endpoint.script = None
        await world.engine.requests.request(held[0])
        await ticking_until(world, held[0], "complete")


async def test_an_empty_wallet_calls_a_person_and_goes_on_when_filled(local_chain: LocalChain, tmp_path: Path) -> None:
    """The post waits and says so; the alert reaches a webhook that refused it at first; filled, it is posted once."""
    evaluator = to_checksum_address(local_chain.evaluator.address)
    got: list[dict[str, Any]] = []

    async def take(request: web.Request) -> web.Response:
        got.append(await request.json())
        return web.Response(status=503 if len(got) == 1 else 204)

    hook = web.Application()
    hook.router.add_post("/hook", take)
    [address] = await closed(local_chain, BY_RULES)
    await local_chain.node.rpc("anvil_setBalance", evaluator, "0x0")
    async with TestServer(hook) as server:
        webhook = Webhook(str(server.make_url("/hook")), None, pauses=(0.05, 0.05))
        async with watched(local_chain, tmp_path, webhook=webhook) as world:
            await ticking_until(world, address, "pending", "publishing", told="cannot pay the gas")
            assert await posts_of(local_chain, address) == 0
            await local_chain.node.rpc("anvil_setBalance", evaluator, hex(10**18))
            await ticking_until(world, address, "complete")
            assert await ended_well(world.app, local_chain, address) == []
    about = [alert for alert in got if alert["alert"] == "BalanceLow"]
    assert len(about) >= 2, "refused once, and sent again"
    assert json.dumps(got[0]) in map(json.dumps, got[1:])


async def test_a_strangers_pending_advance_holds_nobody(local_chain: LocalChain, tmp_path: Path) -> None:
    """Somebody's advanceToScoring waits in the pool: whatever a node makes of it, the round is posted once."""
    [address] = await closed(local_chain, BY_RULES)
    data = "0x" + scoring_function("advanceToScoring").call().hex()
    await local_chain.node.rpc("evm_setAutomine", False)
    try:
        await local_chain.node.post(local_chain.agents[5], address, data)
        async with watched(local_chain, tmp_path) as world:
            for _ in range(3):
                await world.engine.tick()
                await asyncio.sleep(0.3)
            assert (await world.status(address))["status"] != "failed"
            async with mining(local_chain, 0.2):
                await ticking_until(world, address, "complete")
            assert await ended_well(world.app, local_chain, address) == []
    finally:
        await local_chain.node.rpc("evm_setAutomine", True)


async def test_a_post_that_a_tick_finds_is_complete_only_at_depth(local_chain: LocalChain, tmp_path: Path) -> None:
    """Recognised two blocks deep where ten are demanded, it is being published; ten deep, it is complete."""
    [address] = await closed(local_chain, BY_RULES)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with opened(local_chain, first, local_chain.rpc_url) as app:
        assert await until_posted(app, address) == []

    async def nothing(_challenge: Challenge) -> None:
        raise AssertionError("what is posted is not evaluated")

    async with opened(local_chain, second, local_chain.rpc_url, confirmations=10) as app:
        tick = partial(run_tick, app, Alerts(Metrics()), Metrics(), nothing)
        await tick()
        status = await read_status(app.store, app.chain_id, address) or {}
        assert (status["status"], "deep" in status["reason"]) == ("publishing", True)
        await local_chain.mine(10)
        await tick()
        status = await read_status(app.store, app.chain_id, address) or {}
        assert (status["status"], status["postedBy"]) == ("complete", "evaluator")
