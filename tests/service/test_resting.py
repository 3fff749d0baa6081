"""Open challenges: looked at when they are new, when they say something and when they close, and not in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.service.test_engine import posted_round, settings_of
from tests.support.faulty_node import FaultyNode

from clara_eval.app import App, open_app
from clara_eval.chain.contracts.abi import abi
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.challenges.challenge_index import summaries
from clara_eval.challenges.result_recorder import known_results
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain, PostedTerms
from clara_eval.service.alerts import Alerts
from clara_eval.service.metrics import Metrics
from clara_eval.service.resting import DAY, is_its_turn
from clara_eval.service.tick import ANNOUNCED, OVER, Ticker, TickReport

MANY = 300
SUBMISSION_COUNT = "0x" + abi("Challenge").function("submissionCount").call().hex()


async def ticked(app: App) -> tuple[TickReport, list[Address]]:
    """A tick, and what it would evaluate."""
    started: list[Address] = []

    async def start(challenge: Any) -> None:
        started.append(challenge.address)

    metrics = Metrics()
    return await Ticker(app, Alerts(metrics), metrics, start).tick(), started


async def seen_at(app: App, addresses: list[Address]) -> list[tuple[int, int]]:
    """The block at which each was last looked at, and how many submissions were seen then."""
    index = await summaries(app.store, app.chain_id)
    return [(index[address].block, index[address].submissionCount) for address in addresses]


async def _submit(chain: LocalChain, address: Address) -> None:
    text = b"A solution."
    await chain.submit_all(address, [Handed(chain.agents[0], "data:text/plain,A solution.", keccak_hex(text))])


async def at_rest(app: App, count: int) -> None:
    """So many open challenges at which nobody has to look now. No contract stands there."""
    head, seconds = await app.chain.blocks.head(), app.settings.tick_seconds
    later = replace(head, timestamp=head.timestamp + seconds)
    for address in (f"0x{2**80 + number:040x}" for number in range(count)):
        if not is_its_turn(address, head, seconds) and not is_its_turn(address, later, seconds):
            await app.store.put(app.chain_id, ANNOUNCED + address, "1")
            row = f"{head.timestamp + HOUR} pending 0 0"
            await app.store.add_entry(f"engine:resting:{app.chain_id}", address, row)


async def _whose_turn_it_is_not(app: App, addresses: list[Address]) -> list[Address]:
    """Those whose daily turn it is not."""
    head = await app.chain.blocks.head()
    return [address for address in addresses if not is_its_turn(address, head, app.settings.tick_seconds)]


async def test_a_tick_looks_only_at_who_stirred(local_chain: LocalChain, tmp_path: Path) -> None:
    """Of four open challenges the one with a submission is looked at and the one that is cancelled; the others rest
    until their deadline has passed.
    """
    addresses = [await local_chain.post_challenge(PostedTerms(open_seconds=HOUR)) for _ in range(4)]
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        await ticked(app)
        first = dict(zip(addresses, await seen_at(app, addresses), strict=True))
        await local_chain.mine(5)
        rests = await _whose_turn_it_is_not(app, addresses)
        quiet, started = await ticked(app)
        assert await seen_at(app, rests) == [first[address] for address in rests]
        assert (quiet.problems, started, quiet.statuses) == ([], [], {"pending": 4})
        await _submit(local_chain, addresses[0])
        await local_chain.send(local_chain.poster, local_chain.challenge(addresses[1]), "cancel")
        rests = await _whose_turn_it_is_not(app, addresses[2:])
        await ticked(app)
        index = await summaries(app.store, app.chain_id)
        assert index[addresses[0]].submissionCount == 1
        assert index[addresses[1]].chainStatus == "cancelled"
        assert await seen_at(app, rests) == [first[address] for address in rests]
        await local_chain.move_time(HOUR + 1)
        _, due = await ticked(app)
    assert set(due) == {addresses[0], addresses[2], addresses[3]}


async def test_open_challenges_cost_a_tick_no_request(local_chain: LocalChain, tmp_path: Path) -> None:
    """Three hundred open challenges that said nothing add no request to the node, and are counted."""
    async with (
        FaultyNode(local_chain.rpc_url) as node,
        open_app(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as app,
    ):

        async def requests() -> int:
            node.calls.clear()
            await ticked(app)
            return node.calls.total()

        await ticked(app)
        alone = await requests()
        await at_rest(app, MANY)
        assert await requests() == alone
        report, _ = await ticked(app)
    assert report.statuses["pending"] >= MANY - 4


async def test_once_a_day_everybody_is_asked_and_only_what_changed_is_looked_at(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """A submission and a cancellation of which the node tells no event are noticed on their day; whoever is as it was
    costs two calls and no look, and a node that does not answer them only sends us to look at each.
    """
    addresses = [await local_chain.post_challenge(PostedTerms(open_seconds=HOUR)) for _ in range(5)]
    async with FaultyNode(local_chain.rpc_url) as node:
        settings = settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)
        async with open_app(settings.model_copy(update={"tick_seconds": DAY})) as app:  # it is everybody's turn
            await ticked(app)
            first = await seen_at(app, addresses)
            await local_chain.mine(5)
            node.calls.clear()
            await ticked(app)
            assert await seen_at(app, addresses) == first
            assert node.calls["eth_call"] == 2 * len(addresses)
            node.instead = lambda call: {"result": []} if _any(call) else None
            await _submit(local_chain, addresses[0])
            await local_chain.send(local_chain.poster, local_chain.challenge(addresses[1]), "cancel")
            await ticked(app)
            index = await summaries(app.store, app.chain_id)
            assert (index[addresses[0]].submissionCount, index[addresses[1]].chainStatus) == (1, "cancelled")
            assert await seen_at(app, addresses[2:]) == first[2:]
            node.instead = lambda call: {"error": {"code": -32001, "message": "missing"}} if _counts(call) else None
            problems = (await ticked(app))[0].problems
            node.instead = None
            await ticked(app)
            assert all(
                after > before
                for (after, _), (before, _) in zip(await seen_at(app, addresses[2:]), first[2:], strict=True)
            )
    assert {problem.partition(":")[0] for problem in problems} == {addresses[0], *addresses[2:]}


async def test_a_posted_challenge_rests_until_it_can_be_finalized(local_chain: LocalChain, tmp_path: Path) -> None:
    """An hour after its post no tick looks at it; its result is recorded all the same, and 12 hours after the post it
    is finalized.
    """
    address = await posted_round(local_chain)
    contract = local_chain.challenge(address)
    async with (
        FaultyNode(local_chain.rpc_url) as node,
        open_app(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as app,
    ):
        await ticked(app)
        await local_chain.move_time(HOUR)
        await ticked(app)
        await ticked(app)
        (first,) = await seen_at(app, [address])
        assert (await known_results(app.store, app.chain_id, [address]))[address].winners
        await local_chain.move_time(10 * HOUR)
        node.calls.clear()
        quiet, _ = await ticked(app)
        assert await seen_at(app, [address]) == [first]
        assert (quiet.statuses, quiet.problems) == ({"complete": 1}, [])
        assert node.calls["eth_call"] <= 2  # where it is its turn of the day
        await local_chain.move_time(HOUR)
        await ticked(app)
        assert await contract.functions.status().call() == ChallengeStatus.FINALIZED.value
        await ticked(app)
        assert (await summaries(app.store, app.chain_id))[address].chainStatus == "finalized"


async def test_who_cannot_be_looked_at_stays_awake(local_chain: LocalChain, tmp_path: Path) -> None:
    """A submission that comes while the node fails at its challenge is noticed when the node is well again."""
    address = await local_chain.post_challenge(PostedTerms(open_seconds=HOUR))
    async with (
        FaultyNode(local_chain.rpc_url) as node,
        open_app(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as app,
    ):
        await ticked(app)
        await _submit(local_chain, address)
        node.instead = lambda call: {"error": {"code": -32000, "message": "boom"}} if _about(call, address) else None
        failed, _ = await ticked(app)
        node.instead = None
        await ticked(app)
        assert (await seen_at(app, [address]))[0][1] == 1
    assert any(address in problem for problem in failed.problems)


async def test_without_events_nobody_rests(local_chain: LocalChain, tmp_path: Path) -> None:
    """A node that gives no events of unknown contracts is told as a problem, and everything is looked at as before."""
    address = await local_chain.post_challenge(PostedTerms(open_seconds=HOUR))
    async with (
        FaultyNode(local_chain.rpc_url) as node,
        open_app(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as app,
    ):
        await ticked(app)
        before = await seen_at(app, [address])
        await local_chain.mine(3)
        node.instead = lambda call: {"error": {"code": -32602, "message": "specify an address"}} if _any(call) else None
        report, _ = await ticked(app)
        assert (await seen_at(app, [address]))[0][0] > before[0][0]
    assert [problem for problem in report.problems if problem.startswith("events:")]


def _about(call: dict[str, Any], address: Address) -> bool:
    return call["method"] == "eth_call" and str(call["params"][0]["to"]).lower() == address


def _counts(call: dict[str, Any]) -> bool:
    return call["method"] == "eth_call" and str(call["params"][0]["data"]) == SUBMISSION_COUNT


def _any(call: dict[str, Any]) -> bool:
    return call["method"] == "eth_getLogs" and "address" not in call["params"][0]


async def test_challenges_are_read_together_and_those_at_work_not_again(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Six due challenges and an address without a contract: the six are started and the seventh is a problem. While
    they are at work a tick reads none of them, says how much of their window is gone all the same, and starts nothing;
    whose work has ended is looked at again.
    """
    addresses = [await local_chain.post_challenge(PostedTerms(open_seconds=HOUR)) for _ in range(6)]
    await local_chain.move_time(HOUR + 1)
    started: list[Address] = []
    at_work: set[Address] = set()

    async def start(challenge: Challenge) -> None:
        started.append(challenge.address)

    async def active() -> frozenset[Address]:
        return frozenset(at_work)

    async with FaultyNode(local_chain.rpc_url) as node:
        settings = settings_of(local_chain, tmp_path).model_copy(update={"rpc_url": node.url})
        async with open_app(settings) as app:
            await app.store.put(app.chain_id, ANNOUNCED + "0x" + "7" * 40, "1")
            ticker = Ticker(app, Alerts(Metrics()), Metrics(), start, active=active)
            problems = (await ticker.tick()).problems
            assert sorted(started) == sorted(addresses)
            assert [problem.partition(":")[0] for problem in problems] == ["0x" + "7" * 40]
            await app.store.put(app.chain_id, OVER + "0x" + "7" * 40, "failed")
            at_work |= set(addresses)
            await ticker.tick()
            node.calls.clear()
            quiet = await ticker.tick()
            asked = node.calls["eth_call"]
            assert (quiet.problems, len(started), quiet.window_used > 0) == ([], 6, True)
            at_work.discard(addresses[0])
            node.calls.clear()
            await ticker.tick()
            assert started[6:] == [addresses[0]]
            assert node.calls["eth_call"] > asked
