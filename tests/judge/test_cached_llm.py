"""Asking through outages: once per distinct request, within the time, at the pace the provider bears."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.model_calls import Book, Clock, Model

from clara_eval.core.errors import BadAnswer, ConfigError, OutOfBudget, Temporary
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.judge import structured_llm
from clara_eval.judge.costs.budgets import FREE, PriceCard, RunBudget
from clara_eval.judge.port import (
    Answer,
    JudgeDown,
    OutOfTime,
    PaidAnswer,
    Prompt,
    RateLimited,
    Unanswered,
    request_hash,
)
from clara_eval.judge.retrying_llm import CONTROL, MOST_BEYOND_LIMIT, CircuitBreaker, Gate, RetryingLlm, RetryPolicy
from clara_eval.judge.structured_llm import READ_AT_ONCE, CachedLlm, FallbackLlm, StructuredLlm

CARD = PriceCard(1_000_000, 1_000_000, 1_000_000, 1_000_000)


def _prompt(number: int = 0) -> Prompt:
    return Prompt("comparison", "judge", f"pair {number}", "{}", 50, "0x00")


def _line(
    model: Model, book: Book | None = None, run: str = "r", most: int = 64, **options: Any
) -> tuple[CachedLlm, Book, Clock]:
    book, clock = book or Book(), Clock()
    settings = {"budget": RunBudget(None), "card": FREE, "gate": Gate(most, clock=clock), **options}
    return CachedLlm(RetryingLlm(model, sleep=clock.sleep, **settings), book, run), book, clock


async def test_an_answer_is_saved_and_never_asked_for_again() -> None:
    """The same request is paid for once, also by another process with the same book; another attempt is another one."""
    model = Model()
    line, book, _ = _line(model)
    first = await line.ask(_prompt())
    assert first == await line.ask(_prompt()) == book.kept[request_hash("openai:test", _prompt())]
    second, _, _ = _line(model, book)
    assert await second.ask(_prompt()) == first
    assert model.calls == 1
    await second.ask(_prompt(), 1)
    assert model.calls == 2


async def test_equal_requests_at_the_same_time_share_one_call() -> None:
    """Fifty callers with ten different prompts make ten calls."""
    model = Model()
    line, _, _ = _line(model)
    answers = await asyncio.gather(*(line.ask(_prompt(number % 10)) for number in range(50)))
    assert model.calls == 10
    assert [paid.answer.text for paid in answers] == [f"answer to pair {number % 10}" for number in range(50)]


async def test_a_cancelled_caller_does_not_take_the_others_with_it() -> None:
    """If the caller that holds a request is cancelled, the next one that waits for it asks itself."""
    model = Model()
    held = asyncio.Event()
    model.wait = held.wait
    line, _, _ = _line(model, budget=(budget := RunBudget(None)), card=CARD)
    first = asyncio.create_task(line.ask(_prompt()))
    second = asyncio.create_task(line.ask(_prompt()))
    await asyncio.sleep(0.01)
    first.cancel()
    held.set()
    assert (await second).answer.text == "answer to pair 0"
    with pytest.raises(asyncio.CancelledError):
        await first
    assert line.llm.gate.in_flight == 0
    assert budget.lost > 0, "the cancelled call may have been charged"


async def test_prefetch_needs_few_questions() -> None:
    """After a bulk look-up neither the answered nor the unanswered requests are looked up one by one."""
    model = Model()
    line, book, _ = _line(model)
    for number in range(0, 100, 2):
        await line.ask(_prompt(number))
    again, _, _ = _line(model, book)
    book.queries = 0
    again.expect([_prompt(number) for number in range(100)])
    await asyncio.gather(*(again.ask(_prompt(number)) for number in range(100)))
    assert book.queries == 1
    assert model.calls == 100


async def test_nothing_of_a_large_batch_stays_behind() -> None:
    """When a batch is answered, the line holds no table that had room for all of it."""
    count = 2000
    line, _, _ = _line(Model())
    tracemalloc.start()
    try:
        line.expect([_prompt(number) for number in range(count)])
        for number in range(count):
            await line.ask(_prompt(number))
        gc.collect()
        own = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(inclusive=True, filename_pattern=structured_llm.__file__)]
        )
    finally:
        tracemalloc.stop()
    tables = [one for one in own.statistics("lineno") if one.count < 10]
    assert sum(one.size for one in tables) < 4 * count, [str(one) for one in tables]


async def test_many_recorded_answers_are_read_as_their_turn_comes() -> None:
    """A walk that goes on after thousands of answers holds a thousand of them at a time, and asks a few questions."""
    held: list[int] = []

    class CountingBook(Book):
        """Gives copies out, and counts those that somebody still holds."""

        async def answers(self, requests: Sequence[str]) -> dict[str, PaidAnswer]:
            await asyncio.sleep(0)
            found = await super().answers(requests)
            given = {request: replace(paid, run="copy") for request, paid in found.items()}
            gc.collect()
            held.append(sum(isinstance(one, PaidAnswer) and one.run == "copy" for one in gc.get_objects()))
            return given

    count = 4 * READ_AT_ONCE
    line, book, _ = _line(model := Model())
    for number in range(count):
        await line.ask(_prompt(number))
    counted = CountingBook()
    counted.kept = book.kept
    again, _, _ = _line(model, counted)
    again.expect([_prompt(number) for number in range(2 * count)])
    waiting = iter(range(count))

    async def work() -> None:
        for number in waiting:
            assert (await again.ask(_prompt(number))).run == "copy"

    await asyncio.gather(*(work() for _ in range(64)))
    assert model.calls == count
    assert counted.queries <= 1 + 2 * count / READ_AT_ONCE
    assert max(held) <= 2 * READ_AT_ONCE


async def test_a_second_look_finds_what_others_answered_since() -> None:
    """What was missing at the first bulk look-up and is there at the second is not paid for again."""
    line, book, _ = _line(model := Model())
    line.expect([_prompt()])
    theirs = await _line(Model(), book)[0].ask(_prompt())
    line.expect([_prompt()])
    assert await line.ask(_prompt()) == theirs
    assert model.calls == 0


async def test_outages_are_waited_out() -> None:
    """Two failures and then an answer: the pauses grow, with jitter, and the answer counts."""
    model = Model(lambda number: Temporary("500") if number < 2 else None)
    line, _, clock = _line(model)
    await line.ask(_prompt())
    assert model.calls == 3
    assert 0.25 <= clock.slept[0] <= 0.5 <= clock.slept[1] <= 1.0


async def test_whoever_watches_hears_of_every_call() -> None:
    """A rate limit, an outage, an answer and a refusal are told with their purpose and time; a reused answer is no call."""
    script = [RateLimited("429", retry_after_seconds=5), Temporary("500"), None, ConfigError("401")]
    told: list[tuple[str, str, str]] = []
    spent: list[float] = []

    def watch(llm: str, purpose: str, result: str, seconds: float) -> None:
        told.append((llm, purpose, result))
        spent.append(seconds)

    model = Model(lambda number: script[number])
    line, _, clock = _line(model, on_call=watch)
    model.wait = lambda: clock.sleep(2)
    await line.ask(_prompt())
    await line.ask(_prompt())
    with pytest.raises(ConfigError):
        await line.ask(_prompt(1))
    results = ["rate_limited", "failed", "end", "refused"]
    assert told == [("openai:test", "comparison", result) for result in results]
    assert spent == [2, 2, 2, 2]


async def test_a_judge_that_never_answers_is_a_named_failure() -> None:
    """The tries are bounded, and the error names the judge, the number of tries and the last reason."""
    model = Model(lambda _: Temporary("it says 500"))
    line, book, _ = _line(model)
    with pytest.raises(Temporary, match=r"openai:test gave no answer.*6 tries: it says 500"):
        await line.ask(_prompt())
    assert (model.calls, book.kept) == (6, {})


async def test_one_deadline_for_everything() -> None:
    """A pause that would end after the deadline is not begun: the caller hears at once that the time is over."""
    model = Model(lambda _: RateLimited("429", retry_after_seconds=60))
    line, _, clock = _line(model, policy=RetryPolicy(deadline=1050.0))
    with pytest.raises(OutOfTime):
        await line.ask(_prompt())
    assert clock.now < 1050


async def test_a_long_pause_is_not_sat_out() -> None:
    """A provider that asks for an hour: the run ends at once and says for how long; another judge takes over."""
    model = Model(lambda _: RateLimited("429", retry_after_seconds=3600))
    line, book, clock = _line(model, policy=RetryPolicy(deadline=100_000.0))
    for _ in range(3):
        with pytest.raises(JudgeDown) as waits:
            await line.ask(_prompt())
        assert waits.value.retry_after_seconds == pytest.approx(3600, abs=1)
    assert (model.calls, sum(clock.slept), book.kept) == (1, 0, {})
    other, _, _ = _line(Model(name="openai:other"))
    assert (await FallbackLlm([line, other]).ask(_prompt())).llm == "openai:other"


async def test_nothing_is_asked_or_charged_after_the_deadline() -> None:
    """A caller whose turn comes when the time is over makes no call, and its reservation is given back."""
    budget = RunBudget(cap_micro_usd=10_000)
    line, _, clock = _line(model := Model(), budget=budget, card=CARD, policy=RetryPolicy(deadline=1050.0))
    clock.now = 1050.0
    with pytest.raises(OutOfTime):
        await line.ask(_prompt())
    assert (model.calls, budget.spent, budget.reserved, line.llm.gate.in_flight) == (0, 0, 0, 0)


async def test_a_slow_answer_ends_with_the_call_limit() -> None:
    """A call that drips or hangs is cut off in full time, and so is the control; all count as possibly charged."""
    model = Model()
    model.wait = lambda: asyncio.sleep(30)
    budget = RunBudget(None)
    line, _, _ = _line(model, budget=budget, card=CARD, policy=RetryPolicy(call_seconds=0.01, tries=2))
    with pytest.raises(Temporary, match="in time"):
        await line.ask(_prompt())
    control = CARD.worst(replace(_prompt(), user=CONTROL))
    assert budget.lost == 2 * CARD.worst(_prompt()) + control


async def test_retry_after_holds_everybody() -> None:
    """After a 429 with a waiting time no caller of this judge calls before it is over."""
    clock_at_call: list[float] = []
    model = Model(lambda number: RateLimited("429", retry_after_seconds=20) if number == 0 else None)
    line, _, clock = _line(model)

    async def note() -> None:
        clock_at_call.append(clock.now)
        await asyncio.sleep(0)

    model.wait = note
    await line.ask(_prompt(0))
    await asyncio.gather(*(line.ask(_prompt(number)) for number in range(1, 30)))
    assert clock_at_call[0] == 1000
    assert min(clock_at_call[1:]) >= 1020


async def test_whoever_waits_for_a_judge_that_is_down_keeps_no_place() -> None:
    """Two runs share one place: while the judge is down for the first, the second gets its answers."""
    gate = Gate(1, clock=lambda: 1000.0)
    down, well = Model(lambda _: Temporary("503")), Model()
    first, _, _ = _line(down, gate=gate, policy=RetryPolicy(deadline=1600))
    second, _, _ = _line(well, gate=gate, run="s")
    seen: list[int] = []

    async def answer_others(_seconds: float) -> None:
        seen.append(gate.in_flight)
        await second.ask(_prompt(len(seen)))

    first.llm.sleep = answer_others
    with pytest.raises(Temporary):
        await first.ask(_prompt())
    assert seen == [0] * len(seen)
    assert (well.calls, len(seen) > 3) == (len(seen), True)


async def test_the_pace_adapts() -> None:
    """It starts with eight at once, grows to the most allowed, and halves once per round of rate limits."""
    model = Model()
    model.wait = lambda: asyncio.sleep(0.001)
    line, _, _ = _line(model, most=32)
    await asyncio.gather(*(line.ask(_prompt(number)) for number in range(8)))
    assert model.most_at_once == 8
    await asyncio.gather(*(line.ask(_prompt(number)) for number in range(8, 300)))
    assert model.most_at_once == 32
    model.script = lambda number: RateLimited("429") if number < 300 + 32 else None
    await asyncio.gather(*(line.ask(_prompt(number)) for number in range(300, 332)))
    assert 8 <= line.llm.gate.limit < 32
    assert line.llm.gate.in_flight == 0


def test_the_breaker() -> None:
    """It opens after several failures in a row, lets one probe through, doubles its pause, and closes on an answer."""
    breaker = CircuitBreaker(open_after=3)
    for _ in range(2):
        breaker.failed(0, probe=breaker.begin())
    assert not breaker.is_open
    breaker.failed(0, probe=breaker.begin())
    assert (breaker.is_open, breaker.wait(0), breaker.wait(1.5)) == (True, 2.0, 0.5)
    assert breaker.wait(2) == 0
    probe = breaker.begin()
    assert probe
    assert breaker.wait(2) > 0, "only one probe at a time"
    breaker.failed(2, probe=False)
    assert breaker.wait(2) > 0, "a call from before says nothing about the probe"
    breaker.failed(2, probe=True)
    assert breaker.wait(2) == 4.0
    breaker.begin()
    breaker.abandoned(probe=True)
    assert breaker.wait(6) == 0, "a probe that was given up makes room for the next"
    breaker.answered()
    assert (breaker.is_open, breaker.wait(6), breaker.failures) == (False, 0, 0)


async def test_a_long_outage_is_survived_with_few_calls() -> None:
    """While the judge is down only probes are sent; when it is back, everything is answered."""
    line, _, clock = _line(model := Model(), policy=RetryPolicy(tries=12))
    model.script = lambda _: Temporary("down") if clock.now < 1030 else None
    answers = await asyncio.gather(*(line.ask(_prompt(number)) for number in range(40)))
    assert len(answers) == 40
    assert model.calls < 40 + 25


async def test_gate_places_survive_cancellation() -> None:
    """A caller cancelled while it waits, or just as it is let in, leaves no place taken."""
    gate = Gate(1, clock=lambda: 0.0)
    await gate.enter()
    waiting = [asyncio.create_task(gate.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    gate.leave()
    waiting[1].cancel()
    await asyncio.sleep(0)
    await asyncio.wait_for(waiting[2], 1)
    gate.leave()
    assert gate.in_flight == 0


async def test_what_patience_does_not_cure_is_raised_at_once() -> None:
    """A wrong key is not tried again."""
    line, _, _ = _line(model := Model(lambda _: ConfigError("wrong key")))
    with pytest.raises(ConfigError):
        await line.ask(_prompt())
    assert model.calls == 1


async def test_a_prompt_the_provider_does_not_take_is_a_recorded_refusal() -> None:
    """It is asked once, costs nothing, is found again after a restart, and leaves the other questions their answers."""
    budget = RunBudget(cap_micro_usd=10_000)
    model = Model(lambda number: BadAnswer("too long") if number == 0 else None)
    line, book, _ = _line(model, budget=budget, card=CARD)
    refused = await line.ask(_prompt(0))
    assert (refused.answer.stop, refused.answer.text, refused.cost_micro_usd) == ("refusal", "too long", 0)
    assert (await line.ask(_prompt(1))).answer.stop == "end"
    assert await _line(model, book)[0].ask(_prompt(0)) == refused
    assert (model.calls, budget.spent, budget.reserved) == (3, 30, 0), "one more, to see whether it answers at all"


async def test_prompts_that_are_never_taken_are_no_value_and_no_crash() -> None:
    """What a provider refuses while it answers others is no value: the reason says it, with every request made."""
    line, book, _ = _line(Model(lambda number: None if number == 1 else BadAnswer("filtered")))
    asked = await StructuredLlm(line).ask(_prompt(), str, tries=1)
    assert (asked.value, asked.outage) == (None, None)
    assert asked.reason.endswith("The question was refused: filtered")
    assert set(asked.requests) < set(book.kept)


async def test_a_model_that_refuses_everything_is_an_outage() -> None:
    """Nothing is recorded, no question is asked for ever, and a model that comes back answers within the same ask."""
    line, book, _ = _line(model := Model(lambda _: BadAnswer("filtered")))
    asked = await StructuredLlm(line).ask(_prompt(), str)
    assert isinstance(asked.outage, Temporary)
    assert "refuses every question: filtered" in asked.reason
    assert not book.kept
    assert model.calls <= 2 * RetryPolicy().tries
    healed, _, clock = _line(Model(lambda number: BadAnswer("filtered") if number < 5 else None))
    assert (await healed.ask(_prompt())).answer.stop == "end"
    assert clock.now < 1030


async def test_many_questions_that_are_all_refused_cost_one_probe() -> None:
    """Callers do not each ask whether the model refuses everything, and none of their answers is kept."""
    model = Model(lambda _: BadAnswer("filtered"))
    line, book, _ = _line(model, policy=RetryPolicy(tries=1, most_probes=1))
    asked = await asyncio.gather(*(line.ask(_prompt(n)) for n in range(40)), return_exceptions=True)
    assert all(isinstance(one, Temporary) for one in asked)
    assert not book.kept
    assert model.calls == 41


async def test_a_refusal_is_passed_on_to_the_next_model() -> None:
    """What the first reader refuses the second one answers, and only its answer is recorded."""
    first, second = Model(lambda _: BadAnswer("filtered")), Model(name="openai:other")
    line, book, _ = _line(first)
    other, _, _ = _line(second, book)
    paid = await FallbackLlm([line, other]).ask(_prompt())
    assert (paid.llm, first.calls, second.calls, len(book.kept)) == ("openai:other", 1, 1, 1)


async def test_a_wrong_key_is_not_tried_for_every_pair() -> None:
    """After the first refusal of the key every further request fails without a call."""
    line, _, _ = _line(model := Model(lambda _: ConfigError("wrong key")))
    for number in range(5):
        with pytest.raises(ConfigError):
            await line.ask(_prompt(number))
    assert model.calls == 1


async def test_the_cap_stops_the_calls() -> None:
    """When the budget is empty the request is deferred, and no call is made for it."""
    budget = RunBudget(cap_micro_usd=CARD.worst(_prompt()) + 15)
    line, _, _ = _line(model := Model(), budget=budget, card=CARD)
    paid = await line.ask(_prompt(0))
    assert paid.cost_micro_usd == 15
    await line.ask(_prompt(1))
    with pytest.raises(OutOfBudget):
        await line.ask(_prompt(2))
    assert (model.calls, budget.spent, line.llm.gate.in_flight) == (2, 30, 0)


async def test_a_stumbling_store_does_not_lose_a_paid_answer() -> None:
    """Saving is tried again; the model is not."""
    line, book, _ = _line(model := Model())
    book.stumbles = 3
    await line.ask(_prompt())
    assert (model.calls, len(book.kept)) == (1, 1)


async def test_a_store_that_stays_down_does_not_make_us_pay_again() -> None:
    """When a paid answer cannot be saved at all the request fails, and the model is not asked a second time for it."""
    line, book, _ = _line(model := Model())
    book.stumbles = 10**6
    with pytest.raises(Temporary, match="locked"):
        await line.ask(_prompt())
    assert (model.calls, book.kept) == (1, {})


async def test_a_caller_cancelled_while_its_answer_is_saved_leaves_it_saved() -> None:
    """The answer is paid for: it is in the book when the cancelled caller is gone."""
    saving, go_on = asyncio.Event(), asyncio.Event()

    class SlowBook(Book):
        async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
            saving.set()
            await go_on.wait()
            return await super().save_answer(paid)

    line, book, _ = _line(Model(), SlowBook())
    caller = asyncio.create_task(line.ask(_prompt()))
    await saving.wait()
    caller.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert list(book.kept) == [request_hash("openai:test", _prompt())]


async def test_the_next_judge_takes_over() -> None:
    """The answer is recorded under the judge that gave it, and a restart finds it before it asks the first again."""
    book = Book()
    down, up = Model(lambda _: Temporary("down"), "openai:first"), Model(name="openai:second")
    lines = [_line(down, book, policy=RetryPolicy(tries=2))[0], _line(up, book)[0]]
    asker = FallbackLlm(lines)
    paid = await asker.ask(_prompt())
    assert paid.llm == "openai:second"
    calls = down.calls
    again = FallbackLlm([_line(down, book)[0], _line(up, book)[0]])
    assert await again.ask(_prompt()) == paid
    assert (down.calls, up.calls) == (calls, 1)


async def test_a_judge_that_is_down_is_passed_over_quickly() -> None:
    """Once the breaker is open the first judge is not waited for."""
    book = Book()
    down, up = Model(lambda _: Unanswered("down"), "openai:first"), Model(name="openai:second")
    first, _, clock = _line(down, book)
    asker = FallbackLlm([first, _line(up, book)[0]])
    for number in range(40):
        await asker.ask(_prompt(number))
    assert up.calls == 40
    assert down.calls <= 20
    assert first.llm.breaker.is_open
    assert clock.now < 1100


async def test_a_judge_that_stays_down_sits_the_run_out() -> None:
    """After enough failed probes every further request fails at once, so that a dead judge cannot hold a jury."""
    dead = Model(lambda _: Temporary("down"))
    line, _, _ = _line(dead, policy=RetryPolicy(tries=20, most_probes=2))
    with pytest.raises(JudgeDown):
        await line.ask(_prompt(1))
    asked = dead.calls
    with pytest.raises(JudgeDown, match="2 probes in a row"):
        await line.ask(_prompt(2))
    assert dead.calls == asked


@pytest.mark.parametrize("attempt", [0, 2])
def test_a_request_hash_covers_the_whole_request(attempt: int) -> None:
    """It is the SHA-256 of one plain JSON document of all fields, as anybody can recompute it."""
    prompt = Prompt("comparison", 'Judge "é".', 'A: 1, B: "2" \\ 漢 }', '{"type":"object"}', 200, "0x00")
    body = {
        "llm": "openai:m",
        "purpose": "comparison",
        "system": prompt.system,
        "user": prompt.user,
        "schema": prompt.schema_json,
        "maxTokens": 200,
        "attempt": attempt,
    }
    assert request_hash("openai:m", prompt, attempt) == sha256_hex(plain_json(body).encode())


async def test_a_prompt_that_alone_takes_too_long_is_cut_and_no_outage() -> None:
    """Where others are answered meanwhile, a question that never ends is recorded as cut, after two tries."""
    model = Model()

    async def answer(prompt: Prompt) -> Answer:
        if prompt.user == "bomb":
            await asyncio.sleep(30)
        return Answer("{}", "m", "end", 1, 1)

    model.complete = answer  # type: ignore[method-assign]
    budget = RunBudget(None)
    line, _, _ = _line(model, budget=budget, card=CARD, policy=RetryPolicy(call_seconds=0.02))
    bomb = replace(_prompt(), user="bomb", max_tokens=0)
    paid = await line.ask(bomb)
    assert (paid.answer.stop, paid.cost_micro_usd) == ("max_tokens", 0)
    assert budget.lost == 2 * CARD.worst(bomb)


async def test_thinking_beyond_the_limit_is_reserved_once_it_was_seen() -> None:
    """An endpoint whose limit leaves thinking out: the next call reserves twice the largest excess, up to a bound."""
    model = Model()
    used = iter([150, 10**6, 50, 50])

    async def answer(prompt: Prompt) -> Answer:
        return Answer("{}", prompt.user, "end", 1, next(used))

    model.complete = answer  # type: ignore[method-assign]
    reserved: list[int] = []

    class Watched(RunBudget):
        async def reserve(self, judge: str, card: PriceCard | None, prompt: Any, wait: float = 60) -> int:
            reserved.append(prompt.max_tokens)
            return await super().reserve(judge, card, prompt, wait)

    line, _, _ = _line(model, budget=Watched(None), card=CARD)
    for number in range(3):
        await line.ask(replace(_prompt(), user=f"{number}", max_tokens=50))
    assert reserved == [50, 250, 50 + MOST_BEYOND_LIMIT]
