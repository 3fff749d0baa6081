"""From a comparison to the provider: few frames, no recursion, and a stated longest wait."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.support.model_calls import Book, Clock, Model
from tests.support.scripted_llm import verdict_text

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.errors import Temporary
from clara_eval.judge.comparison import ModelJudge, make_vector
from clara_eval.judge.costs.budgets import FREE, RunBudget
from clara_eval.judge.port import Answer, PaidAnswer, Prompt, RateLimited, ServerFailed, TooSlow
from clara_eval.judge.reading import TokenLimits
from clara_eval.judge.retrying_llm import CONTROL, Gate, RetryingLlm, RetryPolicy
from clara_eval.judge.structured_llm import AnswerLog, CachedLlm, StructuredLlm

MOST_FRAMES = 5
"""`compare`, the question, the cache, the retry, and the provider's `complete`."""
SCHEMA = FeatureSchema((Feature("level", "integer", min=0, max=9, better="higher"),))
PROMPT = Prompt("comparison", "judge", "pair", '{"required":["winner"]}', 50, "0x00")


class Provider:
    """Notes the functions of the product on the stack, itself included, whenever it is called."""

    name = "openai:frames"

    def __init__(self, said: str = "", control: str = '{"winner": "A"}') -> None:
        self.said, self.control = said, control
        self.users: list[str] = []
        self.stacks: list[list[str]] = []

    async def complete(self, prompt: Prompt) -> Answer:
        ours = [frame.function for frame in inspect.stack()[1:] if "/clara_eval/" in frame.filename]
        self.stacks.append(["complete", *ours])
        self.users.append(prompt.user)
        said = self.control if prompt.user == CONTROL else self.said
        return Answer(said, "m", "end", 1, 1)


def cached(provider: Provider | Model, **options: Any) -> tuple[CachedLlm, Clock]:
    clock = Clock()
    settings = {"gate": Gate(clock=clock), "sleep": clock.sleep, **options}
    return CachedLlm(RetryingLlm(provider, RunBudget(None), FREE, **settings), Book(), "r"), clock


async def test_five_frames_from_a_comparison_to_the_provider() -> None:
    """Limits, the log of answers, the cache and the retry add one frame each at most."""
    provider, kept = Provider(verdict_text("B", 0.7)), list[PaidAnswer]()
    llm = StructuredLlm(cached(provider)[0], TokenLimits(4_096, 16_384), log=AnswerLog(kept.append, {}))
    one, two = (make_vector(SCHEMA, {"level": level}) for level in (1, 2))
    decision = await ModelJudge(llm, "Higher is better.", SCHEMA).compare(one, two)
    assert decision.value
    assert [paid.request for paid in kept] == list(decision.requests)
    [stack] = provider.stacks
    assert stack[-1] == "compare"
    assert len(stack) <= MOST_FRAMES, stack


async def test_a_probe_of_a_garbled_provider_is_no_recursion() -> None:
    """Too many unparsable answers make a probe; no function is on the stack twice."""
    provider = Provider("words")
    line, _ = cached(provider)
    for number in range(5):
        await line.ask(PROMPT, number)
    assert len(provider.stacks) > 5, "a probe was sent"
    for stack in provider.stacks:
        assert max(Counter(name for name in stack if name != "complete").values()) == 1, stack
        assert stack.count("complete") == 2, "the provider's and the retrying model's"


async def test_a_garbled_provider_gets_no_equal_request_twice() -> None:
    """After a probe that is unparsable too, each prompt is sent once and no probe follows, until an answer makes sense."""
    provider = Provider("words", control="words")
    line, _ = cached(provider)
    for number in range(3, 9):
        with suppress(Temporary):
            await line.ask(replace(PROMPT, user=f"pair {number}"))
    assert len(set(provider.users)) == len(provider.users), provider.users
    provider.said = '{"winner": "A"}'
    assert (await line.ask(PROMPT)).answer.text == provider.said


def worst_case_seconds(policy: RetryPolicy) -> float:
    """The longest time until `CachedLlm.ask` returns or raises, but for the store's own time to save."""
    return policy.ask_seconds + sum(policy.first_pause_seconds * number for number in range(1, policy.tries))


@pytest.mark.parametrize(
    "bad",
    [
        lambda: RateLimited("429", retry_after_seconds=60),
        lambda: Temporary("503", retry_after_seconds=60),
        lambda: ServerFailed("500"),
        lambda: TooSlow("late"),
    ],
)
async def test_no_request_takes_longer_than_the_worst_case_of_its_policy(bad: Callable[[], Temporary]) -> None:
    """Calls that use all of their time, each with the longest pause after it, end before the stated wait."""
    policy = RetryPolicy(tries=100)
    model = Model(lambda _: bad())
    line, clock = cached(model, policy=policy)
    model.wait = lambda: clock.sleep(policy.call_seconds)
    began = clock.now
    with pytest.raises(Temporary):
        await line.ask(PROMPT)
    assert clock.now - began <= worst_case_seconds(policy)


async def test_waiting_for_a_place_ends_too() -> None:
    """A gate whose only place is never given back does not hold a request beyond its time."""
    gate = Gate(1, clock=lambda: 0.0)
    await gate.enter()
    line, _ = cached(model := Model(), gate=gate, policy=RetryPolicy(ask_seconds=0.05))
    with pytest.raises(Temporary, match="no call slot became free"):
        await line.ask(PROMPT)
    assert (model.calls, gate.in_flight) == (0, 1)


def test_the_worst_case_is_half_an_hour() -> None:
    """The number that the operator's page states."""
    assert worst_case_seconds(RetryPolicy()) == 1807.5
    assert RetryPolicy(deadline=500.0).ends_at(100.0) == 500.0
