"""What one round costs: requests to the node, readings of the challenge, fetches, runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.faulty_node import FaultyNode
from tests.support.rounds import PACE, closed_round

from clara_eval.actions.evaluate import EvaluationRequest, Observer, evaluate
from clara_eval.actions.review import approve
from clara_eval.app import App, open_app
from clara_eval.chain.sender import SendOutcome
from clara_eval.challenges.challenge_index import save_summary
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.core.address import Address
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.local_chain import USDC, LocalChain
from clara_eval.documents.results import EvalStatus
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
class Counted:
    """An app whose node, fetches and runs are counted."""

    app: App
    node: CountingNode
    fetches: CountingFetch
    runs: int = 0

    async def evaluate(self, address: Address) -> Evaluation:
        return await evaluate(self.app, address, EvaluationRequest(observer=Observer(self._listen)))

    def _listen(self, status: EvalStatus) -> None:
        stage = status.stage
        self.runs += stage is not None and stage.name == "collecting" and stage.done == stage.total


@asynccontextmanager
async def counting(chain: LocalChain, place: Path) -> AsyncIterator[Counted]:
    async with CountingNode(chain.rpc_url) as node:
        settings = local_settings(chain, place / "store.db", place).model_copy(update={"rpc_url": node.url})
        async with open_app(settings, pace=PACE) as app:
            fetches = CountingFetch(app.ports.fetch)
            yield Counted(replace(app, ports=replace(app.ports, fetch=fetches)), node, fetches)


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
