"""Chunks of questions: shared, asked once, within the money set aside for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from dbos import DBOS, WorkflowStatus
from sqlalchemy.exc import OperationalError
from tests.support.fake_endpoint import FakeEndpoint

from clara_eval.challenges.model_pool import Ahead, ModelPool
from clara_eval.config.settings import Settings
from clara_eval.core.errors import Temporary
from clara_eval.judge.costs.prices import PriceCard
from clara_eval.judge.costs.run_budget import RunBudget
from clara_eval.judge.port import Prompt
from clara_eval.service.chunks import Chunk, Spreader
from clara_eval.service.dbos_runtime import answered, launched, step_apart
from clara_eval.service.options import EngineOptions
from clara_eval.store.open import open_store
from clara_eval.store.sql_store import SqlStore

RUN = "31337:0xabc"
CARD = PriceCard(1_000_000, 2_000_000, 1_000_000, 1_000_000)
FAST = EngineOptions(poll_seconds=0.05, chunk_games=5, worker_chunks=2, lease_seconds=5)


def prompts(count: int) -> tuple[Prompt, ...]:
    return tuple(Prompt("comparison", "system", f"question {n}", '{"type":"object"}', 50, "0xt") for n in range(count))


@dataclass
class Shared:
    endpoint: FakeEndpoint
    store: SqlStore
    spreader: Spreader
    judge: str

    def ahead(self, count: int, budget: RunBudget) -> Ahead:
        return Ahead(self.judge, RUN, prompts(count), budget, CARD)


@pytest_asyncio.fixture(loop_scope="session")
async def shared(tmp_path: Path) -> AsyncIterator[Shared]:
    url = f"sqlite:///{tmp_path}/spread.db"
    store = await open_store(url)
    async with FakeEndpoint().running() as endpoint:
        judge = f"openai:m@{endpoint.url}"
        settings = Settings.from_env({"CLARA_JUDGES": judge, "CLARA_PRICES": f"{judge}=1/2", "OPENAI_API_KEY": "x"})
        pool = ModelPool(settings, store)
        spreader = Spreader(store, pool, "w", FAST)

        async def ask_chunk(wire: dict[str, object]) -> object:
            return await step_apart("chunk", spreader.ask_chunk, wire)

        async with launched(url, "w", {"ask_chunk": ask_chunk}, FAST) as registered:
            spreader.workflow = registered["ask_chunk"]
            yield Shared(endpoint, store, spreader, judge)
        await pool.close()
    await store.close()


async def test_every_question_is_answered_once_and_accounted_for(shared: Shared) -> None:
    """Twelve questions in three chunks: twelve payments, all in the book, the budget knows their cost to the millionth."""
    budget = RunBudget(10_000_000)
    await shared.spreader.spread(shared.ahead(12, budget))
    answers = await shared.store.answers(Chunk(shared.judge, RUN, prompts(12)).requests)
    assert (len(answers), shared.endpoint.paid) == (12, 12)
    assert budget.reserved == 0
    assert budget.spent == sum(paid.cost_micro_usd or 0 for paid in answers.values()) > 0


async def test_walked_again_nothing_is_asked_again(shared: Shared) -> None:
    """The same questions make the same chunks, whose answers are there."""
    for _ in range(2):
        await shared.spreader.spread(shared.ahead(12, RunBudget(None)))
    assert shared.endpoint.paid == 12


async def test_too_few_questions_stay_at_home(shared: Shared) -> None:
    """Less than two chunks are not worth the way."""
    await shared.spreader.spread(shared.ahead(9, RunBudget(None)))
    assert shared.endpoint.paid == 0


async def test_chunks_wait_for_money_and_never_overspend(shared: Shared) -> None:
    """With room for the worst case of one chunk at a time they go one after the other; with none, none goes."""
    one = sum(CARD.worst(prompt) for prompt in prompts(5))
    budget = RunBudget(one + 2_000)
    await shared.spreader.spread(shared.ahead(10, budget))
    assert shared.endpoint.paid in (5, 10)
    assert budget.spent <= one + 2_000
    assert budget.reserved == 0
    poor = RunBudget(10)
    before = shared.endpoint.paid
    await shared.spreader.spread(Ahead(shared.judge, "31337:0xother", prompts(40)[20:], poor, CARD))
    assert (shared.endpoint.paid, poor.spent) == (before, 0)


def test_a_chunk_is_named_by_its_content() -> None:
    """Another question, judge or run is another chunk."""
    base = Chunk("j", RUN, prompts(3))
    assert base.name == Chunk("j", RUN, prompts(3)).name
    others = {Chunk("k", RUN, prompts(3)).name, Chunk("j", "1:0xd", prompts(3)).name, Chunk("j", RUN, prompts(4)).name}
    assert base.name not in others
    assert len(others) == 3


async def test_a_database_that_is_away_for_a_moment_is_waited_for(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody can tell how a chunk stands, it goes on: the evaluation neither breaks nor asks again."""
    ask, asked = DBOS.get_workflow_status_async, 0

    async def shaky(name: str) -> WorkflowStatus | None:
        nonlocal asked
        asked += 1
        if asked in {3, 4}:
            raise OperationalError("SELECT 1", {}, ConnectionError("the server is restarting"))
        return await ask(name)

    monkeypatch.setattr(DBOS, "get_workflow_status_async", shaky)
    await shared.spreader.spread(shared.ahead(10, RunBudget(None)))
    assert asked > 4
    assert shared.endpoint.paid == 10


async def test_the_queues_database_being_away_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a bug: the challenge is tried again."""

    async def away(name: str) -> None:
        raise OperationalError("SELECT 1", {}, ConnectionError(f"no server for {name}"))

    monkeypatch.setattr(DBOS, "get_workflow_status_async", away)
    with pytest.raises(Temporary, match="OperationalError"):
        await answered(DBOS.get_workflow_status_async("x"))
