"""How long an answer may be: room for thinking at first, a larger limit after a cut, and a bound that is never passed.

Input: a prompt with the tokens that its answer needs. Output: an answer that ended by itself, or `AnswerCut`.
Invariant: which limit is asked for next follows from the plan and the recorded answers alone, so a replay asks alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clara_eval.core.dollars import MICRO
from clara_eval.judge.costs.reading import ReadingBudget
from clara_eval.judge.outages import AnswerCut, TooCostly
from clara_eval.judge.port import Answer, Asker, PaidAnswer, Prompt

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
        """The limit of the first request, for an answer that needs so many tokens by itself."""
        return max(answer_tokens, min(answer_tokens + self.thinking, self.most))

    def larger(self, limit: int) -> int | None:
        """The limit after an answer was cut at this one; None at the bound."""
        grown = min(limit * self.growth, self.most)
        return grown if grown > limit else None

    def all(self, answer_tokens: int) -> tuple[int, ...]:
        """Every limit that one question can be asked with, smallest first."""
        limits = [self.first(answer_tokens)]
        while (grown := self.larger(limits[-1])) is not None:
            limits.append(grown)
        return tuple(limits)


def without_thinking(text: str) -> str:
    """The answer in a text that may hold the model's thinking before it; empty where only thinking is there.

    Only what stands before the answer is taken off: an answer that begins with its object is left as it is.
    """
    if text.lstrip(_SPACE).startswith(("{", "```")):
        return text
    ends = [found.end() for found in _THOUGHT_ENDS.finditer(text)]
    if ends:
        return text[ends[-1] :]
    return "" if _THOUGHT_BEGINS.match(text) else text


def is_cut(answer: Answer) -> bool:
    """Whether the limit ended this answer, or thinking left nothing of it."""
    return answer.stop == "max_tokens" or (answer.stop == "end" and not without_thinking(answer.text).strip(_SPACE))


@dataclass(slots=True)
class GrowingAsker:
    """An `Asker` that asks again with a larger limit when an answer was cut."""

    asker: Asker
    limits: TokenLimits
    others: tuple[Asker, ...] = ()
    """Asked in turn where the answers of those before were cut at the largest limit."""
    about_one: bool = False
    """Asked about one entry only: all of its answers together may use what two questions can."""
    used: int = 0
    """Tokens of the answers so far."""
    money: ReadingBudget | None = None
    """The prices by which answers about one entry are counted."""
    most: int = 0
    """Millionths of a dollar that they may cost together."""
    needs: int = 0
    """What asking everything about it once usually costs."""
    spent: int = 0

    @property
    def name(self) -> str:
        return self.asker.name

    async def foresee(self, prompts: Sequence[Prompt]) -> None:
        await self.asker.foresee([replace(p, max_tokens=self.limits.first(p.max_tokens)) for p in prompts])

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        """The first whole answer, without its thinking.

        Raises:
            AnswerCut: the answer was cut at the largest limit there is.

        """
        requests: list[str] = []
        for asker in (self.asker, *self.others):
            if self.about_one and self.used > 2 * sum(self.limits.all(prompt.max_tokens)):
                raise AnswerCut(f"{self.name} used {self.used:,} tokens for one entry, thinking included", requests)
            paid, larger = await self._grown(asker, prompt, attempt, requests)
            if paid is not None:
                return paid
        raise AnswerCut(f"{self.name} did not end its answer within {larger:,} tokens, thinking included", requests)

    async def _grown(
        self, asker: Asker, prompt: Prompt, attempt: int, requests: list[str]
    ) -> tuple[PaidAnswer | None, int]:
        """The whole answer of one asker, or None with the largest limit that was too small; `requests` is added to.

        A provider may refuse a request only because the room for thinking does not fit its context: then the bare
        answer is asked for. One that refuses more room after a cut has no larger limit.
        """
        limit, was_cut = self.limits.first(prompt.max_tokens), False
        while True:
            asked = replace(prompt, max_tokens=limit)
            self._check_money(asked, requests, limit if was_cut else None)
            paid = await asker.ask(asked, attempt)
            answer = paid.answer
            self.used += answer.output_tokens
            self.spent += self.money.cost(asked, answer, is_slow=answer.stop == "max_tokens") if self.money else 0
            next_limit: int | None
            if is_cut(answer):
                was_cut, next_limit = True, self.limits.larger(limit)
            elif answer.stop == "refusal" and not answer.output_tokens and (was_cut or limit > prompt.max_tokens):
                next_limit = None if was_cut else prompt.max_tokens
            else:
                text = without_thinking(answer.text) if answer.stop == "end" else answer.text
                return replace(paid, answer=replace(answer, text=text), earlier=tuple(requests)), limit
            requests.append(paid.request)
            if next_limit is None:
                return None, limit
            limit = next_limit

    def _check_money(self, prompt: Prompt, requests: Sequence[str], tokens: int | None) -> None:
        """Whether this entry's share pays for one more request, with an answer of usual length or of so many tokens."""
        if self.money is None:
            return
        needed = max(self.needs, self.spent + self.money.usual((prompt,), tokens))
        if needed > self.most:
            raise TooCostly(
                f"To read it costs ${needed / MICRO:.4f} or more, and this round's budget for reading has "
                f"${self.most / MICRO:.4f} for it",
                requests,
            )


def within(limits: TokenLimits | None, asker: Asker, others: Sequence[Asker] = ()) -> Asker:
    """The asker with these limits; as it is where a plan has none."""
    return asker if limits is None else GrowingAsker(asker, limits, tuple(others))


def about_one_entry(
    asker: Asker | None, money: ReadingBudget | None = None, *, most: int = 0, needs: int = 0
) -> Asker | None:
    """The asker for the questions about one entry, whose answers are bounded together, in tokens and in money."""
    if not isinstance(asker, GrowingAsker):
        return asker
    return replace(asker, about_one=True, used=0, money=money, most=most, needs=needs, spent=0)


def spent_on(asker: Asker | None) -> int:
    """What the answers to this asker cost so far, where money is counted."""
    return asker.spent if isinstance(asker, GrowingAsker) else 0
