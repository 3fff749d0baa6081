"""Which comparisons to ask next: every pair once, every pair in both orders, or only where it matters for the money.

A schedule is a pure function of items, judges, budget and the answers so far: an interrupted tournament goes on by
handing in the recorded results. It returns batches; an empty batch means finished. Every judge sees each chosen pair in
the same order of sides. An undecided comparison is spent: it is never asked again and counts for nobody.
`choose_schedule` picks the richest schedule that fits the calls that money and time allow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import NamedTuple, Protocol

import numpy as np

from clara_eval.core.errors import BadInput
from clara_eval.ranking.adaptive import Adaptive
from clara_eval.ranking.field import Field, balanced_columns, balanced_looks
from clara_eval.ranking.fours import Fours
from clara_eval.ranking.results import Group, Pairing, Result
from clara_eval.ranking.tally import Floats, Ints

__all__ = ["Both", "Choice", "Field", "Full", "Schedule", "balanced_looks", "choose_schedule", "missing"]

CALLS_PER_ITEM = 7.5  # what the adaptive schedule needs from a hundred items on to match the full one

JURY_NOTE = (
    "Judges who err alike add little: the swapped order of one judge tells as much as a second judge in the same one, "
    "for the same price. How alike they err is measured, and counted."
)
FEWER_JUDGES_NOTE = (
    "The same calls would show every pair in both orders to {judges}, which tells at least as much where judges err "
    "alike."
)


class Schedule(Protocol):
    """`next_batch` gives the comparisons to ask now; the same answers always give the same comparisons."""

    @property
    def name(self) -> str: ...

    @property
    def most_questions(self) -> int:
        """How many questions there will be at most: what progress is measured against."""
        ...

    def next_batch(
        self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()
    ) -> Sequence[Pairing | Group]: ...


@dataclass(frozen=True, slots=True)
class Full:
    """Every pair once, sides balanced."""

    field: Field
    name: str = "full"

    @property
    def most_questions(self) -> int:
        return self.field.most_questions(1)

    def next_batch(self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()) -> list[Pairing]:
        looks = list(balanced_looks(len(self.field.items)))[: self.field.looks]
        return missing(self.field.pairings(looks), results, undecided)

    def columns(self) -> tuple[Ints, Ints]:
        """All its looks at once: who is shown first, who second."""
        first, second = balanced_columns(len(self.field.items))
        return first[: self.field.looks], second[: self.field.looks]


@dataclass(frozen=True, slots=True)
class Both:
    """Every pair once, then every pair with the sides swapped: two batches, so that the first is already a `full`."""

    field: Field
    name: str = "both"

    @property
    def most_questions(self) -> int:
        return self.field.most_questions(2)

    def next_batch(self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()) -> list[Pairing]:
        once = list(balanced_looks(len(self.field.items)))
        swapped = [(b, a) for a, b in once]
        rest = missing(self.field.pairings(once[: self.field.looks]), results, undecided)
        if rest or (self.field.looks is not None and self.field.looks <= len(once)):
            return rest
        allowed = None if self.field.looks is None else self.field.looks - len(once)
        return missing(self.field.pairings(swapped[:allowed]), results, undecided)

    def columns(self) -> tuple[Ints, Ints]:
        """All its looks at once: who is shown first, who second."""
        first, second = balanced_columns(len(self.field.items))
        looks = np.concatenate((first, second)), np.concatenate((second, first))
        return looks[0][: self.field.looks], looks[1][: self.field.looks]


class Choice(NamedTuple):
    """A schedule and one sentence for people why it was taken."""

    schedule: Schedule
    reason: str


def missing(
    pairings: Sequence[Pairing], results: Sequence[Result], undecided: Collection[Pairing | Group]
) -> list[Pairing]:
    """The comparisons that have neither a result nor a recorded failure, in the given order."""
    done: set[Pairing | Group] = {result.pairing for result in results if not result.group}
    done.update(undecided)
    return [pairing for pairing in pairings if pairing not in done]


def choose_schedule(
    items: Sequence[str],
    judges: Sequence[str],
    *,
    max_comparisons: int | None,
    winner_count: int = 1,
    payout_bps: Sequence[int] | None = None,
    name: str = "auto",
    features: Floats | None = None,
) -> Choice:
    """`auto`: both orders of all pairs if they fit `max_comparisons`; else all pairs once, and what is left goes to
    swaps that matter for the paid places; else adaptive. Any other name is taken as asked, within `max_comparisons`.
    """
    field = Field(tuple(items), tuple(judges), max_comparisons)
    shares = None if payout_bps is None else tuple(payout_bps)
    adaptive = Adaptive(field, winner_count, shares)
    fixed: dict[str, Schedule] = {"full": Full(field), "both": Both(field), "adaptive": adaptive}
    fixed["full+"] = replace(adaptive, opening="full", name="full+")
    if name == "fours" and "rules" not in judges:
        return Choice(
            Fours(field, winner_count, shares, features=features),
            "Orders of four first, then pairs where they matter for the paid places, as asked for." + _jury_note(field),
        )
    if name == "fours":
        return Choice(adaptive, "Rules compare pairs only, so the schedule fours became adaptive." + _jury_note(field))
    if name in fixed:
        return Choice(fixed[name], f"The schedule {name} was asked for." + _jury_note(field))
    if name != "auto":
        raise BadInput(
            f"There is no schedule {name!r}.",
            path="schedule",
            value=name,
            remedy="Use auto, full, full+, both, adaptive or fours.",
        )
    return _auto(field, fixed)


def _auto(field: Field, fixed: dict[str, Schedule]) -> Choice:
    pairs, size, voices = comb(len(field.items), 2), len(field.items), len(field.judges)
    allowed = "no limit" if field.max_comparisons is None else f"{field.max_comparisons} games"
    jury = f" × {voices} judges" if voices > 1 else ""
    note = _jury_note(field)
    if field.looks is None or field.looks >= 2 * pairs:
        return Choice(fixed["both"], f"All {pairs} pairs in both orders{jury} fit ({allowed}).{note}")
    if field.looks >= pairs:
        return Choice(
            fixed["full+"],
            f"All {pairs} pairs once{jury}, and {field.looks - pairs} swapped looks where they matter for the paid "
            f"places ({allowed}).{note}",
        )
    return Choice(
        fixed["adaptive"],
        f"All {pairs} pairs{jury} do not fit ({allowed}), so the calls go where they matter for the "
        f"paid places.{_thin(field.looks, size, pairs)}{note}",
    )


def _jury_note(field: Field) -> str:
    """What a jury should know about its own worth; nothing where one judge decides."""
    voices, both = len(field.judges), 2 * comb(len(field.items), 2)
    if voices < 2:
        return ""
    enough = 0 if field.max_comparisons is None or not both else field.max_comparisons // both
    if not 0 < enough < voices:
        return f" {JURY_NOTE}"
    judges = "one judge" if enough == 1 else f"{enough} judges"
    return f" {JURY_NOTE} {FEWER_JUDGES_NOTE.format(judges=judges)}"


def _thin(looks: int, size: int, pairs: int) -> str:
    if looks >= min(pairs, CALLS_PER_ITEM * size):
        return ""
    return f" That is less than the {CALLS_PER_ITEM} calls per item at which this is as good as all pairs once."
