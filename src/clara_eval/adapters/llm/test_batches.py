"""Message batches on the wire: half the price, the same record, and nothing lost by a crash."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from clara_eval.adapters.llm.anthropic import AnthropicLlm
from clara_eval.adapters.llm.batches import MessageBatches, should_batch
from clara_eval.adapters.sql_store import SqlStore
from clara_eval.adapters.sqlite import SqliteStore
from clara_eval.errors import Deferred, Temporary
from clara_eval.judge.calls import JudgeLine
from clara_eval.judge.port import Prompt, request_hash
from clara_eval.judge.prices import PriceCard
from clara_eval.judge.purse import Purse
from clara_eval.testing.fake_endpoint import FakeEndpoint, Fault, Seen

CARD = PriceCard(2_000_000, 2_000_000, 2_000_000, 2_000_000)
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"winner": {"type": "string", "enum": ["A", "B", "tie"]}},
        "required": ["winner"],
        "additionalProperties": False,
    }
)
PROMPTS = [Prompt("comparison", "judge", f"pair {number}", SCHEMA, 50, "0x00") for number in range(20)]


class Killed(BaseException):
    """Stands for a process that ends here."""


class Desk:
    """One endpoint, one model, one store; `batches` makes a new process's view of them."""

    def __init__(self, endpoint: FakeEndpoint, llm: AnthropicLlm, store: SqlStore) -> None:
        self.endpoint, self.llm, self.store = endpoint, llm, store
        self.purse = Purse(cap_micro_usd=10_000_000)
        self.now = 1_000_000.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def batches(self, **options: Any) -> MessageBatches:
        settings = {"seconds": 3600.0, "sleep": self.sleep, "now": lambda: self.now, **options}
        return MessageBatches(self.llm, self.store, "r", self.purse, CARD, **settings)


@asynccontextmanager
async def _desk(path: Path, script: Any = None) -> AsyncIterator[Desk]:
    store = await SqliteStore.open(path / "s.db")
    async with FakeEndpoint(script=script).running() as endpoint:
        llm = AnthropicLlm("claude-test", api_key="k", base_url=endpoint.root)
        yield Desk(endpoint, llm, store)
        await llm.close()
    await store.close()


async def test_a_batch_fills_the_answer_book(tmp_path: Path) -> None:
    """After `fill`, ordinary asking finds every answer and pays for nothing; the price was half."""
    async with _desk(tmp_path) as desk:
        await desk.batches().fill(PROMPTS)
        line = JudgeLine(desk.llm, desk.store, run="r", purse=Purse(None), card=CARD)
        answers = [await line.ask(prompt) for prompt in PROMPTS]
        assert line.counts.answered == 0
        assert desk.endpoint.paid == 20
        (batch,) = desk.endpoint.batches.values()
    assert [paid.request for paid in answers] == [request_hash(desk.llm.name, prompt) for prompt in PROMPTS]
    assert {item["custom_id"] for item in batch["requests"]} == {paid.request[2:] for paid in answers}
    assert batch["requests"][0]["params"]["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert all(paid.cost_micro_usd == paid.answer.input_tokens + paid.answer.output_tokens for paid in answers)
    assert desk.purse.spent == sum(paid.cost_micro_usd or 0 for paid in answers)
    assert desk.purse.reserved == 0


async def test_failed_items_are_left_to_ordinary_calls(tmp_path: Path) -> None:
    """Errored and expired items cost nothing and are asked for one by one afterwards."""
    async with _desk(tmp_path) as desk:
        for prompt, outcome in zip(PROMPTS[:3], ("errored", "expired", "canceled"), strict=True):
            desk.endpoint.batch_outcomes[request_hash(desk.llm.name, prompt)[2:]] = outcome
        await desk.batches().fill(PROMPTS)
        line = JudgeLine(desk.llm, desk.store, run="r", purse=desk.purse, card=CARD)
        for prompt in PROMPTS:
            await line.ask(prompt)
        assert line.counts.answered == 3
        assert desk.endpoint.paid == 20


@pytest.mark.parametrize("moment", ["before the id is kept", "while it is polled", "while results are saved"])
async def test_a_killed_process_goes_on_with_its_batch(tmp_path: Path, moment: str) -> None:
    """Whenever the process ends, the next one submits no second batch and saves what was paid for."""
    async with _desk(tmp_path) as desk:
        saves = 0

        class Dying:
            def __getattr__(self, name: str) -> Any:
                return getattr(desk.store, name)

            async def add_entry(self, run: str, key: str, value: str) -> str:
                if moment.startswith("before") and key.startswith("id/"):
                    raise Killed
                return await desk.store.add_entry(run, key, value)

            async def save_answer(self, paid: Any) -> Any:
                nonlocal saves
                saves += 1
                if moment.endswith("saved") and saves > 7:
                    raise Killed
                return await desk.store.save_answer(paid)

        async def dying_sleep(_seconds: float) -> None:
            if moment.startswith("while it"):
                raise Killed

        first = desk.batches(sleep=dying_sleep)
        first.store = Dying()
        with pytest.raises(Killed):
            await first.fill(PROMPTS)
        assert desk.purse.reserved == 0
        await desk.batches().fill(PROMPTS)
        assert len(desk.endpoint.batches) == 1
        assert len(await desk.store.answers([request_hash(desk.llm.name, prompt) for prompt in PROMPTS])) == 20


async def test_a_batch_that_does_not_end_in_time_is_cancelled(tmp_path: Path) -> None:
    """When the time is over the batch is cancelled, and one that never ends is a named failure."""
    async with _desk(tmp_path) as desk:
        desk.endpoint.batch_polls_needed = 10**9
        with pytest.raises(Temporary, match="does not end"):
            await desk.batches(seconds=100.0).fill(PROMPTS)
        assert desk.endpoint.batches["msgbatch_0000"]["cancelled"]
        assert desk.purse.reserved == 0


async def test_an_overloaded_provider_is_asked_again(tmp_path: Path) -> None:
    """A refused submission is repeated after a pause, as one batch."""

    def script(seen: Seen) -> Fault | None:
        return Fault("status", 529) if "requests" in seen.body and seen.number < 2 else None

    async with _desk(tmp_path, script) as desk:
        await desk.batches().fill(PROMPTS)
        assert len(desk.endpoint.batches) == 1
        assert desk.endpoint.paid == 20


async def test_the_cap_holds_for_batches(tmp_path: Path) -> None:
    """A batch that could cost more than the cap is not submitted, and nothing stays reserved."""
    async with _desk(tmp_path) as desk:
        desk.purse.cap_micro_usd = CARD.worst(PROMPTS[0], batch=True) * 19
        with pytest.raises(Deferred):
            await desk.batches().fill(PROMPTS)
        assert (desk.endpoint.batches, desk.purse.reserved) == ({}, 0)


def test_when_batches_are_worth_it() -> None:
    """Many calls and much time: batches; few calls or little time: ordinary calls."""
    assert should_batch(24 * 3600, 300)
    assert not should_batch(24 * 3600, 99)
    assert not should_batch(3600, 10_000)
