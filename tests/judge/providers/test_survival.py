"""A provider that fails in every way, and a process that is killed: nothing is lost and nothing is paid for twice."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.fake_endpoint import FakeEndpoint, Fault, Seen

from clara_eval.core.errors import Temporary
from clara_eval.judge.costs.budgets import PriceCard, RunBudget
from clara_eval.judge.port import PaidAnswer, Prompt, request_hash
from clara_eval.judge.providers.openai import OpenAiLlm
from clara_eval.judge.retrying_llm import CONTROL, RetryingLlm, RetryPolicy
from clara_eval.judge.structured_llm import CachedLlm
from clara_eval.store.sqlite import SqliteStore

CARD = PriceCard(1_000_000, 1_000_000, 1_000_000, 1_000_000)
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"winner": {"type": "string", "enum": ["A", "B", "tie"]}},
        "required": ["winner"],
        "additionalProperties": False,
    }
)
UNPAID = (
    Fault("status", 429, {"retry-after-ms": "30"}),
    Fault("status", 429, {"retry-after": "0"}),
    Fault("status", 429),
    Fault("status", 500),
    Fault("status", 529),
    Fault("hang"),
    Fault("drip"),
    Fault("reset"),
    Fault("cut"),
    Fault("garbage"),
)
PAID_BUT_UNUSABLE = (
    Fault("text", text='{"winner": "A'),
    Fault("text", text='{"champion": "A"}'),
    Fault("text", text="I think A is better."),
    Fault("refusal", text="I cannot judge this."),
    Fault("max_tokens", text='{"winner"'),
)
EVERY = UNPAID + PAID_BUT_UNUSABLE


def _prompt(number: int) -> Prompt:
    return Prompt("comparison", "judge", f"pair {number}", SCHEMA, 50, "0x00")


def _number(seen: Seen) -> int:
    return int(seen.body["messages"][-1]["content"].split()[-1])


def _is_verdict(paid: PaidAnswer) -> bool:
    try:
        return paid.answer.stop == "end" and set(json.loads(paid.answer.text)) == {"winner"}
    except ValueError:
        return False


async def ask_until_usable(line: CachedLlm, number: int) -> list[PaidAnswer]:
    """What a judge does with unusable answers: ask again, as another request."""
    answers: list[PaidAnswer] = []
    while not answers or (not _is_verdict(answers[-1]) and len(answers) < 4):
        answers.append(await line.ask(_prompt(number), len(answers)))
    return answers


async def test_every_failure_ends_in_an_answer_paid_for_once(tmp_path: Path) -> None:
    """Every fault, twice over and then two in a row, ends in a usable verdict; paid calls are distinct requests."""

    def script(seen: Seen) -> Fault | None:
        if CONTROL in str(seen.body["messages"][-1]["content"]):
            return None
        number = _number(seen)
        if seen.times == 0:
            return EVERY[number % len(EVERY)]
        return EVERY[(number * 7) % len(EVERY)] if seen.times == 1 and number >= len(EVERY) else None

    store = await SqliteStore.open(tmp_path / "s.db")
    async with FakeEndpoint(script=script).running() as endpoint:
        llm = OpenAiLlm("m", api_key="k", base_url=endpoint.url)
        llm.call_seconds = 3.0
        budget = RunBudget(cap_micro_usd=1_000_000)
        policy = RetryPolicy(tries=12, call_seconds=3.0, first_pause_seconds=0.02, longest_pause_seconds=0.1)
        line = CachedLlm(RetryingLlm(llm, budget, CARD, policy), store, "r")
        line.llm.breaker.open_after = 1000
        rounds = await asyncio.gather(*(ask_until_usable(line, number) for number in range(2 * len(EVERY))))
        await llm.close()
    answers = [paid for one in rounds for paid in one]
    assert all(_is_verdict(one[-1]) for one in rounds)
    controls = sum(CONTROL in str(seen.body["messages"][-1]["content"]) for seen in endpoint.seen)
    assert endpoint.paid - controls == len(answers) == len({paid.request for paid in answers})
    assert len(await store.answers([paid.request for paid in answers])) == len(answers)
    control = request_hash(line.name, dataclasses.replace(_prompt(0), user=CONTROL), 0)
    told = [(await store.answers([control]))[control]] * controls if controls else []
    spent = sum(paid.cost_micro_usd or 0 for paid in (*answers, *told))
    assert (budget.spent - budget.lost, budget.reserved) == (spent, 0)
    assert budget.spent <= 1_000_000
    await store.close()


@pytest.mark.parametrize("fault", UNPAID[3:5], ids=lambda fault: f"{fault.kind}-{fault.status}")
async def test_a_failure_that_does_not_end_is_named(tmp_path: Path, fault: Fault) -> None:
    """A provider that never recovers ends in one named failure, with nothing recorded and nothing spent."""
    store = await SqliteStore.open(tmp_path / "s.db")
    async with FakeEndpoint(script=lambda _: fault).running() as endpoint:
        llm = OpenAiLlm("m", api_key="k", base_url=endpoint.url)
        policy = RetryPolicy(tries=3, first_pause_seconds=0.01)
        budget = RunBudget(cap_micro_usd=1_000_000)
        line = CachedLlm(RetryingLlm(llm, budget, CARD, policy), store, "r")
        with pytest.raises(Temporary, match=rf"openai:m@.* gave no answer; the last of 3 tries: .*{fault.status}"):
            await line.ask(_prompt(1))
        await llm.close()
    assert (endpoint.paid, budget.spent, budget.reserved) == (0, 0, 0)
    await store.close()


CHILD = """
import asyncio, sys
from clara_eval.judge.providers.openai import OpenAiLlm
from clara_eval.store.sqlite import SqliteStore
from clara_eval.judge.structured_llm import CachedLlm
from clara_eval.judge.retrying_llm import RetryingLlm
from clara_eval.judge.port import Prompt
from clara_eval.judge.costs.budgets import PriceCard
from clara_eval.judge.costs.budgets import RunBudget

async def main(path, url, count, schema):
    store = await SqliteStore.open(path)
    card = PriceCard(1_000_000, 1_000_000, 1_000_000, 1_000_000)
    llm = OpenAiLlm("m", api_key="k", base_url=url)
    line = CachedLlm(RetryingLlm(llm, RunBudget(None), card), store, "r")
    prompts = [Prompt("comparison", "judge", f"pair {number}", schema, 50, "0x00") for number in range(count)]
    line.expect(prompts)
    await asyncio.gather(*(line.ask(prompt) for prompt in prompts))
    await llm.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
"""
COUNT = 60
KILL_AT = (7, 20, 41)


async def test_three_kills_and_nothing_is_paid_for_twice(tmp_path: Path) -> None:
    """Killed with -9 three times with calls in flight, the fourth process ends; each request was paid for once.

    A kill comes when every delivered answer is on disk: an answer that is delivered to a process already dead is lost
    for anybody, and the calls in flight at that moment, which were not answered, are asked again.
    """
    path = tmp_path / "s.db"
    await (await SqliteStore.open(path)).close()
    reader = sqlite3.connect(path)
    child: asyncio.subprocess.Process | None = None
    kills = list(KILL_AT)
    killed: list[asyncio.subprocess.Process] = []
    one_at_a_time = asyncio.Lock()

    @asynccontextmanager
    async def turn(_seen: Seen) -> AsyncIterator[None]:
        owner = child
        async with one_at_a_time:
            if owner in killed:
                raise web.HTTPServiceUnavailable
            while reader.execute("SELECT COUNT(*) FROM answers").fetchone()[0] < endpoint.paid:  # noqa: ASYNC110 - another process writes
                await asyncio.sleep(0.002)
            if kills and endpoint.paid == kills[0]:
                kills.pop(0)
                assert child is not None
                killed.append(child)
                os.kill(child.pid, signal.SIGKILL)
                await asyncio.sleep(3600)
            yield

    codes = []
    async with FakeEndpoint().running() as endpoint:
        endpoint.turn = turn
        for _ in range(len(KILL_AT) + 1):
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD, str(path), endpoint.url, str(COUNT), SCHEMA
            )
            codes.append(await asyncio.wait_for(child.wait(), 100))
    assert codes == [-signal.SIGKILL] * len(KILL_AT) + [0]
    assert endpoint.paid == COUNT
    assert set(endpoint.paid_by_text.values()) == {1}
    assert len(endpoint.seen) > COUNT, "calls were in flight when the process was killed"
    assert reader.execute("SELECT COUNT(*) FROM answers").fetchone()[0] == COUNT
    reader.close()
