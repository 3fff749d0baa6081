"""The money for reading the entries of one round: shared out before anything is read, counted by recorded tokens.

In: a total with its prices, and what reading each entry once usually costs. Out: the next entries to read, each with
its bound. Must hold: small entries are read first, no entry has more than its share while others wait, and together
they have no more than the total, so no entry keeps another from being read or compared. Pure: a replay shares alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clara_eval.core.dollars import MICRO
from clara_eval.judge.costs.prices import PriceCard, Request, Tokens, TokenUse, estimated_tokens
from clara_eval.judge.outages import AnswerCut, TooCostly
from clara_eval.judge.port import Answer

MARGIN_PERCENT = 130
"""Of what an entry usually costs, where there is no full share for it: answers are asked again now and then."""
SLOW_CALLS = 2
"""A question that got no answer in time was sent so often, and each may have been charged."""


@dataclass(frozen=True, slots=True)
class ReadingBudget:
    """Millionths of a dollar for all entries together, and the prices by which they are counted; part of a plan."""

    micro_usd: int
    input: int
    """Picodollars for a token of a prompt, at the dearest of the models that may read."""
    output: int
    answer_tokens: int
    """Of a usual answer, with the thinking that is expected before it."""

    @property
    def card(self) -> PriceCard:
        return PriceCard(self.input, self.output, self.input, self.input)

    def usual(self, prompts: Iterable[Request], answer_tokens: int | None = None) -> int:
        """What asking each of these once will probably cost."""
        answer = self.answer_tokens if answer_tokens is None else answer_tokens
        texts = (prompt.system + prompt.user + prompt.schema_json for prompt in prompts)
        return sum(self.card.cost(Tokens(estimated_tokens(text), answer)) for text in texts)

    def cost(self, prompt: Request, answer: TokenUse, *, is_slow: bool = False) -> int:
        """What an answer counts. A slow one without any token was waited for in vain and may be charged in full."""
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

    def check_money(self, prompt: Request, requests: Sequence[str], answer_tokens: int | None) -> None:
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

    def count(self, prompt: Request, answer: Answer) -> None:
        self.tokens += answer.output_tokens
        self.spent += self.money.cost(prompt, answer, is_slow=answer.stop == "max_tokens") if self.money else 0


def next_to_read(left: int, usual: Mapping[str, int]) -> dict[str, int]:
    """Of the entries that wait, those that are read now, smallest first, each with its bound; none if none fits.

    Those that an equal share of what is left suffices for have that share. If it suffices for nobody, the smallest are
    read, as many as there is money for.
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
