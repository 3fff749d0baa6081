"""Token limits of answers: tokens for thinking at first, more after a cut, and a bound."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clara_eval.judge.port import Answer

THINKING_ROOM = 4_096
"""Tokens that the first request of a thinking model leaves for thinking: at low effort most answers need fewer."""
_SPACE = " \t\r\n"
_THOUGHT_ENDS = re.compile(
    r"</(?:think|thinking|thought|reasoning)>|\[/THINK\]|<\|channel\|>final<\|message\|>", re.IGNORECASE | re.ASCII
)
_THOUGHT_BEGINS = re.compile(
    r"[ \t\r\n]*(?:<(?:think|thinking|thought|reasoning)>|\[THINK\]|<\|channel\|>)", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The limits of all answers of one round, thinking included; part of its plan."""

    thinking: int
    """Tokens that a first request leaves for thinking, beside those that the answer needs."""
    most: int
    """No request asks for more than this many tokens, unless the bare answer needs more."""
    growth: int = 4
    """A cut answer is asked for again with so many times the limit."""

    def first(self, answer_tokens: int) -> int:
        """Return the limit of the first request, for an answer that needs this many tokens."""
        return max(answer_tokens, min(answer_tokens + self.thinking, self.most))

    def larger(self, limit: int) -> int | None:
        """Return the limit after a cut at this one; None at the bound."""
        grown = min(limit * self.growth, self.most)
        return grown if grown > limit else None

    def all(self, answer_tokens: int) -> tuple[int, ...]:
        """Return every limit that one question can be asked with, smallest first."""
        limits = [self.first(answer_tokens)]
        while (grown := self.larger(limits[-1])) is not None:
            limits.append(grown)
        return tuple(limits)


def without_thinking(text: str) -> str:
    """Remove a model's thinking before its answer; empty if only thinking is there."""
    if text.lstrip(_SPACE).startswith(("{", "```")):
        return text
    ends = [found.end() for found in _THOUGHT_ENDS.finditer(text)]
    if ends:
        return text[ends[-1] :]
    return "" if _THOUGHT_BEGINS.match(text) else text


def is_cut(answer: Answer) -> bool:
    """Return whether the limit ended this answer, or thinking left nothing of it."""
    return answer.stop == "max_tokens" or (answer.stop == "end" and not without_thinking(answer.text).strip(_SPACE))
