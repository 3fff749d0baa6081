"""Which games to ask next: every pair once, every pair in both orders, or only where it matters for the money.

A schedule is a pure function of items, judges, budget and the answers so far: an interrupted tournament goes on by
handing in the recorded results. It returns batches; an empty batch means finished. Every judge sees each chosen pair in
the same order of sides. An undecided game is spent: it is never asked again and counts for nobody. `choose_schedule`
picks the richest schedule that fits the calls that money and time allow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import NamedTuple, Protocol

import numpy as np

from clara_eval.errors import BadInput
from clara_eval.tournament.results import Game, Group, Result
from clara_eval.tournament.tally import Floats, Ints

CALLS_PER_ITEM = 7.5  # what the adaptive schedule needs from a hundred items on to match the full one

JURY_NOTE = (
    "Judges who err alike add little: the swapped order of one judge tells as much as a second judge in the same one, "
    "for the same price. How alike they err is measured, and counted."
)


class Schedule(Protocol):
    """`next_batch` gives the games to ask now; the same answers always give the same games."""

    @property
    def name(self) -> str: ...

    @property
    def most_questions(self) -> int:
        """How many questions there will be at most: what progress is measured against."""
        ...

    def next_batch(
        self, results: Sequence[Result], undecided: Collection[Game | Group] = ()
    ) -> Sequence[Game | Group]: ...


@dataclass(frozen=True, slots=True)
class Field:
    """Who plays, who judges and how many games may be asked in all (None: no limit)."""

    items: tuple[str, ...]
    judges: tuple[str, ...] = ("",)
    max_games: int | None = None

    def __post_init__(self) -> None:
        if len(set(self.items)) != len(self.items):
            raise BadInput("An item appears twice in the tournament.", path="items", remedy="List every item once.")
        if not self.judges or len(set(self.judges)) != len(self.judges):
            raise BadInput("A tournament needs judges, each listed once.", path="judges", value=self.judges)

    @property
    def looks(self) -> int | None:
        """Ordered pairs that may be shown: a look costs one game for each judge."""
        return None if self.max_games is None else max(0, self.max_games) // len(self.judges)

    def most_questions(self, orders: int) -> int:
        """Every pair in one or both orders for every judge, or what may be asked in all."""
        everything = orders * comb(len(self.items), 2)
        return min(everything, everything if self.looks is None else self.looks) * len(self.judges)

    def games(self, looks: Sequence[tuple[int, int]]) -> list[Game]:
        """Each look for every judge."""
        return [Game(self.items[a], self.items[b], judge) for a, b in looks for judge in self.judges]


def balanced_looks(size: int) -> Iterator[tuple[int, int]]:
    """Every pair i < j once; i is shown first if i + j is odd, so that everybody is A as often as B (±1)."""
    for i in range(size):
        for j in range(i + 1, size):
            yield (i, j) if (i + j) % 2 else (j, i)


def balanced_columns(size: int) -> tuple[Ints, Ints]:
    """The same as two columns of indices."""
    low, high = np.triu_indices(size, 1)
    is_odd = (low + high) % 2 == 1
    return np.where(is_odd, low, high), np.where(is_odd, high, low)


def is_shown(schedule: str, size: int, count: int, first: int, second: int) -> bool:
    """Whether a look at these two, in this order, is among the first `count` of `full` or `both`."""
    low, high = min(first, second), max(first, second)
    place = low * size - low * (low + 1) // 2 + high - low - 1
    is_balanced = (first == low) == bool((low + high) % 2)
    if not is_balanced and schedule != "both":
        return False
    return place + (0 if is_balanced else comb(size, 2)) < count


@dataclass(frozen=True, slots=True)
class Full:
    """Every pair once, sides balanced."""

    field: Field
    name: str = "full"

    @property
    def most_questions(self) -> int:
        return self.field.most_questions(1)

    def next_batch(self, results: Sequence[Result], undecided: Collection[Game | Group] = ()) -> list[Game]:
        looks = list(balanced_looks(len(self.field.items)))[: self.field.looks]
        return missing(self.field.games(looks), results, undecided)

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

    def next_batch(self, results: Sequence[Result], undecided: Collection[Game | Group] = ()) -> list[Game]:
        once = list(balanced_looks(len(self.field.items)))
        swapped = [(b, a) for a, b in once]
        rest = missing(self.field.games(once[: self.field.looks]), results, undecided)
        if rest or (self.field.looks is not None and self.field.looks <= len(once)):
            return rest
        allowed = None if self.field.looks is None else self.field.looks - len(once)
        return missing(self.field.games(swapped[:allowed]), results, undecided)

    def columns(self) -> tuple[Ints, Ints]:
        """All its looks at once: who is shown first, who second."""
        first, second = balanced_columns(len(self.field.items))
        looks = np.concatenate((first, second)), np.concatenate((second, first))
        return looks[0][: self.field.looks], looks[1][: self.field.looks]


class Choice(NamedTuple):
    """A schedule and one sentence for people why it was taken."""

    schedule: Schedule
    reason: str


def missing(games: Sequence[Game], results: Sequence[Result], undecided: Collection[Game | Group]) -> list[Game]:
    """The games that have neither a result nor a recorded failure, in the given order."""
    done: set[Game | Group] = {result.game for result in results if not result.group}
    done.update(undecided)
    return [game for game in games if game not in done]


def choose_schedule(
    items: Sequence[str],
    judges: Sequence[str],
    *,
    max_games: int | None,
    winner_count: int = 1,
    payout_bps: Sequence[int] | None = None,
    name: str = "auto",
    features: Floats | None = None,
) -> Choice:
    """`auto`: both orders of all pairs if they fit `max_games`; else all pairs once, and what is left goes to swaps
    that matter for the paid places; else adaptive. Any other name is taken as asked, within `max_games`.
    """
    from clara_eval.tournament.adaptive import Adaptive
    from clara_eval.tournament.fours import Fours

    field = Field(tuple(items), tuple(judges), max_games)
    shares = None if payout_bps is None else tuple(payout_bps)
    adaptive = Adaptive(field, winner_count, shares)
    fixed: dict[str, Schedule] = {"full": Full(field), "both": Both(field), "adaptive": adaptive}
    fixed["full+"] = replace(adaptive, opening="full", name="full+")
    if name == "fours" and "rules" not in judges:
        return Choice(
            Fours(field, winner_count, shares, features=features),
            "Orders of four first, then pairs where they matter for the paid places, as asked for.",
        )
    if name == "fours":
        return Choice(adaptive, "Rules compare pairs only, so the schedule fours became adaptive.")
    if name in fixed:
        return Choice(fixed[name], f"The schedule {name} was asked for.")
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
    allowed = "no limit" if field.max_games is None else f"{field.max_games} games"
    jury = f" × {voices} judges" if voices > 1 else ""
    note = f" {JURY_NOTE}" if voices > 1 else ""
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


def _thin(looks: int, size: int, pairs: int) -> str:
    if looks >= min(pairs, CALLS_PER_ITEM * size):
        return ""
    return f" That is less than the {CALLS_PER_ITEM} calls per item at which this is as good as all pairs once."
