"""Which questions to ask: every pair once, every pair in both orders, or those that matter for the money.

A schedule is a pure function of items, judges, budget and the answers so far, batch by batch; an empty batch is the
end. A question without a verdict is spent; none is asked twice. The gain is in docs/trace-format.md, section 8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from math import ceil, comb
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from clara_eval.core.errors import BadInput
from clara_eval.ranking.chances import CLEAR, draw_places, due_shares, set_chances
from clara_eval.ranking.model import ORDER_WEIGHT, REPEATING, Strengths, fit, one_thread
from clara_eval.ranking.results import (
    Field,
    Floats,
    Group,
    Ints,
    Pairing,
    Result,
    balanced_columns,
    checked_payout,
    connected_groups,
    tally,
)

FOURS_FROM = 8  # items: below, all pairs in both orders cost hardly more than orders of four
NAMES = ("auto", "full", "both", "adaptive", "fours")
FOUR = 4
GROUP_ROUNDS = 2  # of everybody, before anything is known of who may be paid
GROUPS_AT_ONCE = 12  # items for each group of a batch: a third of them are shown before the next fit
GROUPS_PER_ITEM = 2.5  # then pairs: they show what orders of one judge have in common
MOST_CANDIDATES = 48  # items: the others are paid in no draw that counts
MOST_PER_ITEM = 3  # questions in one batch: more would ask what the batch itself settles
NEAR_EQUAL = 0.2  # variance of a verdict between two near the pay line
WORTH_ASKING = 3e-5  # of the squared pot: at 25 entries more calls leave the misplaced money as it is (bench)
QUESTIONS_PER_ITEM = 9.0  # usually, until no question is worth asking
Look = tuple[int, int]
AdaptiveName = Literal["adaptive", "fours"]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Questions by their gain, after a chain of all (`adaptive`) or orders of `fours`."""

    field: Field
    payout_bps: tuple[int, ...] = (10_000,)
    name: AdaptiveName = "adaptive"
    reason: str = ""
    worth_asking: float = WORTH_ASKING

    @property
    def most_questions(self) -> int:
        return self.field.most_questions(2)

    @property
    def usual_questions(self) -> int:
        """How many questions a round usually takes; for a quote an order counts as two, since it shows four."""
        size, judges = len(self.field.items), len(self.field.judges)
        orders = GROUPS_PER_ITEM if self._in_fours else 0.0
        return min(ceil((QUESTIONS_PER_ITEM + orders) * size) * judges, self.most_questions)

    def told(self, asked: Iterable[Pairing | Group]) -> str:
        """The reason, and what the rest of the budget would have bought."""
        count, most = len(set(asked)), self.most_questions
        if count >= most:
            return self.reason
        ended = f"It ended after {count} of at most {most} questions: by this judge, every paid place is clear, or no"
        moves = f"move the prizes by more than {100 * self.worth_asking**0.5:.1f} % of the pot"
        return f"{self.reason} {ended} other answer is expected to {moves}."

    @property
    def _in_fours(self) -> bool:
        return self.name == "fours" and len(self.field.items) > FOUR

    def next_batch(
        self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()
    ) -> list[Pairing | Group]:
        asked = _Asked(self.field, results, undecided)
        if asked.left <= 0 or len(self.field.items) < 2:
            return []
        return [
            Pairing(*look, judge) if len(look) == 2 else Group(look, judge)
            for look in (tuple(self.field.items[i] for i in shown) for shown in self._choose(asked)[: asked.left])
            for judge in self.field.judges
        ]

    def _choose(self, asked: _Asked) -> Sequence[tuple[int, ...]]:
        size = len(self.field.items)
        table = tally(self.field.items, asked.results)
        strengths = fit(table)
        order = np.argsort(-np.round(strengths.theta, 6), kind="stable")  # rounded: the same on every processor
        if self._in_fours and asked.takes_orders and asked.groups < GROUP_ROUNDS * -(-size // FOUR):
            return [asked.show(group) for group in _by_fours(order)]
        if bridges := _bridges(order, (table.met > 0) | asked.pairs | asked.pairs.T):
            return asked.with_sides(bridges)
        return self._best(asked, strengths, order)

    def _best(self, asked: _Asked, strengths: Strengths, order: Ints) -> Sequence[tuple[int, ...]]:
        """The questions of one batch with the largest gain, groups or pairs; none if no other is needed."""
        size, paid = len(self.field.items), len(self.payout_bps)
        draws, places = draw_places(strengths)
        if set_chances(places, order.tolist(), paid).min() >= CLEAR:
            return []
        pay = due_shares(places, self.payout_bps)
        likeliest = np.lexsort((np.arange(size), -np.round(strengths.theta, 6), -pay.mean(axis=0)))
        chosen = np.sort(likeliest[:MOST_CANDIDATES])
        gain = np.zeros((size, size))
        gain[np.ix_(chosen, chosen)] = gains(draws[:, chosen], pay[:, pay.any(axis=0)])
        fresh = added(asked.shown, strengths)
        single = gain * np.where(asked.pairs, 0.0, fresh)
        orders_tell = asked.takes_orders and strengths.same < REPEATING
        if self._in_fours and orders_tell and asked.groups < GROUPS_PER_ITEM * size:
            several = gain * np.maximum(fresh, fresh.T)
            groups = [group for group in _best_groups(several, max(2, size // GROUPS_AT_ONCE)) if asked.sequence(group)]
            worth = max((float(several[np.ix_(group, group)].sum()) / 2 for group in groups), default=0.0)
            if ORDER_WEIGHT * worth >= max(self.worth_asking, single.max()):
                return [shown for group in groups if (shown := asked.show(group))]
        looks = _best_looks(np.round(single, 12), min(max(2, size // FOUR), 25), self.worth_asking)
        return asked.with_sides(looks)


class _Asked:
    """What these judges were asked so far: pairs by (first, second), groups, and how often a sequence was shown."""

    def __init__(self, field: Field, results: Sequence[Result], undecided: Collection[Pairing | Group]) -> None:
        index = {item: number for number, item in enumerate(field.items)}
        own = [result for result in results if result.judge in field.judges]
        failed = {question for question in undecided if question.judge in field.judges}
        questions = {result.question for result in own} | failed
        self.results = results
        self.left = field.looks - -(-len(questions) // len(field.judges))
        self.pairs = np.zeros((len(index), len(index)), dtype=bool)
        self.shown = np.zeros((len(index), len(index)))
        self._sequences: set[tuple[int, ...]] = set()
        for question in questions:
            if isinstance(question, Pairing):
                self.pairs[index[question.first], index[question.second]] = True
            else:
                self._sequences.add(tuple(index[item] for item in question.items))
        self.groups = len(self._sequences)
        unordered = sum(isinstance(question, Group) for question in failed)
        self.takes_orders = 2 * unordered <= sum(isinstance(question, Group) for question in questions)
        """False if a judge puts few in order that it was asked for: the rest is asked in pairs."""
        for result in own:
            self.shown[index[result.first], index[result.second]] += 1 / len(field.judges)

    def sequence(self, group: Sequence[int]) -> tuple[int, ...]:
        """The fairest new sequence: pairs in their rarer order, then late items early; () if none is new."""
        late = self.shown.sum(axis=0) - self.shown.sum(axis=1)

        def unfair(order: tuple[int, ...]) -> tuple[float, float]:
            again = sum(self.shown[a, b] for a, b in combinations(order, 2))
            lean = sum((late[item] + 2 * place - 3) ** 2 for place, item in enumerate(order))
            return round(float(again), 6), round(float(lean), 6)

        fresh = (order for order in permutations(group) if order not in self._sequences)
        return min(fresh, key=unfair, default=())

    def show(self, group: Sequence[int]) -> tuple[int, ...]:
        """Take the fairest new sequence, and count it as shown; () if there is none."""
        chosen = self.sequence(group)
        self._sequences.add(chosen)
        for a, b in combinations(chosen, 2):
            self.shown[a, b] += 1
        return chosen

    def with_sides(self, pairs: Sequence[Look]) -> list[Look]:
        """Show each pair in the sequence that was not asked yet, or shown less, or that balances the sides."""
        lead = (self.shown.sum(axis=1) - self.shown.sum(axis=0)).round(6)
        chosen = []
        for i, j in pairs:
            a, b = min(i, j), max(i, j)
            asked = int(self.pairs[a, b]) - int(self.pairs[b, a])
            more = (asked, float(self.shown[a, b] - self.shown[b, a]), float(lead[a] - lead[b]), (a + b) % 2 == 0)
            if more > (0, 0.0, 0.0, False):
                a, b = b, a
            lead[a] += 1
            lead[b] -= 1
            chosen.append((a, b))
        return chosen


def gains(draws: Floats, pay: Floats) -> Floats:
    """Σ_m Cov(pay_m, p_ij)² / (p̄ (1 − p̄)) for all pairs of these items, as a symmetric table."""
    odds = np.exp(draws.T)  # far from overflow: the prior holds strengths within some tens of logits
    centred = pay - pay.mean(axis=0)
    table = np.zeros((len(odds), len(odds)))
    with one_thread():
        for i in range(len(odds) - 1):
            p = odds[i] / (odds[i] + odds[i + 1 :])
            mean = p.mean(axis=1)
            covariance = p @ centred / len(draws)
            table[i, i + 1 :] = np.sum(covariance**2, axis=1) / np.maximum(mean * (1 - mean), 1e-9)
    return table + table.T


def added(shown: Floats, strengths: Strengths) -> Floats:
    """What one more look at (a, b) adds, in first looks: the model's weights with it, less those without it."""

    def told(same: Floats, other: Floats) -> Floats:
        shared = np.maximum(same - 1, 0) * strengths.same + other * strengths.pair
        return same / (1 + NEAR_EQUAL * shared)

    now = told(shown, shown.T) + told(shown.T, shown)
    then: Floats = told(shown + 1, shown.T) + told(shown.T, shown + 1)
    return np.maximum(then - now, 0.0)


def _bridges(order: Ints, met: Bools) -> list[Look]:
    """Connect groups that never met: the best of each, neighbours by strength."""
    group = connected_groups(met)
    _, first = np.unique(group[order], return_index=True)
    return list(pairwise(order[np.sort(first)].tolist()))


def _by_fours(order: Ints) -> list[list[int]]:
    """Neighbours in fours; the last group is filled with the neighbours before it."""
    starts = [*range(0, len(order) - FOUR + 1, FOUR)]
    if len(order) % FOUR:
        starts.append(len(order) - FOUR)
    return [order[start : start + FOUR].tolist() for start in starts]


def _best_groups(worth: Floats, count: int) -> Iterator[list[int]]:
    """Groups of four with much to tell: the best pair, and the items that tell most beside it."""
    rest = np.round(worth, 12)
    for _ in range(count):
        if not rest.any():
            return
        group = [int(k) for k in np.unravel_index(int(np.argmax(rest)), rest.shape)]
        while len(group) < FOUR:
            value = rest[group].sum(axis=0)
            value[group] = -1.0
            group.append(int(np.argmax(value)))
        rest[np.ix_(group, group)] *= 0.3  # what a second look in one batch is still worth
        yield group


def _best_looks(worth: Floats, batch: int, least: float) -> list[Look]:
    """Pairs by what a look at them is worth, few for each item."""
    best = np.triu(np.maximum(worth, worth.T), 1)
    load = np.zeros(len(best), dtype=np.int64)
    chosen: list[Look] = []
    for place in np.argsort(-best, axis=None, kind="stable")[: 50 * batch].tolist():
        a, b = divmod(place, len(best))
        if best[a, b] < least or best[a, b] <= 0 or len(chosen) == batch:
            break
        if max(load[a], load[b]) < MOST_PER_ITEM:
            chosen.append((a, b))
            load[[a, b]] += 1
    return chosen


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
            shown = ((self.field.items[a], self.field.items[b]) for a, b in part)
            pairings = (Pairing(*look, judge) for look in shown for judge in self.field.judges)
            if rest := [pairing for pairing in pairings if pairing not in done]:
                return rest
        return []


@dataclass(frozen=True, slots=True)
class InTurn:
    """One judge for all, and each further judge for what is worth asking near the money after the ones before it."""

    stages: tuple[Adaptive | Fixed, ...]

    @property
    def name(self) -> str:
        return self.stages[0].name

    @property
    def most_questions(self) -> int:
        return sum(stage.most_questions for stage in self.stages)

    @property
    def usual_questions(self) -> int:
        return sum(stage.usual_questions for stage in self.stages)

    def told(self, asked: Iterable[Pairing | Group]) -> str:
        questions = set(asked)
        first, *later = ([q for q in questions if q.judge in stage.field.judges] for stage in self.stages)
        then = [f"Then {some[0].judge} was asked {len(some)} questions near the paid places." for some in later if some]
        return " ".join([self.stages[0].told(first), *then])

    def next_batch(
        self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()
    ) -> Sequence[Pairing | Group]:
        heard: set[str] = set()
        for stage in self.stages:
            heard |= set(stage.field.judges)
            known = [result for result in results if result.judge in heard]
            if batch := stage.next_batch(known, [question for question in undecided if question.judge in heard]):
                return batch
        return []


Schedule = Adaptive | Fixed | InTurn


def choose_schedule(
    items: Sequence[str],
    judges: Sequence[str],
    *,
    max_comparisons: int | None,
    winner_count: int = 1,
    payout_bps: Sequence[int] | None = None,
    name: str = "auto",
    literal: bool = False,
    in_turn: bool = False,
) -> Schedule:
    """Choose a schedule within `max_comparisons`; `auto` takes orders of four if there are eight items or more.

    The specification's single pass (`literal`) takes every pair once. `in_turn`: further judges only near the money,
    each with its share of the budget.
    """
    if name not in NAMES:
        remedy = f"Use {', '.join(NAMES[:-1])} or {NAMES[-1]}."
        raise BadInput(f"There is no schedule {name!r}.", path="schedule", value=name, remedy=remedy)
    if literal and name not in {"auto", "full"}:
        told = f"CLARA_ELO=literal takes every pair once, but the schedule {name} was asked for."
        raise BadInput(told, path="schedule", value=name, remedy="Leave out the schedule, or CLARA_ELO.")
    payout = checked_payout(winner_count, payout_bps)
    voices = [(judge,) for judge in judges] if in_turn and not literal else [tuple(judges)]
    each = None if max_comparisons is None else max_comparisons // max(1, len(voices))
    first, *later = (Field(tuple(items), voice, each) for voice in voices)
    stages = (_alone(first, payout, name, literal=literal), *(Adaptive(field, payout) for field in later))
    return InTurn(stages) if later else stages[0]


def _alone(field: Field, payout: tuple[int, ...], name: str, *, literal: bool) -> Adaptive | Fixed:
    if literal:
        return Fixed(field, reason="Every pair once, for the specification's single pass (CLARA_ELO=literal).")
    chosen, reason = (name, f"The schedule {name} was asked for.") if name != "auto" else _auto(field)
    if chosen == "fours" and "rules" in field.judges:
        chosen, reason = "adaptive", "Rules compare pairs only, so the schedule fours became adaptive."
    if chosen in {"full", "both"}:
        return Fixed(field, chosen == "both", reason)
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
    if field.looks >= pairs and "rules" in field.judges:
        return "full", f"All {pairs} pairs once{jury} fit ({allowed})."
    why = f"All {pairs} pairs in both orders{jury} do not fit ({allowed})"
    return "adaptive", f"{why}, so the calls go where they matter for the paid places."
