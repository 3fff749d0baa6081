"""Asking until the answer can be used, a fixed number of times.

A prompt and a reader come in; a value, or the reason why there is none, goes out, with the hash of every request made.
A refusal and an unreadable answer are asked again, then reported; they are never turned into a value. An outage is not
an answer and not asked again here: it is reported as itself, and the caller says what it means. A cut answer is one:
`judge/limits.py` has asked for it with every larger limit before. (Rounds planned before limits grew ask for a cut
answer again like for an unreadable one.)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from clara_eval.core.errors import BadAnswer, Temporary
from clara_eval.judge.outages import AnswerCut
from clara_eval.judge.port import Asker, PaidAnswer, Prompt

T = TypeVar("T")
TRIES = 3
AGAIN = "\nAsked again ({attempt}): return ONLY the JSON object, complete, with exactly the stated fields.\n"
"""At temperature 0 the same words would get the same answer. Nothing of the unusable answer is repeated."""


def again_grammar() -> str:
    """A regular expression for what may follow a prompt that is asked again."""
    again = re.escape(AGAIN).replace(re.escape("{attempt}"), r"\d")
    return f"(?:{again})?"


@dataclass(frozen=True, slots=True)
class AskOutcome(Generic[T]):
    """`value` is None where no answer could be used; `reason` then says why."""

    value: T | None
    reason: str
    requests: tuple[str, ...]
    outage: Temporary | None = None
    """Why nobody answered, where that is the reason."""


async def ask_until(asker: Asker, prompt: Prompt, read: Callable[[str], T], tries: int = TRIES) -> AskOutcome[T]:
    """Ask at most `tries` times for an answer that `read` accepts."""
    requests: list[str] = []
    reason = ""
    for attempt in range(tries):
        try:
            paid = await asker.ask(asked_again(prompt, attempt), attempt)
        except AnswerCut as cut:
            return AskOutcome(None, str(cut), (*requests, *cut.requests), cut)
        except Temporary as outage:
            return AskOutcome(None, f"No answer: {outage.message}", tuple(requests), outage)
        requests += [*paid.earlier, paid.request]
        try:
            return AskOutcome(read(_usable(paid)), "", tuple(requests))
        except BadAnswer as bad:
            reason = bad.message
    return AskOutcome(None, f"No usable answer in {tries} tries; the last: {reason}", tuple(requests))


def asked_again(prompt: Prompt, attempt: int) -> Prompt:
    """The prompt of this attempt; the first is the prompt itself."""
    return prompt if attempt == 0 else replace(prompt, user=prompt.user + AGAIN.format(attempt=attempt))


def _usable(paid: PaidAnswer) -> str:
    if paid.answer.stop == "refusal":
        raise BadAnswer("The model refused to answer.")
    if paid.answer.stop == "max_tokens":
        raise BadAnswer("The answer was cut at the token limit.")
    return paid.answer.text
