"""The money for reading entries, shared out before anything is read.

Invariant: no entry takes more than its share while others wait. Pure, so a replay shares alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clara_eval.core.dollars import MICRO
from clara_eval.judge.costs.prices import PriceCard, Tokens, estimated_tokens
from clara_eval.judge.outages import AnswerCut, TooCostly
from clara_eval.judge.port import Answer, Prompt

MARGIN_PERCENT = 130
"""Share of an entry's usual cost that it may use without a full share: answers are sometimes asked again."""
SLOW_CALLS = 2
"""A question that got no answer in time was sent so often, and each may have been charged."""


@dataclass(frozen=True, slots=True)
class ReadingBudget:
    """Millionths of a dollar for all entries together, with the prices; part of a plan."""

    micro_usd: int
    input: int
    """Picodollars for a token of a prompt, at the dearest of the models that may read."""
    output: int
    answer_tokens: int
    """Of a usual answer, with the thinking that is expected before it."""

    @property
    def card(self) -> PriceCard:
        return PriceCard(self.input, self.output, self.input, self.input)

    def usual(self, prompts: Iterable[Prompt], answer_tokens: int | None = None) -> int:
        """Return what asking each of these once will probably cost."""
        answer = self.answer_tokens if answer_tokens is None else answer_tokens
        texts = (prompt.system + prompt.user + prompt.schema_json for prompt in prompts)
        return sum(self.card.cost(Tokens(estimated_tokens(text), answer)) for text in texts)

    def cost(self, prompt: Prompt, answer: Answer | Tokens, *, is_slow: bool = False) -> int:
        """Count an answer. A slow one without tokens may have been charged in full."""
        if is_slow and not answer.input_tokens and not answer.output_tokens:
            return SLOW_CALLS * self.card.worst(prompt)
        return self.card.cost(answer)


@dataclass(slots=True)
class EntryShare:
    """What the answers about one entry may use together; without `money` only tokens are bounded."""

    money: ReadingBudget | None
    most: int
    """Millionths of a dollar that they may cost together."""
    needs: int
    """What asking everything about it once usually costs."""
    tokens: int = 0
    spent: int = 0

    def check_tokens(self, name: str, most: int, requests: Sequence[str]) -> None:
        if self.tokens > most:
            raise AnswerCut(f"{name} used {self.tokens:,} tokens for one entry, thinking included", requests)

    def check_money(self, prompt: Prompt, requests: Sequence[str], answer_tokens: int | None) -> None:
        """Raise TooCostly unless the share pays for this request, by default with an answer of usual length."""
        if self.money is None:
            return
        needed = max(self.needs, self.spent + self.money.usual((prompt,), answer_tokens))
        if needed > self.most:
            raise TooCostly(
                f"To read it costs ${needed / MICRO:.4f} or more, and this round's budget for reading has "
                f"${self.most / MICRO:.4f} for it",
                requests,
            )

    def count(self, prompt: Prompt, answer: Answer) -> None:
        self.tokens += answer.output_tokens
        self.spent += self.money.cost(prompt, answer, is_slow=answer.stop == "max_tokens") if self.money else 0


def next_to_read(left: int, usual: Mapping[str, int]) -> dict[str, int]:
    """Return the entries to read now, smallest first, each with its bound; none if none fits.

    Entries for which an equal share suffices get it; else the smallest, as many as there is money for.
    """
    waiting = sorted(usual, key=lambda name: (usual[name], name))
    share = left // len(waiting) if waiting else 0
    if fitting := {name: share for name in waiting if usual[name] <= share}:
        return fitting
    chosen: dict[str, int] = {}
    for name in waiting:
        bound = usual[name] * MARGIN_PERCENT // 100
        if bound > left:
            break
        chosen[name] = bound
        left -= bound
    return chosen
