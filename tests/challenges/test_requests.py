"""What one round costs: requests to the node, readings of the challenge, fetches, runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.faulty_node import FaultyNode, refuses
from tests.support.model_rounds import judged, model_round, script
from tests.support.rounds import PACE, closed_round, opened
from tests.support.scripted_llm import ScriptedLlm
from tests.support.statuses import read_status
from tests.support.verifiers import node_refusals

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.actions.review import approve
from clara_eval.app import App, open_app
from clara_eval.chain.sender import SendOutcome
from clara_eval.challenges.challenge_index import save_summary
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.prepare import RESTARTED, VERSION_CHANGED
from clara_eval.challenges.replay import check_trace
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.version import code_version
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.local_chain import USDC, LocalChain
from clara_eval.documents.results import EvalStatus
from clara_eval.evaluation.trace import Journal, Restart
from clara_eval.judge.port import Answer, Llm, Prompt
from clara_eval.store.trace_archive import stream_trace
from clara_eval.submissions.model import Fetch, Fetched

MOST_REQUESTS = 40
SUBMISSION_OF = "0x40bc7fa2"
"""Selector of the getter that only a reading of the whole challenge calls."""


class CountingNode(FaultyNode):
    """Counts requests, without those that wait for a confirmation, and readings of the whole challenge."""

    counted = 0
    readings = 0
    is_confirming = False

    async def _serve(self, request: Any) -> Any:
        body = await request.json()
        calls = body if isinstance(body, list) else [body]
        methods = {call["method"] for call in calls}
        is_waiting = methods == {"eth_getTransactionReceipt"}
        self.is_confirming = is_waiting or (self.is_confirming and methods == {"eth_getBlockByNumber"})
        self.counted += not self.is_confirming
        asked = [call["params"][0].get("data", "") for call in calls if call["method"] == "eth_call"]
        self.readings += any(data.startswith(SUBMISSION_OF) for data in asked)
        return await super()._serve(request)


@dataclass
class CountingFetch:
    fetch_from: Fetch
    asked: int = 0

    async def fetch(self, uri: str) -> Fetched:
        self.asked += 1
        return await self.fetch_from.fetch(uri)


@dataclass
class CountingModel:
    inner: Llm
    asked: int = 0
    name: str = "scripted:model"

    async def complete(self, prompt: Prompt) -> Answer:
        self.asked += 1
        return await self.inner.complete(prompt)


@dataclass
class Counted:
    """An app whose node, fetches and runs are counted."""

    app: App
    node: CountingNode
    fetches: CountingFetch
    runs: int = 0

    async def evaluate(self, address: Address) -> Evaluation:
        return await evaluate(self.app, address, EvaluationRequest(progress=self._listen))

    def _listen(self, status: EvalStatus) -> None:
        stage = status.stage
        self.runs += stage is not None and stage.name == "collecting" and stage.done == stage.total


@asynccontextmanager
async def counting(chain: LocalChain, place: Path) -> AsyncIterator[Counted]:
    async with CountingNode(chain.rpc_url) as node:
        settings = local_settings(chain, place / "store.db", place).model_copy(update={"rpc_url": node.url})
        async with open_app(settings, pace=PACE) as app:
            fetches = CountingFetch(app.fetch)
            yield Counted(replace(app, fetch=fetches), node, fetches)


async def test_a_round_reads_the_challenge_once_and_every_submission_once(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """From the start of an evaluation to its post: one run, one reading, one fetch each, few requests."""
    address = await closed_round(local_chain)
    async with counting(local_chain, tmp_path) as world:
        await save_summary(world.app.store, await look_at_challenge(world.app.chain, address), None)
        world.node.counted = world.node.readings = 0  # what a tick asked
        done = await world.evaluate(address)
    assert done.receipt is not None
    assert done.receipt.outcome is SendOutcome.CONFIRMED
    fetched = 1 + len(done.challenge.submissions)
    assert (world.runs, world.node.readings, world.fetches.asked) == (1, 1, fetched)
    assert world.node.counted <= MOST_REQUESTS


async def test_an_approval_posts_the_recorded_calldata_without_another_run(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """The approved result is posted from its archived trace: nothing is run, fetched or read again."""
    address = await closed_round(local_chain, pool=2000 * USDC)
    async with counting(local_chain, tmp_path) as world:
        waiting = await world.evaluate(address)
        assert waiting.review is not None
        before = world.node.counted
        await approve(world.app.store, world.app.chain_id, address, note="looked", digest=waiting.digest, by="Ada")
        posted = await world.evaluate(address)
        assert posted.receipt is not None
        assert (posted.ran, posted.digest, posted.receipt.outcome) == (None, waiting.digest, SendOutcome.CONFIRMED)
        assert await world.app.chain.results.winners_on_chain(address, 3) == waiting.winners.entries
    fetched = 1 + len(waiting.challenge.submissions)
    assert (world.runs, world.node.readings, world.fetches.asked) == (1, 1, fetched)
    assert world.node.counted - before <= MOST_REQUESTS


async def asked_later(chain: LocalChain, place: Path, address: Address, rpc_url: str | None = None) -> Evaluation:
    """Evaluate without posting, from an empty store; the requests of the model are in the result."""
    await asyncio.to_thread(place.mkdir)
    changes = {} if rpc_url is None else {"rpc_url": rpc_url}
    async with opened(chain, place, **changes) as app:
        return await judged(app, address, {"scripted:model": ScriptedLlm(script)})


async def test_evaluators_at_two_times_ask_byte_for_byte_the_same(local_chain: LocalChain, tmp_path: Path) -> None:
    """The round is pinned to the first block after the deadline: 32 and 300 blocks later nothing differs."""
    address = await model_round(local_chain)
    await local_chain.mine()
    first = await asked_later(local_chain, tmp_path / "0", address)
    assert first.result.answers
    for number, blocks in enumerate((32, 300), start=1):
        await local_chain.mine(blocks)
        later = await asked_later(local_chain, tmp_path / str(number), address)
        assert later.result.answers.keys() == first.result.answers.keys()
        assert (later.challenge, later.digest) == (first.challenge, first.digest)


async def test_a_node_without_the_old_state_still_gives_the_same_questions(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """A pruned node knows the pinned block but not its state: the state is read later, and the trace says so."""
    address = await model_round(local_chain)
    await local_chain.mine()
    first = await asked_later(local_chain, tmp_path / "archive", address)
    await local_chain.mine(300)
    pinned = first.challenge.block

    def is_old(call: dict[str, Any]) -> bool:
        return pinned.hash in str(call["params"]) or call["params"][-1] == hex(pinned.number)

    async with FaultyNode(local_chain.rpc_url) as node:
        node.instead = refuses("eth_call", -32000, "missing trie node", when=is_old)
        later = await asked_later(local_chain, tmp_path / "pruned", address, node.url)
    assert later.challenge == replace(first.challenge, read_at=later.challenge.read_at)
    assert later.challenge.read_at is not None
    assert later.challenge.read_at.number > pinned.number
    assert later.result.answers.keys() == first.result.answers.keys()
    async with opened(local_chain, tmp_path / "pruned") as app:
        text = "".join([piece async for piece in stream_trace(app.store, app.chain_id, address)])
    assert f'"readAt":{{"hash":"{later.challenge.read_at.hash}"' in text
    assert (await check_trace(text.splitlines(keepends=True))).challenge == later.challenge


async def test_another_version_starts_a_round_again_with_the_answers_that_are_paid(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Begun by a version with another result and unreadable steps: not ended, not paid twice; status and trace say so."""
    address = await model_round(local_chain)
    model = CountingModel(ScriptedLlm(script))
    async with opened(local_chain, tmp_path) as app:
        first = await judged(app, address, {"scripted:model": model})
        asked = model.asked
        for key, value in (("digest", '"0x00"'), ("version", '"0.1.0 rules 7"'), ("plan", "[]"), ("challenge", "[]")):
            await app.store.driver.fetch("UPDATE entries SET value = ? WHERE key = ?", (value, key))
        again = await judged(app, address, {"scripted:model": model})
        status = await read_status(app.store, app.chain_id, address)
        assert await Journal(app.store, again.challenge.run).saved("version", JsonCodec(str)) == code_version()
        text = "".join([piece async for piece in stream_trace(app.store, app.chain_id, address)])
    assert (again.digest, model.asked) == (first.digest, asked)
    (restart,) = (await check_trace(text.splitlines(keepends=True))).notes.restarts
    assert restart == Restart(restart.at, "0.1.0 rules 7", code_version(), len(again.result.answers))
    assert restart.answers == asked > 0
    assert restart.at >= again.challenge.block.timestamp
    assert node_refusals({"restarted": text.encode()}, tmp_path) == {"restarted": ""}
    assert status is not None
    assert status["warning"] == VERSION_CHANGED


async def test_versions_in_turn_leave_restarts_that_follow_each_other(local_chain: LocalChain, tmp_path: Path) -> None:
    """Upgraded, killed before it did anything, rolled back and upgraded: the trace verifies, and no restart is twice."""
    address = await model_round(local_chain)
    ours = code_version()

    async def text_after(app: App, version: str) -> list[str]:
        await app.store.driver.fetch("UPDATE entries SET value = ? WHERE key = 'version'", (f'"{version}"',))
        await judged(app, address, {"scripted:model": ScriptedLlm(script)})
        return "".join([piece async for piece in stream_trace(app.store, app.chain_id, address)]).splitlines(True)

    async with opened(local_chain, tmp_path) as app:
        await judged(app, address, {"scripted:model": ScriptedLlm(script)})
        killed = await text_after(app, "0.1.0 rules 7")
        again = await text_after(app, "0.1.0 rules 7")
        later = RESTARTED.text((Restart(2**40, ours, "0.3.0 rules 10 x", 0), ()))
        await app.store.add_entry(f"{app.chain_id}:{address}", "restart/0001", later)
        unfinished = await text_after(app, ours)
        rolled_back = await text_after(app, "0.3.0 rules 10 x")
    told = [[one.begun_by for one in (await check_trace(text)).notes.restarts] for text in (killed, again, unfinished)]
    assert told == [["0.1.0 rules 7"]] * 3
    assert [one.begun_by for one in (await check_trace(rolled_back)).notes.restarts] == [
        "0.1.0 rules 7",
        ours,
        "0.3.0 rules 10 x",
    ]


async def test_another_version_posts_what_is_approved_as_it_is_recorded(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """A person approved the result of an earlier version: that one is posted, without another run."""
    address = await closed_round(local_chain, pool=2000 * USDC)
    async with counting(local_chain, tmp_path) as world:
        waiting = await world.evaluate(address)
        await approve(world.app.store, world.app.chain_id, address, note="looked", digest=waiting.digest, by="Ada")
        await world.app.store.driver.fetch("DELETE FROM entries WHERE key = 'version'")
        posted = await world.evaluate(address)
    assert posted.receipt is not None
    assert (posted.ran, posted.digest, posted.receipt.outcome) == (None, waiting.digest, SendOutcome.CONFIRMED)
