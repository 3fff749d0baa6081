"""A question asked until its answer can be used: with larger limits after a cut, in other words after nonsense.

Invariant: which request comes next follows from the limits and the recorded answers alone, so a replay asks alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from clara_eval.core.errors import BadAnswer, Temporary
from clara_eval.judge.costs.budgets import EntryShare, ReadingBudget
from clara_eval.judge.port import Answer, AnswerCut, Asker, GoneWithout, PaidAnswer, Prompt, request_hash
from clara_eval.judge.reading import TokenLimits, is_cut, shown, without_thinking

T = TypeVar("T")
TRIES = 3
AGAIN = "\nAsked again ({attempt}): return ONLY the JSON object, complete, with exactly the stated fields.\n"
"""At temperature 0 an equal request would get an equal answer. Nothing of the unusable answer is repeated."""


def again_grammar() -> str:
    """Return a regular expression for what may follow a prompt that is asked again."""
    again = re.escape(AGAIN).replace(re.escape("{attempt}"), r"\d")
    return f"(?:{again})?"


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
            own: list[str] = []
            again = replace(prompt, user=prompt.user + AGAIN.format(attempt=attempt)) if attempt else prompt
            asking, paid = self._requests(again, own), None
            while True:
                try:
                    asker, asked = asking.send(paid)
                    self._check_open(asker, asked, attempt)
                    paid = await asker.ask(asked, attempt)
                except StopIteration as whole:
                    answer: Answer = whole.value
                    break
                except AnswerCut as cut:
                    return AskOutcome(None, str(cut), (*requests, *cut.requests), cut)
                except Temporary as outage:
                    if self.log:
                        self.log.unanswered[request_hash(asker.name, asked, attempt)] = outage.message
                    return AskOutcome(None, f"No answer: {outage.message}", tuple(requests), outage)
                own.append(paid.request)
                if self.log:
                    self.log.keep(paid)
            requests += own
            try:
                return AskOutcome(read(_usable(answer)), "", tuple(requests))
            except BadAnswer as bad:
                reason = bad.message
        return AskOutcome(None, f"No usable answer in {tries} tries; the last: {reason}", tuple(requests))

    def _requests(self, prompt: Prompt, own: list[str]) -> Generator[tuple[Asker, Prompt], PaidAnswer | None, Answer]:
        """Yield whom to ask what and take the answer, each asker with growing limits; return the whole answer.

        A provider may refuse a request only because the tokens for thinking do not fit its context: then the bare
        answer is asked for. One that refuses a larger limit after a cut has no larger limit. Raises AnswerCut if no
        larger limit and no other asker is left, with the requests so far, which the caller puts into `own`.
        """
        limits, share, bare, limit = self.limits, self.share, prompt.max_tokens, 0
        for asker in (self.asker, *self.others):
            if limits and share and share.tokens > 2 * sum(limits.all(bare)):
                used = f"{self.name} used {share.tokens:,} tokens for one entry, thinking included"
                raise AnswerCut(used, own)
            following: int | None = limits.first(bare) if limits else bare
            was_cut = False
            while following is not None:
                limit = following
                asked = prompt if limit == bare else replace(prompt, max_tokens=limit)
                if share:
                    share.check_money(asked, own, limit if was_cut else None)
                paid = yield asker, asked
                assert paid is not None
                answer = paid.answer
                if limits is None:
                    return answer
                if share:
                    share.count(asked, answer)
                if is_cut(answer):
                    was_cut, following = True, limits.larger(limit)
                elif answer.stop == "refusal" and not answer.output_tokens and (was_cut or limit > bare):
                    following = None if was_cut else bare
                else:
                    return replace(answer, text=without_thinking(answer.text)) if answer.stop == "end" else answer
        raise AnswerCut(f"{self.name} did not end its answer within {limit:,} tokens, thinking included", own)

    def _check_open(self, asker: Asker, prompt: Prompt, attempt: int) -> None:
        closed = self.log.closed if self.log else {}
        if closed and (reason := closed.get(request_hash(asker.name, prompt, attempt))) is not None:
            raise GoneWithout(reason)


def _usable(answer: Answer) -> str:
    if answer.stop == "refusal":
        if not answer.output_tokens:  # no model saw it: it is too long, or a filter is before it
            raise BadAnswer(f"The question was refused: {shown(answer.text, 300)}")
        raise BadAnswer("The model refused to answer.")
    if answer.stop == "max_tokens":
        raise BadAnswer("The answer was cut at the token limit.")
    return answer.text
