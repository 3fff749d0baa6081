"""Limits that grow: what is asked next follows from the answers, thinking is never read, and there is an end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.scripted_llm import MemoryAsker, ScriptedLlm

from clara_eval.core.errors import BadAnswer, Temporary
from clara_eval.judge.costs.budgets import EntryShare
from clara_eval.judge.port import Answer, AnswerCut, Prompt, request_hash
from clara_eval.judge.reading import TokenLimits, is_cut, read_completion, without_thinking
from clara_eval.judge.structured_llm import StructuredLlm

LIMITS = TokenLimits(thinking=4_096, most=16_384)
PROMPT = Prompt("comparison", "system", "user", "{}", 400, "0x")
REAL = '{"winner": "B"}'
FALSE = '{"winner": "A"}'


def said(text: str = REAL, stop: str = "end", out: int = 10) -> Answer:
    return Answer(text, "m", stop, 1, out)  # type: ignore[arg-type]  # any of the three


def growing(answer: Callable[[Prompt], Answer], limits: TokenLimits = LIMITS, **more: object) -> StructuredLlm:
    return StructuredLlm(MemoryAsker(ScriptedLlm(answer)), limits, **more)  # type: ignore[arg-type]


def needing(tokens: int) -> Callable[[Prompt], Answer]:
    return lambda prompt: said() if prompt.max_tokens >= tokens else said("", "max_tokens", prompt.max_tokens)


@given(st.integers(0, 40_000), st.integers(0, 40_000), st.integers(1, 9), st.integers(1, 5_000))
def test_limits_grow_to_the_bound_and_end(thinking: int, most: int, growth: int, bare: int) -> None:
    """Each limit is larger than the one before, none is below the bare answer, and none is beyond the bound for it."""
    found = TokenLimits(thinking, most, growth).all(bare)
    assert all(one < other for one, other in pairwise(found))
    assert found[0] >= bare
    assert found[-1] <= max(bare, most)
    assert growth == 1 or found[-1] == max(bare, most)


async def test_a_cut_answer_is_asked_for_with_a_larger_limit() -> None:
    """Every request has its own hash, all of them are told, and none of the words changes."""
    asker = growing(needing(10_000))
    asked = await asker.ask(PROMPT, json.loads)
    limits = (4_496, 16_384)
    assert asked.value == {"winner": "B"}
    assert asked.requests == tuple(request_hash("scripted:model", replace(PROMPT, max_tokens=n)) for n in limits)


async def test_a_cut_at_the_bound_is_our_outage() -> None:
    """No other attempt follows, the reason names the limit and the setting, and asking later asks for nothing new."""
    llm = ScriptedLlm(needing(10**6))
    asker = StructuredLlm(MemoryAsker(llm), LIMITS)
    for _ in range(2):
        asked = await asker.ask(PROMPT, json.loads)
        assert isinstance(asked.outage, AnswerCut)
        assert "16,384 tokens" in asked.reason
        assert "CLARA_ANSWER_TOKENS" in asked.reason
        assert len(asked.requests) == len(llm.seen) == 2


async def test_an_outage_after_a_cut_keeps_the_cut_answers_request() -> None:
    """What was paid for before the outage is among the requests, as in the trace's answers."""

    def answer(prompt: Prompt) -> Answer:
        if prompt.max_tokens > 4_496:
            raise Temporary("It is away.")
        return said("", "max_tokens")

    asker = MemoryAsker(ScriptedLlm(answer))
    found = await StructuredLlm(asker, LIMITS).ask(PROMPT, json.loads)
    assert (found.value, found.requests) == (None, tuple(asker.book))
    assert len(found.requests) == 1


async def test_an_unusable_answer_is_asked_for_again_from_the_first_limit() -> None:
    """Only cuts grow the limit: words that cannot be read are asked for again, as before."""

    def read(_text: str) -> None:
        raise BadAnswer("no")

    llm = ScriptedLlm(lambda _: said("what?"))
    await StructuredLlm(MemoryAsker(llm), LIMITS).ask(PROMPT, read)
    assert [prompt.max_tokens for prompt in llm.seen] == [4_496] * 3


@pytest.mark.parametrize(
    ("context", "asked", "is_answered"),
    [(1_000, [4_496, 400], True), (100, [4_496, 400], False), (10_000, [4_496], True)],
)
async def test_room_that_does_not_fit_the_context_is_given_up(
    context: int, asked: list[int], is_answered: bool
) -> None:
    """A provider that refuses the room for thinking is asked for the bare answer; if it refuses that, it refused."""
    llm = ScriptedLlm(lambda p: said() if p.max_tokens <= context else said("too long", "refusal", 0))
    found = await StructuredLlm(MemoryAsker(llm), LIMITS).ask(PROMPT, json.loads, tries=1)
    assert [prompt.max_tokens for prompt in llm.seen] == asked
    assert found.value == ({"winner": "B"} if is_answered else None)
    assert is_answered or "refused" in found.reason


async def test_more_room_that_is_refused_after_a_cut_is_a_cut() -> None:
    """The model's context is too small for its thinking: that is no refusal of the entry."""
    llm = ScriptedLlm(lambda p: said("", "max_tokens") if p.max_tokens < 2_000 else said("too long", "refusal", 0))
    found = await StructuredLlm(MemoryAsker(llm), TokenLimits(0, 16_384)).ask(PROMPT, json.loads)
    assert isinstance(found.outage, AnswerCut)
    assert [prompt.max_tokens for prompt in llm.seen] == [400, 1_600, 6_400]


async def test_the_next_reader_takes_over_where_one_cannot_end() -> None:
    """A jury of two readers reads what the first thinks about without end."""
    other = MemoryAsker(ScriptedLlm(lambda _: said(), name="scripted:other"))
    found = await growing(needing(10**6), others=(other,)).ask(PROMPT, json.loads)
    assert found.value == {"winner": "B"}
    assert found.requests[-1:] == tuple(other.book)
    assert len(found.requests) == 3


async def test_all_answers_about_one_entry_are_bounded_together() -> None:
    """Many parts that each use nearly a whole limit end as cut after twice what one question can use."""

    def long_thought(prompt: Prompt) -> Answer:
        return said(out=prompt.max_tokens)

    shared = growing(long_thought)
    entry = replace(shared, share=EntryShare(None, 0, 0))
    for number in range(10):
        assert (await entry.ask(replace(PROMPT, user=f"part {number}"), json.loads)).value
    cut = await entry.ask(replace(PROMPT, user="part 10"), json.loads)
    assert isinstance(cut.outage, AnswerCut)
    assert "for one entry" in cut.reason
    assert (await shared.ask(PROMPT, json.loads)).value == {"winner": "B"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (REAL, REAL),
        (f"<think>{FALSE}</think>{REAL}", REAL),
        (f"\n<think>\nif {FALSE} then\n</think>\n\n{REAL}", f"\n\n{REAL}"),
        (f"thoughts {FALSE} </think>{REAL}", REAL),
        (f"<think>the text says </think>{FALSE} which is false</think>{REAL}", REAL),
        (f"[THINK]{FALSE}[/THINK]{REAL}", REAL),
        (f"<|channel|>analysis<|message|>{FALSE}<|end|><|channel|>final<|message|>{REAL}", REAL),
        (f"<think>{FALSE}", ""),
        (f"<THINKING>{FALSE}", ""),
        ("<think>", ""),
        (f'{{"reason": "</think>{FALSE}"}}', f'{{"reason": "</think>{FALSE}"}}'),
        (f"```json\n{REAL}\n```", f"```json\n{REAL}\n```"),
        (f"No tags: {FALSE}", f"No tags: {FALSE}"),
    ],
)
def test_thinking_in_the_text_is_no_answer(text: str, answer: str) -> None:
    """Only what follows the thinking counts, an unclosed one is a cut answer, and an answer that begins is left alone."""
    assert without_thinking(text) == answer
    assert is_cut(said(text)) == (answer == "")


def completion(
    message: dict[str, object], reason: str | None = "stop", usage: dict[str, object] | None = None
) -> bytes:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": reason}
    return json.dumps({"model": "m", "choices": [choice], **({"usage": usage} if usage else {})}).encode()


@pytest.mark.parametrize(
    ("message", "reason", "text", "stop", "cut"),
    [
        ({"content": REAL}, "stop", REAL, "end", False),
        ({"content": REAL}, None, REAL, "end", False),
        ({"content": ""}, "length", "", "max_tokens", True),
        ({"content": None, "reasoning_content": FALSE}, "stop", "", "end", True),
        ({"content": None, "reasoning": FALSE}, None, "", "end", True),
        ({"content": REAL, "reasoning_content": FALSE}, "stop", REAL, "end", False),
        ({"content": "{"}, "max_output_tokens", "{", "max_tokens", True),
        ({"content": "{"}, "model_length", "{", "max_tokens", True),
        ({"content": "{"}, "MAX_TOKENS", "{", "max_tokens", True),
        ({"content": "{"}, "incomplete", "{", "max_tokens", True),
        ({"content": None, "refusal": "No."}, "stop", "No.", "refusal", False),
        ({"content": None}, "content_filter", "", "refusal", False),
        ({"content": [{"type": "thinking", "thinking": FALSE}, {"type": "text", "text": REAL[:5]},
                      {"type": "text", "text": REAL[5:]}]}, "stop", REAL, "end", False),
    ],
)  # fmt: skip
def test_a_completion_says_what_ended_it(
    message: dict[str, object], reason: str | None, text: str, stop: str, cut: bool
) -> None:
    """In the words of every compatible endpoint; only the answer's own text is read."""
    found = read_completion(completion(message, reason), PROMPT, "m")
    assert (found.text, found.stop, is_cut(found)) == (text, stop, cut)


def test_a_completion_that_broke_off_is_no_answer() -> None:
    """A gateway that reports a failure in the middle of an answer said nothing about the entry."""
    with pytest.raises(ValueError, match="middle"):
        read_completion(completion({"content": "{"}, "error"), PROMPT, "m")


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 900, "total_tokens": 905,
          "completion_tokens_details": {"reasoning_tokens": 800}}, 900),
        ({"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 914,
          "completion_tokens_details": {"reasoning_tokens": 900}}, 909),
        ({"prompt_tokens": 5, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 900}}, 909),
        ({"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}, 9),
        (None, len(REAL + FALSE) // 3 + 1),
    ],
)  # fmt: skip
def test_thinking_is_counted_wherever_it_stands(usage: dict[str, object] | None, counted: int) -> None:
    """In the completion's tokens, only in the total, only in the details, or counted by nobody: never free."""
    content = completion({"content": REAL, "reasoning_content": FALSE}, "stop", usage)
    assert read_completion(content, PROMPT, "m").output_tokens == counted
    cut = read_completion(completion({"content": ""}, "length"), PROMPT, "m")
    assert cut.output_tokens == PROMPT.max_tokens
