"""Message batches on the wire: half the price, the same record, and nothing lost by a crash."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.fake_endpoint import FakeEndpoint, Fault, Seen

from clara_eval.core.errors import Temporary
from clara_eval.judge.costs.budgets import PriceCard, RunBudget
from clara_eval.judge.port import Prompt, Unanswered, request_hash
from clara_eval.judge.providers.anthropic import AnthropicLlm, MessageBatches, should_batch
from clara_eval.judge.retrying_llm import RetryingLlm
from clara_eval.judge.structured_llm import CachedLlm
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.sqlite import SqliteStore

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
        self.budget = RunBudget(cap_micro_usd=10_000_000)
        self.now = 1_000_000.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def batches(self, **options: Any) -> MessageBatches:
        settings = {"seconds": 3600.0, "sleep": self.sleep, "now": lambda: self.now, **options}
        return MessageBatches(self.llm, self.store, "r", self.budget, CARD, **settings)


@asynccontextmanager
async def _desk(path: Path, script: Any = None, endpoint: FakeEndpoint | None = None) -> AsyncIterator[Desk]:
    store = await SqliteStore.open(path / "s.db")
    async with (endpoint or FakeEndpoint(script=script)).running() as running:
        desk = Desk(running, AnthropicLlm("claude-test", api_key="k", base_url=running.root), store)
        yield desk
        await desk.llm.close()
    await store.close()


async def _killed_while_polled(desk: Desk, prompts: list[Prompt]) -> None:
    """A process that submits a batch and ends before its answers are there."""

    async def die(_seconds: float) -> None:
        raise Killed

    with pytest.raises(Killed):
        await desk.batches(sleep=die).fill(prompts)


async def _answered(desk: Desk, prompts: list[Prompt]) -> int:
    return len(await desk.store.answers([request_hash(desk.llm.name, prompt) for prompt in prompts]))


async def test_a_batch_fills_the_answer_book(tmp_path: Path) -> None:
    """After `fill`, ordinary asking finds every answer and pays for nothing; the price was half."""
    async with _desk(tmp_path) as desk:
        await desk.batches().fill(PROMPTS)
        line = CachedLlm(RetryingLlm(desk.llm, RunBudget(None), CARD), desk.store, "r")
        answers = [await line.ask(prompt) for prompt in PROMPTS]
        assert line.llm.answered == 0
        assert desk.endpoint.paid == 20
        (batch,) = desk.endpoint.batches.values()
    assert [paid.request for paid in answers] == [request_hash(desk.llm.name, prompt) for prompt in PROMPTS]
    assert {item["custom_id"] for item in batch["requests"]} == {paid.request[2:] for paid in answers}
    assert batch["requests"][0]["params"]["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert all(paid.cost_micro_usd == paid.answer.input_tokens + paid.answer.output_tokens for paid in answers)
    assert desk.budget.spent == sum(paid.cost_micro_usd or 0 for paid in answers)
    assert desk.budget.reserved == 0


async def test_failed_items_are_left_to_ordinary_calls(tmp_path: Path) -> None:
    """Errored and expired items cost nothing and are asked for one by one afterwards."""
    async with _desk(tmp_path) as desk:
        for prompt, outcome in zip(PROMPTS[:3], ("errored", "expired", "canceled"), strict=True):
            desk.endpoint.batch_outcomes[request_hash(desk.llm.name, prompt)[2:]] = outcome
        await desk.batches().fill(PROMPTS)
        line = CachedLlm(RetryingLlm(desk.llm, desk.budget, CARD), desk.store, "r")
        for prompt in PROMPTS:
            await line.ask(prompt)
        assert line.llm.answered == 3
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

        first = replace(desk.batches(sleep=dying_sleep), store=Dying())
        with pytest.raises(Killed):
            await first.fill(PROMPTS)
        assert desk.budget.reserved == 0
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
        assert desk.budget.reserved == 0


async def test_an_overloaded_provider_is_asked_again(tmp_path: Path) -> None:
    """A refused submission is repeated after a pause, as one batch."""

    def script(seen: Seen) -> Fault | None:
        return Fault("status", 529) if "requests" in seen.body and seen.number < 2 else None

    async with _desk(tmp_path, script) as desk:
        await desk.batches().fill(PROMPTS)
        assert len(desk.endpoint.batches) == 1
        assert desk.endpoint.paid == 20


async def test_the_cap_holds_for_batches(tmp_path: Path) -> None:
    """A batch that could cost more than the cap is not submitted; one by one, what fits is asked and nothing is lost."""
    async with _desk(tmp_path) as desk:
        desk.budget.cap_micro_usd = CARD.worst(PROMPTS[0], batch=True) * 19
        await desk.batches().fill(PROMPTS)
        assert (desk.endpoint.batches, desk.budget.reserved) == ({}, 0)
        line = CachedLlm(RetryingLlm(desk.llm, desk.budget, CARD), desk.store, "r")
        for prompt in PROMPTS:
            await line.ask(prompt)
        assert desk.budget.spent <= desk.budget.cap_micro_usd


async def test_what_is_submitted_is_collected_whatever_is_left(tmp_path: Path) -> None:
    """A batch that an earlier process submitted is owed already: an empty budget does not keep its answers away."""
    async with _desk(tmp_path) as desk:
        await _killed_while_polled(desk, PROMPTS)
        desk.budget = RunBudget(cap_micro_usd=1)
        await desk.batches().fill(PROMPTS)
        assert await _answered(desk, PROMPTS) == 20
        assert desk.budget.reserved == 0


async def test_a_batch_waits_for_its_own_stage(tmp_path: Path) -> None:
    """Killed in the second stage, the next process goes through the first one and then still collects the second."""
    first, second = PROMPTS[:10], PROMPTS[10:]
    async with _desk(tmp_path) as desk:
        await desk.batches().fill(first)
        await _killed_while_polled(desk, second)
        await desk.batches().fill(first)
        await desk.batches().fill(second)
        assert len(desk.endpoint.batches) == 2
        assert await _answered(desk, second) == 10


async def test_an_earlier_batch_is_collected_and_no_new_one_made(tmp_path: Path) -> None:
    """With too little time for a new batch the one that is paid for is still collected."""
    async with _desk(tmp_path) as desk:
        await desk.batches().fill(PROMPTS[:3], only_earlier=True)
        assert desk.endpoint.batches == {}
        await _killed_while_polled(desk, PROMPTS[:10])
        await desk.batches().fill(PROMPTS, only_earlier=True)
        assert len(desk.endpoint.batches) == 1
        assert await _answered(desk, PROMPTS) == 10


async def test_the_same_requests_again_are_another_batch(tmp_path: Path) -> None:
    """Where every item of a batch expired, the next batch of the same requests is collected under its own id."""
    async with _desk(tmp_path) as desk:
        custom_ids = [request_hash(desk.llm.name, prompt)[2:] for prompt in PROMPTS]
        desk.endpoint.batch_outcomes.update(dict.fromkeys(custom_ids, "expired"))
        await desk.batches().fill(PROMPTS)
        desk.endpoint.batch_outcomes.clear()
        desk.endpoint.batches["msgbatch_0000"]["requests"] = []
        await desk.batches().fill(PROMPTS)
        assert len(desk.endpoint.batches) == 2
        assert await _answered(desk, PROMPTS) == 20


async def test_a_second_claude_does_not_take_the_firsts_batch(tmp_path: Path) -> None:
    """Two models of one jury ask the same pairs: each has a batch of its own and its own answers."""
    async with _desk(tmp_path) as desk:
        await desk.batches().fill(PROMPTS)
        desk.llm, first = AnthropicLlm("claude-other", api_key="k", base_url=desk.endpoint.root), desk.llm
        await desk.batches().fill(PROMPTS)
        await first.close()
        assert len(desk.endpoint.batches) == 2
        assert await _answered(desk, PROMPTS) == 20


async def test_what_was_saved_before_a_crash_is_not_counted_twice(tmp_path: Path) -> None:
    """The next process's budget ends with what all answers cost, each once."""
    async with _desk(tmp_path) as desk:
        await _killed_while_polled(desk, PROMPTS)
        line = CachedLlm(RetryingLlm(desk.llm, RunBudget(None), CARD), desk.store, "r")
        before = sum([(await line.ask(prompt)).cost_micro_usd or 0 for prompt in PROMPTS[:7]])
        desk.budget = RunBudget(10_000_000, spent=before)
        await desk.batches().fill(PROMPTS)
        saved = await desk.store.answers([request_hash(desk.llm.name, prompt) for prompt in PROMPTS])
        assert desk.budget.spent == sum(paid.cost_micro_usd or 0 for paid in saved.values())


class Moody(FakeEndpoint):
    """Every other look at a batch under way fails, and its results break off or hold nonsense."""

    cut_results = 0
    nonsense = ""
    looks = 0

    async def _show_batch(self, request: web.Request) -> web.Response:
        self.looks += 1
        under_way = self.batches[request.match_info["id"]]["polls"] < self.batch_polls_needed
        if under_way and self.looks % 2:
            return web.json_response({"error": {"type": "api_error", "message": "try later"}}, status=500)
        return await super()._show_batch(request)

    async def _batch_results(self, request: web.Request) -> Any:
        whole = await super()._batch_results(request)
        lines = str(whole.text).splitlines(keepends=True)
        if self.nonsense:
            item = json.loads(lines[0])
            item["result"]["message"] = json.loads(self.nonsense)
            return web.Response(text="".join([json.dumps(item) + "\n", *lines[1:]]), content_type="application/x-jsonl")
        if not self.cut_results:
            return whole
        self.cut_results -= 1
        response = web.StreamResponse(headers={"Content-Length": str(len(str(whole.text)))})
        await response.prepare(request)
        await response.write("".join(lines[:5]).encode())
        assert request.transport is not None
        request.transport.abort()
        return response


async def test_failed_looks_at_a_batch_are_counted_in_a_row(tmp_path: Path) -> None:
    """A provider that stumbles now and then over a long wait does not lose the batch."""
    async with _desk(tmp_path, endpoint=Moody()) as desk:
        desk.endpoint.batch_polls_needed = 20
        await desk.batches().fill(PROMPTS)
        assert await _answered(desk, PROMPTS) == 20


async def test_results_that_break_off_are_an_outage(tmp_path: Path) -> None:
    """The failure is ours by name, what came is kept, and the next process collects the rest of the same batch."""
    moody = Moody()
    moody.cut_results = 1
    async with _desk(tmp_path, endpoint=moody) as desk:
        with pytest.raises(Unanswered, match="did not answer"):
            await desk.batches().fill(PROMPTS)
        await desk.batches().fill(PROMPTS)
        assert len(desk.endpoint.batches) == 1
        assert await _answered(desk, PROMPTS) == 20


@pytest.mark.parametrize("nonsense", ['{"usage": null}', '{"content": [7], "model": "m", "usage": {}}', "{}"])
async def test_one_misshapen_item_does_not_hold_up_the_others(tmp_path: Path, nonsense: str) -> None:
    """An item that is no message counts as charged and stays open; all others are answered."""
    moody = Moody()
    moody.nonsense = nonsense
    async with _desk(tmp_path, endpoint=moody) as desk:
        await desk.batches().fill(PROMPTS)
        assert await _answered(desk, PROMPTS) == 19
        worst = {CARD.worst(prompt, batch=True) for prompt in PROMPTS}
        assert desk.budget.lost in worst
        assert desk.budget.reserved == 0


def test_when_batches_are_worth_it() -> None:
    """Many calls and much time: batches; few calls or little time: ordinary calls."""
    assert should_batch(24 * 3600, 300)
    assert not should_batch(24 * 3600, 99)
    assert not should_batch(3600, 10_000)
