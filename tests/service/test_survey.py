"""What a tick reads: what is new, what has events, and what is due; nothing of it is missed."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.faulty_node import FaultyNode
from tests.support.service import posted_round, settings_of, still_open
from tests.support.web3_chain import as_web3

from clara_eval.app import App, open_app
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.challenges.challenge_index import known_results, summaries
from clara_eval.challenges.review import Review
from clara_eval.challenges.status import FAILED, StatusWriter
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex, plain_json
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain, PostedTerms
from clara_eval.documents.store_keys import review_key, status_key
from clara_eval.service.due import FINISHED, TickReport
from clara_eval.service.loop import run_tick
from clara_eval.service.metrics import Alerts, Metrics
from clara_eval.service.survey import ANNOUNCED, CHANGES

MANY = 10_000
MOST_CALLS = 20


async def ticked(app: App) -> tuple[TickReport, list[Address]]:
    """Run a tick and list what it would evaluate."""
    started: list[Address] = []

    async def start(challenge: Challenge) -> None:
        started.append(challenge.address)

    metrics = Metrics()
    return await run_tick(app, Alerts(metrics), metrics, start), started


async def read_at(app: App, addresses: list[Address]) -> list[tuple[int, int]]:
    """The block at which each was last read, and the number of submissions then."""
    index = await summaries(app.store, app.chain_id)
    return [(index[address].block, index[address].submissionCount) for address in addresses]


async def posted(chain: LocalChain, count: int) -> list[Address]:
    return [await chain.post_challenge(PostedTerms(open_seconds=HOUR)) for _ in range(count)]


async def submit(chain: LocalChain, address: Address) -> None:
    text = b"A solution."
    await chain.submit_all(address, [Handed(chain.agents[0], "data:text/plain,A solution.", keccak_hex(text))])


async def cancel(chain: LocalChain, address: Address) -> None:
    await chain.send(chain.poster, chain.challenge(address), "cancel")


async def settled(app: App, chain: LocalChain) -> None:
    """Tick until every event is deep and read for the last time."""
    for _ in range(3):
        await ticked(app)
        await chain.mine(5)


async def test_ten_thousand_open_challenges_cost_few_requests(local_chain: LocalChain, tmp_path: Path) -> None:
    """A tick in which nothing changed asks the node at most 20 things, as many as without them, and counts them all."""
    await posted(local_chain, 1)
    async with (
        FaultyNode(local_chain.rpc_url) as node,
        open_app(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as app,
    ):
        await settled(app, local_chain)
        node.calls.clear()
        await ticked(app)
        alone = node.calls.total()
        await still_open(app, MANY)
        await local_chain.mine(5)
        node.calls.clear()
        report, started = await ticked(app)
        assert node.calls.total() == alone <= MOST_CALLS, node.calls
    assert (report.problems, started) == ([], [])
    assert report.statuses["pending"] == MANY + 1


async def test_a_tick_reads_only_what_changed(local_chain: LocalChain, tmp_path: Path) -> None:
    """Of four open challenges the one with a submission and the cancelled one are read; the others at their deadline."""
    addresses = await posted(local_chain, 4)
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        await settled(app, local_chain)
        first = await read_at(app, addresses)
        quiet, started = await ticked(app)
        assert await read_at(app, addresses) == first
        assert (quiet.problems, started, quiet.statuses) == ([], [], {"pending": 4})
        await submit(local_chain, addresses[0])
        await cancel(local_chain, addresses[1])
        await ticked(app)
        index = await summaries(app.store, app.chain_id)
        assert index[addresses[0]].submissionCount == 1
        assert index[addresses[1]].chainStatus == "cancelled"
        assert await read_at(app, addresses[2:]) == first[2:]
        await local_chain.move_time(HOUR + 1)
        _, due = await ticked(app)
    assert set(due) == {addresses[0], addresses[2], addresses[3]}


async def test_an_event_is_read_twice_and_then_rests(local_chain: LocalChain, tmp_path: Path) -> None:
    """A challenge with an event is read again once, in case of a reorg, and is not kept in the list of changes."""
    (address,) = await posted(local_chain, 1)
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        await settled(app, local_chain)
        await submit(local_chain, address)
        await settled(app, local_chain)
        last = await read_at(app, [address])
        await settled(app, local_chain)
        assert await read_at(app, [address]) == last
        assert json.loads(await app.store.get(app.chain_id, CHANGES) or "")["again"] == []


async def test_an_unreadable_status_is_a_problem_of_its_own(local_chain: LocalChain, tmp_path: Path) -> None:
    """A status that this version cannot read, as after a roll-back, is reported and does not fail the tick."""
    (address,) = await posted(local_chain, 1)
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        await settled(app, local_chain)
        await app.store.put(app.chain_id, status_key(address), '{"status": "unheard_of", "progress": 1}')
        report, _ = await ticked(app)
    assert any("statuses" in problem for problem in report.problems)


async def test_a_restart_misses_nothing(local_chain: LocalChain, tmp_path: Path) -> None:
    """What happened while no process ran is read at the first tick, and again after a lost place or a long pause."""
    first, second, third = await posted(local_chain, 3)
    settings = settings_of(local_chain, tmp_path)
    async with open_app(settings) as app:
        await settled(app, local_chain)
    await submit(local_chain, first)
    async with open_app(settings) as app:
        await ticked(app)
        assert [count for _, count in await read_at(app, [first, second, third])] == [1, 0, 0]
        await settled(app, local_chain)
        await submit(local_chain, second)
        await app.store.put(app.chain_id, CHANGES, "")
    async with open_app(settings) as app:
        await ticked(app)
        assert [count for _, count in await read_at(app, [first, second, third])] == [1, 1, 0]
    await local_chain.move_time(HOUR + 1)
    async with open_app(settings) as app:
        _, due = await ticked(app)
    assert set(due) == {first, second, third}


async def test_events_older_than_the_start_are_no_obstacle(local_chain: LocalChain, tmp_path: Path) -> None:
    """With an empty store a challenge whose deadline has long passed is found, read and due at the first tick."""
    (address,) = await posted(local_chain, 1)
    await submit(local_chain, address)
    await local_chain.move_time(2 * HOUR)
    await local_chain.mine(50)
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        assert (await ticked(app))[1] == [address]


async def test_a_reorg_is_read_again(local_chain: LocalChain, tmp_path: Path) -> None:
    """A submission that a reorg takes away is gone from the index at the next tick, and what is due stays due."""
    (address,) = await posted(local_chain, 1)
    for _ in range(8):  # blocks that empty ones do not equal
        await local_chain.fund(local_chain.agents[50], 1)
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        await ticked(app)
        await submit(local_chain, address)
        await ticked(app)
        assert (await read_at(app, [address]))[0][1] == 1
        await local_chain.reorg(4)
        await local_chain.mine(4)
        await ticked(app)
        count = await as_web3(local_chain.challenge(address)).functions.submissionCount().call()
        assert ((await read_at(app, [address]))[0][1], count) == (0, 0)
        await local_chain.move_time(HOUR + 1)
        assert (await ticked(app))[1] == [address]


async def test_a_posted_challenge_is_read_again_when_it_can_be_finalized(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """An hour after its post no tick reads it; its result is recorded, and 12 hours after the post it is finalized."""
    address = await posted_round(local_chain)
    contract = local_chain.challenge(address)
    async with (
        FaultyNode(local_chain.rpc_url) as node,
        open_app(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as app,
    ):
        await settled(app, local_chain)
        await local_chain.move_time(HOUR)
        await settled(app, local_chain)
        (first,) = await read_at(app, [address])
        assert (await known_results(app.store, app.chain_id, [address]))[address].winners
        await local_chain.move_time(10 * HOUR)
        node.calls.clear()
        quiet, _ = await ticked(app)
        assert await read_at(app, [address]) == [first]
        assert (quiet.statuses, quiet.problems, node.calls["eth_call"]) == ({"complete": 1}, [], 0)
        await local_chain.move_time(HOUR)
        await ticked(app)
        assert await as_web3(contract).functions.status().call() == ChallengeStatus.FINALIZED.value
        await ticked(app)
        assert (await summaries(app.store, app.chain_id))[address].chainStatus == "finalized"


async def test_what_cannot_be_read_is_read_again(local_chain: LocalChain, tmp_path: Path) -> None:
    """A submission to a challenge at which the node fails is seen when it answers again; others are read meanwhile."""
    address, other = await posted(local_chain, 2)
    async with (
        FaultyNode(local_chain.rpc_url) as node,
        open_app(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as app,
    ):
        await settled(app, local_chain)
        await submit(local_chain, address)
        await submit(local_chain, other)
        node.instead = lambda call: {"error": {"code": -32000, "message": "boom"}} if _about(call, address) else None
        failed, _ = await ticked(app)
        assert [count for _, count in await read_at(app, [address, other])] == [0, 1]
        await local_chain.mine(10)
        await ticked(app)
        node.instead = None
        await local_chain.mine(10)
        await ticked(app)
        assert (await read_at(app, [address]))[0][1] == 1
    assert any(address in problem for problem in failed.problems)


async def test_without_events_everything_is_read(local_chain: LocalChain, tmp_path: Path) -> None:
    """A node that refuses the question for events is a problem of the report, and every challenge is read."""
    (address,) = await posted(local_chain, 1)
    async with (
        FaultyNode(local_chain.rpc_url) as node,
        open_app(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as app,
    ):
        await settled(app, local_chain)
        before = await read_at(app, [address])
        await local_chain.mine(3)
        node.instead = lambda call: {"error": {"code": -32602, "message": "specify an address"}} if _any(call) else None
        report, _ = await ticked(app)
        assert (await read_at(app, [address]))[0][0] > before[0][0]
    assert [problem for problem in report.problems if problem.startswith("events:")]


def _about(call: dict[str, Any], address: Address) -> bool:
    return call["method"] == "eth_call" and str(call["params"][0]["to"]).lower() == address


def _any(call: dict[str, Any]) -> bool:
    return call["method"] == "eth_getLogs" and "address" not in call["params"][0]


async def test_due_challenges_are_read_together_and_active_ones_not_again(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Six due challenges start although a seventh has no contract; while they run a tick reads and starts none of
    them, and still watches their deadlines.
    """
    addresses = await posted(local_chain, 6)
    await local_chain.move_time(HOUR + 1)
    started: list[Address] = []
    at_work: set[Address] = set()

    async def start(challenge: Challenge) -> None:
        started.append(challenge.address)

    async def active() -> frozenset[Address]:
        return frozenset(at_work)

    async with (
        FaultyNode(local_chain.rpc_url) as node,
        open_app(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as app,
    ):
        await app.store.put(app.chain_id, ANNOUNCED + "0x" + "7" * 40, "1")
        tick = partial(run_tick, app, Alerts(Metrics()), Metrics(), start, active=active)
        problems = (await tick()).problems
        assert sorted(started) == sorted(addresses)
        assert [problem.partition(":")[0] for problem in problems] == ["0x" + "7" * 40]
        await app.store.put(app.chain_id, FINISHED + "0x" + "7" * 40, "failed")
        at_work |= set(addresses)
        await tick()
        node.calls.clear()
        quiet = await tick()
        assert node.calls["eth_call"] == 0
        assert (quiet.problems, len(started), quiet.window_used > 0) == ([], 6, True)
        at_work.discard(addresses[0])
        await tick()
        assert started[6:] == [addresses[0]]


async def test_what_another_version_ended_as_failed_is_tried_again(local_chain: LocalChain, tmp_path: Path) -> None:
    """A round that an earlier program could not go on with is due; failed by this one, or rejected, it stays so."""
    theirs, ours, rejected = await posted(local_chain, 3)
    for address in (theirs, ours, rejected):
        await submit(local_chain, address)
    await local_chain.move_time(HOUR + 1)
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        for address in (theirs, ours, rejected):
            await StatusWriter(app.store, app.chain_id, address).say("failed", reason="The step 'digest' differs.")
        for address in (theirs, rejected):
            await app.store.put(app.chain_id, FAILED + address, "1 0.1 rules 1 000000000000")
        review = Review(rejected, "0x00", "rejected", (), requested_at=1)
        await app.store.put(app.chain_id, review_key(rejected), plain_json(asdict(review)))
        _, due = await ticked(app)
        assert due == [theirs]
        await StatusWriter(app.store, app.chain_id, theirs).say("failed", reason="Once is enough.")
        _, due = await ticked(app)
    assert due == []
