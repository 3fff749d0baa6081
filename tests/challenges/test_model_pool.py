"""What a run may spend: planned by its quote, reserved under every cap, settled to what was spent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.model_calls import Model
from tests.support.winners import challenge

from clara_eval.challenges.model_pool import ModelPool, RunModels
from clara_eval.config.eval_config import parse_eval_config
from clara_eval.config.settings import Settings
from clara_eval.core.errors import ConfigError, Deferred, OutOfBudget
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge.costs.budgets import PriceCard, RunBudget
from clara_eval.judge.port import Answer, PaidAnswer, Prompt
from clara_eval.judge.providers.anthropic import AnthropicLlm
from clara_eval.judge.providers.openai import OpenAiLlm
from clara_eval.judge.reading import TokenLimits
from clara_eval.store.sqlite import SqliteStore

CONFIG = parse_eval_config(
    json.dumps(
        {
            "version": 1,
            "features": ["novelty", "correctness"],
            "criteria": "Correct first, then new ideas; simple wins.",
        }
    )
)
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"winner": {"type": "string", "enum": ["A", "B", "tie"]}},
        "required": ["winner"],
        "additionalProperties": False,
    }
)
UNCAPPED: dict[str, float | None] = {
    **dict.fromkeys(("budget_per_challenge_usd", "budget_per_poster_day_usd", "budget_per_month_usd")),
    "new_posters_share": 1.0,
}
PLAN = EvaluationPlan(("openai:test@http://127.0.0.1:1/v1",))


def settings(**values: str) -> Settings:
    return Settings.from_env({"CLARA_PRICES": f"{PLAN.judges[0]}=3/15", **values})


async def open_pool(place: Path, **values: str) -> ModelPool:
    return ModelPool(settings(**values), await SqliteStore.open(place / "store.db"))


async def test_a_full_budget_allows_both_orders(tmp_path: Path) -> None:
    """With money enough the plan has room for every ordered pair."""
    pool = await open_pool(tmp_path, CLARA_BUDGET_PER_CHALLENGE_USD="25")
    assert pool.affordable(challenge(25, (6000, 4000)), CONFIG, PLAN).max_games == 25 * 24


async def test_a_small_budget_buys_fewer_games_but_never_none(tmp_path: Path) -> None:
    """The number of games falls with the cap, and one game is always tried."""
    games: list[int] = []
    for cap in ("2", "1", "0.5", "0.001"):
        pool = await open_pool(tmp_path, CLARA_BUDGET_PER_CHALLENGE_USD=cap)
        games.append(pool.affordable(challenge(25, (6000, 4000)), CONFIG, PLAN).max_games or 0)
    assert games == sorted(games, reverse=True)
    assert games[0] < 600
    assert games[-1] == 1


async def test_free_judges_have_no_limit(tmp_path: Path) -> None:
    """Rules and local models are limited by time alone."""
    pool = await open_pool(tmp_path)
    assert pool.affordable(challenge(25, (6000, 4000)), CONFIG, EvaluationPlan(("rules",))).max_games is None


async def test_what_is_reserved_is_all_that_can_be_spent_and_is_settled(tmp_path: Path) -> None:
    """The ledger holds the reservation while the run is opened and the real amount afterwards."""
    pool = await open_pool(tmp_path)
    round_ = challenge(5, (6000, 4000))
    spent = PaidAnswer("0x1", round_.run, PLAN.judges[0], "comparison", Answer("{}", "m", "end", 1, 1), 1234)
    await pool.store.save_answer(spent)
    async with pool.open_run(round_, CONFIG, PLAN, 60) as opened:
        (line,) = await pool.store.spends()
        assert opened.budget.cap_micro_usd == line.reserved_micro_usd
        assert line.settled_micro_usd is None
        assert 500_000 < line.reserved_micro_usd < 25_000_000
    (line,) = await pool.store.spends()
    assert line.settled_micro_usd == 1234


async def test_answers_longer_than_quoted_reserve_more_under_every_cap(tmp_path: Path) -> None:
    """A run whose answers think more than was expected goes on up to the challenge's cap, and the ledger knows before."""
    pool = await open_pool(tmp_path, CLARA_BUDGET_PER_CHALLENGE_USD="2")
    round_ = challenge(5, (6000, 4000))
    card = PriceCard(3_000_000, 15_000_000, 3_000_000, 3_000_000)
    prompt = Prompt("comparison", "judge", "pair", SCHEMA, 16_384, "0x00")
    async with pool.open_run(round_, CONFIG, PLAN, 60) as opened:
        before = opened.budget.cap_micro_usd or 0
        with pytest.raises(OutOfBudget, match=r"\$2.00"):  # noqa: PT012 - until it does not fit
            while True:
                amount = await opened.budget.reserve(PLAN.judges[0], card, prompt)
                (line,) = await pool.store.spends()
                assert opened.budget.spent + opened.budget.reserved <= line.reserved_micro_usd <= 2_000_000
                opened.budget.charge(amount, amount)
        assert before < opened.budget.spent
    (line,) = await pool.store.spends()
    assert 1_600_000 < (line.settled_micro_usd or 0) <= 2_000_000


async def test_a_plan_says_how_long_answers_may_be(tmp_path: Path) -> None:
    """Room for thinking where a judge thinks, the setting as the bound, less under a small cap or a small context."""
    entries = challenge(25, (6000, 4000))
    pool = await open_pool(tmp_path)
    assert pool.affordable(entries, CONFIG, PLAN).tokens == TokenLimits(0, 16_384)
    thinker = "openai:gpt-6-luna@http://127.0.0.1:1/v1"
    pool.settings = settings(CLARA_PRICES=f"{thinker}=3/15", CLARA_ANSWER_TOKENS="65536")
    found = pool.affordable(entries, CONFIG, EvaluationPlan((thinker,)))
    assert found.tokens == TokenLimits(4_096, 16_384)
    assert pool.affordable(entries, CONFIG, EvaluationPlan(("local:smollm2",))).tokens == TokenLimits(0, 2_048)


async def test_what_may_have_been_charged_is_never_forgotten(tmp_path: Path) -> None:
    """Attempt after attempt loses calls that may have been charged: together they stay under the challenge's cap."""
    pool = await open_pool(tmp_path, CLARA_BUDGET_PER_CHALLENGE_USD="1")
    round_ = challenge(5, (6000, 4000))
    card = PriceCard(3_000_000, 15_000_000, 3_000_000, 3_000_000)
    prompt = Prompt("comparison", "judge", "pair" * 10_000, SCHEMA, 2_000, "0x00")
    worst, lost = card.worst(prompt), 0

    async def attempt() -> None:
        nonlocal lost
        async with pool.open_run(round_, CONFIG, PLAN, 60) as opened:
            assert opened.budget.spent == lost
            opened.budget.charge_unanswered(await opened.budget.reserve(PLAN.judges[0], card, prompt))
            lost += worst

    while lost + worst <= 1_000_000:
        await attempt()
    with pytest.raises(OutOfBudget):
        await attempt()
    assert lost <= 1_000_000 < lost + worst
    assert await pool.store.unsure_of(round_.run) == lost
    assert sum(line.settled_micro_usd or 0 for line in await pool.store.spends()) == lost


async def test_another_attempt_reserves_no_more_than_the_first(tmp_path: Path) -> None:
    """What is paid for is part of the quote: attempts do not add up until a cap defers the round."""
    pool = await open_pool(tmp_path)
    round_ = challenge(5, (6000, 4000))
    async with pool.open_run(round_, CONFIG, PLAN, 60) as opened:
        first = opened.budget.cap_micro_usd
    for number in range(4):
        answer = Answer("{}", "m", "end", 1, 1)
        paid = PaidAnswer(f"0x{number}", round_.run, PLAN.judges[0], "comparison", answer, 10_000)
        await pool.store.save_answer(paid)
        async with pool.open_run(round_, CONFIG, PLAN, 60) as opened:
            assert (opened.budget.spent, opened.budget.cap_micro_usd) == (10_000 * (number + 1), first)


async def test_a_finished_run_is_opened_again_on_a_full_day(tmp_path: Path) -> None:
    """Everything is answered, so posting it reserves nothing; what would need more than the day has is gone without."""
    pool = await open_pool(tmp_path, CLARA_BUDGET_PER_POSTER_DAY_USD="1.2")
    done = challenge(5, (6000, 4000))
    await pool.store.add_entry(done.run, "unanswered", "{}")
    card = PriceCard(3_000_000, 15_000_000, 3_000_000, 3_000_000)
    prompt = Prompt("features", "read", "text" * 40_000, SCHEMA, 16_384, "0x00")
    async with (
        pool.open_run(replace(done, address=done.poster), CONFIG, PLAN, 60),
        pool.open_run(done, CONFIG, PLAN, 60) as opened,
    ):
        assert len(await pool.store.spends()) == 1
        with pytest.raises(OutOfBudget) as over:
            await opened.budget.reserve(PLAN.judges[0], card, prompt)
        assert not over.value.is_lost


async def test_reading_leaves_alone_what_is_kept_for_comparisons(tmp_path: Path) -> None:
    """Half of the cap is the most that reading takes, and the planned games are paid from the rest."""
    pool = await open_pool(tmp_path, CLARA_BUDGET_PER_CHALLENGE_USD="2")
    round_ = challenge(25, (6000, 4000))
    plan = pool.affordable(round_, CONFIG, PLAN)
    assert plan.reading is not None
    assert plan.reading.micro_usd == 1_000_000
    async with pool.open_run(round_, CONFIG, plan, 60) as opened:
        kept = opened.budget.kept_micro_usd
        assert 900_000 < kept <= 1_000_000
        opened.budget.charge(0, 2_000_000 - kept)
        reading = Prompt("features", "read", "text", SCHEMA, 50, "0x00")
        card = PriceCard(3_000_000, 15_000_000, 3_000_000, 3_000_000)
        with pytest.raises(OutOfBudget, match="kept for comparisons"):
            await opened.budget.reserve(PLAN.judges[0], card, reading)
        await opened.budget.reserve(PLAN.judges[0], card, replace(reading, purpose="comparison"))


async def test_a_cap_below_entries_of_usual_size_defers_before_anything_is_asked(tmp_path: Path) -> None:
    """No entry causes it: the round waits for a larger cap, and nothing is reserved."""
    pool = await open_pool(tmp_path, CLARA_BUDGET_PER_CHALLENGE_USD="0.05")
    round_ = challenge(25, (6000, 4000))
    with pytest.raises(Deferred, match="usual size"):
        async with pool.open_run(round_, CONFIG, pool.affordable(round_, CONFIG, PLAN), 60):
            pytest.fail("the run was opened")
    assert await pool.store.spends() == []


async def test_a_poster_cannot_start_more_than_the_day_allows(tmp_path: Path) -> None:
    """Reservations of one poster's challenges together stay under the cap of the day."""
    pool = await open_pool(tmp_path, CLARA_BUDGET_PER_POSTER_DAY_USD="1.2")
    one = challenge(5, (6000, 4000))
    other = replace(one, address=one.poster)
    async with pool.open_run(one, CONFIG, PLAN, 60):
        with pytest.raises(Deferred, match="poster and day"):
            async with pool.open_run(other, CONFIG, PLAN, 60):
                pytest.fail("the second run was opened")


async def test_a_long_window_asks_claude_in_batches(tmp_path: Path) -> None:
    """With hours left and enough questions Claude gets one batch, and asking then finds every answer recorded."""
    claude = EvaluationPlan(("anthropic:claude-test",))
    prompts = [Prompt("comparison", "judge", f"pair {n}", SCHEMA, 50, "0x00") for n in range(120)]
    pool = ModelPool(settings(CLARA_PRICES=f"{claude.judges[0]}=3/15"), await SqliteStore.open(tmp_path / "store.db"))
    async with FakeEndpoint().running() as endpoint:
        pool.poll_seconds = 0.01
        pool._llms[claude.judges[0]] = AnthropicLlm("claude-test", api_key="k", base_url=endpoint.root)
        async with pool.open_run(challenge(20, (6000, 4000)), CONFIG, claude, 7 * 3600) as opened:
            asker = opened.reader(claude.judges[:1])
            await asker.prefetch(prompts)
            await asker.ask(prompts[0])
            single = [seen.path for seen in endpoint.seen if seen.path.endswith("/messages")]
            assert single == []
            assert opened.meter()[1] > 0
        await pool.close()


async def test_runs_of_one_process_share_the_calls_that_may_be_in_flight(tmp_path: Path) -> None:
    """Three runs ask the same judge at once: together never more than the setting says."""
    pool, name = await open_pool(tmp_path, CLARA_MAX_CONCURRENCY="5"), PLAN.judges[0]
    model = Model(name=name)
    model.wait = lambda: asyncio.sleep(0.002)
    pool._llms[name] = cast("Any", model)
    lines = [pool.line(name, f"31337:{run}", RunBudget(None), 60) for run in "abc"]
    prompts = [Prompt("comparison", "judge", f"pair {n}", "{}", 50, "0x00") for n in range(20)]
    await asyncio.gather(*(line.ask(prompt) for line in lines for prompt in prompts))
    assert (model.calls, model.most_at_once) == (60, 5)


async def test_a_model_that_cannot_be_built_leaves_no_reservation(tmp_path: Path) -> None:
    """A missing key is a named error, and the caps of day and month are as before."""
    pool = await open_pool(tmp_path)
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        async with pool.open_run(
            challenge(5, (6000, 4000)), CONFIG, EvaluationPlan(("anthropic:claude-sonnet-4-5",)), 60
        ):
            pytest.fail("the run was opened")
    assert await pool.store.spends() == []


@pytest.mark.parametrize("cap", ["budget_per_month_usd", "budget_per_poster_day_usd"])
async def test_a_wider_cap_alone_bounds_a_run(tmp_path: Path, cap: str) -> None:
    """Without a cap per challenge a run still reserves what it may spend, and two runs stay under the other cap."""
    pool = await open_pool(tmp_path)
    pool.settings = pool.settings.model_copy(update={**UNCAPPED, cap: 1.2})
    one = challenge(5, (6000, 4000))
    async with pool.open_run(one, CONFIG, PLAN, 60) as opened:
        (line,) = await pool.store.spends()
        assert opened.budget.cap_micro_usd == line.reserved_micro_usd
        assert line.reserved_micro_usd > 500_000
        with pytest.raises(Deferred):
            async with pool.open_run(replace(one, address=one.poster), CONFIG, PLAN, 60):
                pytest.fail("the second run was opened")


async def test_a_wider_cap_alone_refuses_what_has_no_price(tmp_path: Path) -> None:
    """A judge of unknown price is not paid under a cap of the month either."""
    pool = await open_pool(tmp_path, CLARA_PRICES="")
    pool.settings = pool.settings.model_copy(update={**UNCAPPED, "budget_per_month_usd": 350.0})
    with pytest.raises(ConfigError, match="no known price"):
        async with pool.open_run(challenge(5, (6000, 4000)), CONFIG, PLAN, 60):
            pytest.fail("the run was opened")


async def test_a_model_of_this_machine_is_asked_one_at_a_time(tmp_path: Path) -> None:
    """It answers one call after the other, so calls do not spend their time limit in its queue."""
    pool = await open_pool(tmp_path, CLARA_MAX_CONCURRENCY="64")
    pool._llms["local:smollm2"] = OpenAiLlm("smollm2", api_key="k", base_url="http://127.0.0.1:1/v1")
    line = pool.line("local:smollm2", "r", RunBudget(None), 60)
    for _ in range(20):
        line.llm.gate.answered()
    assert line.llm.gate.limit == 1
    await pool.close()


async def test_a_batch_of_an_earlier_run_is_collected_when_time_is_short(tmp_path: Path) -> None:
    """A restart with little time left finds the answers of the batch it paid for, and makes no single call for them."""
    claude = EvaluationPlan(("anthropic:claude-test",))
    prompts = [Prompt("comparison", "judge", f"pair {n}", SCHEMA, 50, "0x00") for n in range(120)]
    store = await SqliteStore.open(tmp_path / "store.db")
    pool = ModelPool(settings(CLARA_PRICES=f"{claude.judges[0]}=3/15"), store)
    round_ = challenge(20, (6000, 4000))
    async with FakeEndpoint().running() as endpoint:
        pool.poll_seconds = 0.01
        pool._llms[claude.judges[0]] = AnthropicLlm("claude-test", api_key="k", base_url=endpoint.root)
        endpoint.batch_polls_needed = 10**9
        async with pool.open_run(round_, CONFIG, claude, 7 * 3600) as opened:
            looking = asyncio.create_task(_prefetch(opened, prompts))
            while not endpoint.batches:  # noqa: ASYNC110 - the provider tells nobody
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking
        endpoint.batch_polls_needed = 0
        async with pool.open_run(round_, CONFIG, claude, 600) as opened:
            await _prefetch(opened, prompts)
            await opened.reader(claude.judges[:1]).ask(prompts[0])
        await pool.close()
    assert len(endpoint.batches) == 1
    assert [seen.path for seen in endpoint.seen if seen.path.endswith("/messages")] == []
    paid = sum(cost or 0 for _, _, cost in await store.calls_of(round_.run))
    (line,) = await store.spends()
    assert line.settled_micro_usd == paid > 0, "a batch that was given up once and collected later counts once"


async def _prefetch(opened: RunModels, prompts: list[Prompt]) -> None:
    asker = opened.reader(["anthropic:claude-test"])
    await asker.prefetch(prompts)
