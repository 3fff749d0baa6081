"""Which questions to ask: every pair once, every pair in both orders, or those that matter for the money.

A schedule is a pure function of items, judges, budget and the answers so far, batch by batch; an empty batch is the
end. Every judge sees each chosen pair in the same sequence. A question without a verdict is spent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import cast

import numpy as np

from clara_eval.core.errors import BadInput
from clara_eval.ranking.adaptive import Adaptive, AdaptiveName
from clara_eval.ranking.results import Field, Group, Ints, Pairing, Result, balanced_columns, checked_payout

FOURS_FROM = 8  # items: below, all pairs in both orders cost hardly more than orders of four
NAMES = ("auto", "full", "full+", "both", "adaptive", "fours")


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every pair once with balanced sides (`full`), and then every pair with the sides swapped (`both`)."""

    field: Field
    is_both: bool = False
    reason: str = ""

    @property
    def name(self) -> str:
        return "both" if self.is_both else "full"

    @property
    def most_questions(self) -> int:
        return self.field.most_questions(1 + self.is_both)

    @property
    def usual_questions(self) -> int:
        return self.most_questions

    def told(self, _asked: Iterable[Pairing | Group]) -> str:
        return self.reason

    def columns(self) -> tuple[Ints, Ints]:
        """All looks at once: the items shown first, and those shown second."""
        first, second = balanced_columns(len(self.field.items))
        if self.is_both:
            first, second = np.concatenate((first, second)), np.concatenate((second, first))
        return first[: self.field.looks], second[: self.field.looks]

    def next_batch(self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()) -> list[Pairing]:
        """The looks of the first order, then those of the second, that have neither a result nor a failure."""
        done = {result.question for result in results} | set(undecided)
        looks = list(zip(*(column.tolist() for column in self.columns()), strict=True))
        once = comb(len(self.field.items), 2)
        for part in (looks[:once], looks[once:]):
            if rest := [pairing for pairing in self.field.pairings(part) if pairing not in done]:
                return rest
        return []


Schedule = Adaptive | Fixed


def choose_schedule(
    items: Sequence[str],
    judges: Sequence[str],
    *,
    max_comparisons: int | None,
    winner_count: int = 1,
    payout_bps: Sequence[int] | None = None,
    name: str = "auto",
    literal: bool = False,
) -> Schedule:
    """Choose a schedule within `max_comparisons`; `auto` takes orders of four if there are eight items or more.

    The specification's single pass (`literal`) takes every pair once.

    Raises:
        BadInput: there is no schedule of this name, or it does not fit a single pass.

    """
    if name not in NAMES:
        remedy = f"Use {', '.join(NAMES[:-1])} or {NAMES[-1]}."
        raise BadInput(f"There is no schedule {name!r}.", path="schedule", value=name, remedy=remedy)
    if literal and name not in {"auto", "full"}:
        told = f"CLARA_ELO=literal takes every pair once, but the schedule {name} was asked for."
        raise BadInput(told, path="schedule", value=name, remedy="Leave out the schedule, or CLARA_ELO.")
    field = Field(tuple(items), tuple(judges), max_comparisons)
    if literal:
        return Fixed(field, reason="Every pair once, for the specification's single pass (CLARA_ELO=literal).")
    chosen, reason = (name, f"The schedule {name} was asked for.") if name != "auto" else _auto(field)
    if chosen == "fours" and "rules" in judges:
        chosen, reason = "adaptive", "Rules compare pairs only, so the schedule fours became adaptive."
    if chosen in {"full", "both"}:
        return Fixed(field, chosen == "both", reason)
    payout = checked_payout(winner_count, payout_bps)
    return Adaptive(field, payout, cast("AdaptiveName", chosen), reason)


def _auto(field: Field) -> tuple[str, str]:
    """A name, and one sentence why."""
    pairs, size = comb(len(field.items), 2), len(field.items)
    allowed = "no limit" if field.max_comparisons is None else f"{field.max_comparisons} games"
    jury = f" × {len(field.judges)} judges" if len(field.judges) > 1 else ""
    if size >= FOURS_FROM and "rules" not in field.judges:
        return "fours", (
            f"Orders of four{jury} first, then pairs near the paid places as long as they lower the money expected at "
            f"wrong addresses ({allowed})."
        )
    if field.looks >= 2 * pairs:
        return "both", f"All {pairs} pairs in both orders{jury} fit ({allowed})."
    if field.looks >= pairs:
        rest = f"{field.looks - pairs} swapped looks where they matter for the paid places"
        return "full+", f"All {pairs} pairs once{jury}, and {rest} ({allowed})."
    why = f"All {pairs} pairs{jury} do not fit ({allowed})"
    return "adaptive", f"{why}, so the calls go where they matter for the paid places."
