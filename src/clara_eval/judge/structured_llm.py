"""A question asked until its answer can be used: with larger limits after a cut, in other words after nonsense.

Invariant: which request comes next follows from the limits and the recorded answers alone, so a replay asks alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from clara_eval.core.errors import BadAnswer, Temporary
from clara_eval.judge.costs.budgets import EntryShare, ReadingBudget
from clara_eval.judge.port import AnswerCut, Asker, GoneWithout, PaidAnswer, Prompt, request_hash
from clara_eval.judge.reading import TokenLimits, is_cut, shown, without_thinking

T = TypeVar("T")
TRIES = 3
AGAIN = "\nAsked again ({attempt}): return ONLY the JSON object, complete, with exactly the stated fields.\n"
"""At temperature 0 an equal request would get an equal answer. Nothing of the unusable answer is repeated."""


def again_grammar() -> str:
    """Return a regular expression for what may follow a prompt that is asked again."""
    again = re.escape(AGAIN).replace(re.escape("{attempt}"), r"\d")
    return f"(?:{again})?"


def asked_again(prompt: Prompt, attempt: int) -> Prompt:
    return prompt if attempt == 0 else replace(prompt, user=prompt.user + AGAIN.format(attempt=attempt))


@dataclass(frozen=True, slots=True)
class AskOutcome(Generic[T]):
    """A value, or None with the reason; `requests` are the hashes of all that was asked."""

    value: T | None
    reason: str
    requests: tuple[str, ...]
    outage: Temporary | None = None  # why no answer came: later there may be one


@dataclass(slots=True)
class AnswerLog:
    """What a round asked: `keep` gets every answer; requests in `closed` stay unanswered, each with its reason."""

    keep: Callable[[PaidAnswer], None]
    closed: Mapping[str, str]
    unanswered: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StructuredLlm:
    """Asks a model for typed values."""

    asker: Asker
    limits: TokenLimits | None = None
    """None for rounds that were planned before limits grew: a cut answer is asked again like an unreadable one."""
    others: tuple[Asker, ...] = ()  # asked in turn when the answers of those before were cut at the largest limit
    log: AnswerLog | None = None
    share: EntryShare | None = None

    @property
    def name(self) -> str:
        return self.asker.name

    def about_one_entry(self, money: ReadingBudget | None, *, most: int = 0, needs: int = 0) -> StructuredLlm:
        """Bound the answers about one entry together, in tokens and in money."""
        return replace(self, share=EntryShare(money, most, needs)) if self.limits else self

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        limits, closed = self.limits, self.log.closed if self.log else {}
        asked = [replace(p, max_tokens=limits.first(p.max_tokens)) for p in prompts] if limits else list(prompts)
        await self.asker.prefetch([p for p in asked if not closed or request_hash(self.name, p) not in closed])

    async def ask(self, prompt: Prompt, read: Callable[[str], T], tries: int = TRIES) -> AskOutcome[T]:
        """Ask at most `tries` times for an answer that `read` accepts. An outage is reported, not asked again."""
        requests: list[str] = []
        reason = ""
        for attempt in range(tries):
            question = _Question(self, asked_again(prompt, attempt))
            while question.answer is None:
                try:
                    asker, asked = question.next_request()
                    self._check_open(asker, asked, attempt)
                    paid = await asker.ask(asked, attempt)
                except AnswerCut as cut:
                    return AskOutcome(None, str(cut), (*requests, *cut.requests), cut)
                except Temporary as outage:
                    if self.log:
                        self.log.unanswered[request_hash(asker.name, asked, attempt)] = outage.message
                    return AskOutcome(None, f"No answer: {outage.message}", tuple(requests), outage)
                if self.log:
                    self.log.keep(paid)
                question.take(paid)
            requests += question.requests
            try:
                return AskOutcome(read(_usable(question.answer)), "", tuple(requests))
            except BadAnswer as bad:
                reason = bad.message
        return AskOutcome(None, f"No usable answer in {tries} tries; the last: {reason}", tuple(requests))

    def _check_open(self, asker: Asker, prompt: Prompt, attempt: int) -> None:
        closed = self.log.closed if self.log else {}
        if closed and (reason := closed.get(request_hash(asker.name, prompt, attempt))) is not None:
            raise GoneWithout(reason)


class _Question:
    """One attempt at a question: each asker in turn, each with growing limits."""

    def __init__(self, llm: StructuredLlm, prompt: Prompt) -> None:
        self._llm, self._prompt = llm, prompt
        self._askers = [llm.asker, *(llm.others if llm.limits else ())]
        self._limit: int | None = None
        """The limit of the next request to the first asker; None: it is this asker's first."""
        self._asked_limit = 0
        self._was_cut = False
        self.requests: list[str] = []
        self.answer: PaidAnswer | None = None

    def next_request(self) -> tuple[Asker, Prompt]:
        """Return whom to ask what. Raises AnswerCut if no larger limit and no other asker is left."""
        limits, share = self._llm.limits, self._llm.share
        if limits is None:
            return self._askers[0], self._prompt
        if not self._askers:
            raise AnswerCut(
                f"{self._llm.name} did not end its answer within {self._asked_limit:,} tokens, thinking included",
                self.requests,
            )
        if self._limit is None:
            if share is not None:
                share.check_tokens(self._llm.name, 2 * sum(limits.all(self._prompt.max_tokens)), self.requests)
            self._limit, self._was_cut = limits.first(self._prompt.max_tokens), False
        asked = replace(self._prompt, max_tokens=self._limit)
        if share is not None:
            share.check_money(asked, self.requests, self._limit if self._was_cut else None)
        self._asked_limit = self._limit
        return self._askers[0], asked

    def take(self, paid: PaidAnswer) -> None:
        """Note an answer: the whole one, or one that has to be asked again.

        A provider may refuse a request only because the tokens for thinking do not fit its context: then the bare
        answer is asked for. One that refuses a larger limit after a cut has no larger limit.
        """
        self.requests.append(paid.request)
        limits, answer, bare = self._llm.limits, paid.answer, self._prompt.max_tokens
        if limits is None:
            self.answer = paid
            return
        if self._llm.share is not None:
            self._llm.share.count(replace(self._prompt, max_tokens=self._asked_limit), answer)
        if is_cut(answer):
            self._was_cut, self._limit = True, limits.larger(self._asked_limit)
        elif answer.stop == "refusal" and not answer.output_tokens and (self._was_cut or self._asked_limit > bare):
            self._limit = None if self._was_cut else bare
        else:
            text = without_thinking(answer.text) if answer.stop == "end" else answer.text
            self.answer = replace(paid, answer=replace(answer, text=text))
            return
        if self._limit is None:
            self._askers.pop(0)


def _usable(paid: PaidAnswer) -> str:
    if paid.answer.stop == "refusal":
        if not paid.answer.output_tokens:  # no model saw it: it is too long, or a filter is before it
            raise BadAnswer(f"The question was refused: {shown(paid.answer.text, 300)}")
        raise BadAnswer("The model refused to answer.")
    if paid.answer.stop == "max_tokens":
        raise BadAnswer("The answer was cut at the token limit.")
    return paid.answer.text
