"""Choose the questions to ask: each pair once, in both orders, or those that matter for the prizes.

A schedule is a pure function of items, judges, budget and results so far. It returns batches, at the end an empty one;
no question is asked twice, even if it got no verdict. The formula of the gain: docs/trace-format.md, section 8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from math import ceil, comb

import numpy as np

from clara_eval.core.errors import BadInput
from clara_eval.ranking.chances import CLEAR, draw_places, due_shares, set_chances
from clara_eval.ranking.model import ORDER_WEIGHT, REPEATING, Strengths, fit, one_thread
from clara_eval.ranking.results import (
    Bools,
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

FOURS_FROM = 8  # items; for fewer, all pairs in both orders cost hardly more than orders of four
NAMES = ("auto", "full", "both", "adaptive", "fours")
FOUR = 4
GROUP_ROUNDS = 2  # orders that show each item, before the gains are known
ITEMS_PER_GROUP = 12  # one group per so many items in a batch: a third of the items are shown before the next fit
GROUPS_PER_ITEM = 2.5  # at most; then pairs, which show the errors that orders share
MAX_CANDIDATES = 48  # items whose gain is computed; the others are almost never paid
MAX_PER_ITEM = 3  # questions per batch; the next ones depend on their answers
VERDICT_VARIANCE = 0.2  # p (1 − p) of two items near the pay line
WORTH_ASKING = 3e-5  # gain, squared share of the prize; with 25 items, more calls do not lower misallocation (bench)
QUESTIONS_PER_ITEM = 9.0  # usual number, for a quote
Look = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Ask for the largest gain, after connecting all items by pairs (`adaptive`) or by orders of `fours`."""

    field: Field
    payout_bps: tuple[int, ...] = (10_000,)
    name: str = "adaptive"  # or "fours"
    reason: str = ""
    worth_asking: float = WORTH_ASKING

    @property
    def most_questions(self) -> int:
        return self.field.most_questions(2)

    @property
    def usual_questions(self) -> int:
        """Expected number of questions, for a quote; an order counts as two, since it shows four items."""
        size, judges = len(self.field.items), len(self.field.judges)
        orders = GROUPS_PER_ITEM if self._uses_fours else 0.0
        return min(ceil((QUESTIONS_PER_ITEM + orders) * size) * judges, self.most_questions)

    def explain(self, asked: Iterable[Pairing | Group]) -> str:
        """Return why this schedule was chosen and, if it ended early, why."""
        count, most = len(set(asked)), self.most_questions
        if count >= most:
            return self.reason
        ended = f"It ended after {count} of at most {most} questions: by this judge, every paid place is clear, or no"
        moves = f"move the prizes by more than {100 * self.worth_asking**0.5:.1f} % of the pot"
        return f"{self.reason} {ended} other answer is expected to {moves}."

    @property
    def _uses_fours(self) -> bool:
        return self.name == "fours" and len(self.field.items) > FOUR

    def next_batch(
        self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()
    ) -> list[Pairing | Group]:
        asked = _AskedQuestions(self.field, results, undecided)
        if asked.left <= 0 or len(self.field.items) < 2:
            return []
        return [
            Pairing(*look, judge) if len(look) == 2 else Group(look, judge)
            for look in (tuple(self.field.items[i] for i in shown) for shown in self._choose(asked)[: asked.left])
            for judge in self.field.judges
        ]

    def _choose(self, asked: _AskedQuestions) -> Sequence[tuple[int, ...]]:
        size = len(self.field.items)
        table = tally(self.field.items, asked.results)
        strengths = fit(table)
        order = np.argsort(-np.round(strengths.theta, 6), kind="stable")  # rounded, to be equal on every processor
        if self._uses_fours and asked.can_order and asked.groups < GROUP_ROUNDS * -(-size // FOUR):
            return [asked.take_sequence(group) for group in _split_into_fours(order)]
        if bridges := _bridges(order, (table.met > 0) | asked.pairs | asked.pairs.T):
            return asked.choose_sides(bridges)
        return self._best_questions(asked, strengths, order)

    def _best_questions(self, asked: _AskedQuestions, strengths: Strengths, order: Ints) -> Sequence[tuple[int, ...]]:
        """Return the groups or pairs with the largest gain; none if every paid place is clear."""
        size, paid = len(self.field.items), len(self.payout_bps)
        draws, places = draw_places(strengths)
        if set_chances(places, order.tolist(), paid).min() >= CLEAR:
            return []
        pay = due_shares(places, self.payout_bps)
        likeliest = np.lexsort((np.arange(size), -np.round(strengths.theta, 6), -pay.mean(axis=0)))
        chosen = np.sort(likeliest[:MAX_CANDIDATES])
        gain = np.zeros((size, size))
        gain[np.ix_(chosen, chosen)] = gains(draws[:, chosen], pay[:, pay.any(axis=0)])
        unseen = added_weight(asked.shown, strengths)
        pair_gain = gain * np.where(asked.pairs, 0.0, unseen)
        orders_help = asked.can_order and strengths.same < REPEATING
        if self._uses_fours and orders_help and asked.groups < GROUPS_PER_ITEM * size:
            group_gain, count = gain * np.maximum(unseen, unseen.T), max(2, size // ITEMS_PER_GROUP)
            groups = [group for group in _best_groups(group_gain, count) if asked.fairest_sequence(group)]
            worth = max((float(group_gain[np.ix_(group, group)].sum()) / 2 for group in groups), default=0.0)
            if ORDER_WEIGHT * worth >= max(self.worth_asking, pair_gain.max()):
                return [shown for group in groups if (shown := asked.take_sequence(group))]
        looks = _best_looks(np.round(pair_gain, 12), min(max(2, size // FOUR), 25), self.worth_asking)
        return asked.choose_sides(looks)


class _AskedQuestions:
    """Questions that these judges were asked so far; `shown` counts the results by (first, second)."""

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
        self.can_order = 2 * unordered <= sum(isinstance(question, Group) for question in questions)
        """False if most requested orders failed; then only pairs are asked."""
        for result in own:
            self.shown[index[result.first], index[result.second]] += 1 / len(field.judges)

    def fairest_sequence(self, group: Sequence[int]) -> tuple[int, ...]:
        """Return the new sequence that best balances pairs, then sides; () if none is new."""
        late = self.shown.sum(axis=0) - self.shown.sum(axis=1)

        def unfairness(order: tuple[int, ...]) -> tuple[float, float]:
            repeats = sum(self.shown[a, b] for a, b in combinations(order, 2))
            imbalance = sum((late[item] + 2 * place - 3) ** 2 for place, item in enumerate(order))
            return round(float(repeats), 6), round(float(imbalance), 6)

        unseen = (order for order in permutations(group) if order not in self._sequences)
        return min(unseen, key=unfairness, default=())

    def take_sequence(self, group: Sequence[int]) -> tuple[int, ...]:
        """Take the fairest new sequence and count it as shown; () if none is new."""
        chosen = self.fairest_sequence(group)
        self._sequences.add(chosen)
        for a, b in combinations(chosen, 2):
            self.shown[a, b] += 1
        return chosen

    def choose_sides(self, pairs: Sequence[Look]) -> list[Look]:
        """Put each pair in the sequence that was not asked, was shown less, or balances the sides."""
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
    """Return the gain of each pair, Σ_m Cov(pay_m, p_ij)² / (p̄ (1 − p̄)), as a symmetric table."""
    odds = np.exp(draws.T)  # cannot overflow: the prior keeps strengths within tens of logits
    centred = pay - pay.mean(axis=0)
    table = np.zeros((len(odds), len(odds)))
    with one_thread():
        for i in range(len(odds) - 1):
            p = odds[i] / (odds[i] + odds[i + 1 :])
            mean = p.mean(axis=1)
            covariance = p @ centred / len(draws)
            table[i, i + 1 :] = np.sum(covariance**2, axis=1) / np.maximum(mean * (1 - mean), 1e-9)
    return table + table.T


def added_weight(shown: Floats, strengths: Strengths) -> Floats:
    """Return the model's weight that one more look at (a, b) adds; a first look adds 1."""

    def weight(same: Floats, other: Floats) -> Floats:
        shared = np.maximum(same - 1, 0) * strengths.same + other * strengths.pair
        return same / (1 + VERDICT_VARIANCE * shared)

    now = weight(shown, shown.T) + weight(shown.T, shown)
    then: Floats = weight(shown + 1, shown.T) + weight(shown.T, shown + 1)
    return np.maximum(then - now, 0.0)


def _bridges(order: Ints, met: Bools) -> list[Look]:
    """Return pairs that connect the groups that never met: the best of each, neighbours by strength."""
    group = connected_groups(met)
    _, first = np.unique(group[order], return_index=True)
    return list(pairwise(order[np.sort(first)].tolist()))


def _split_into_fours(order: Ints) -> list[list[int]]:
    """Split the order into fours; the last four overlap the ones before if needed."""
    starts = [*range(0, len(order) - FOUR + 1, FOUR)]
    if len(order) % FOUR:
        starts.append(len(order) - FOUR)
    return [order[start : start + FOUR].tolist() for start in starts]


def _best_groups(worth: Floats, count: int) -> Iterator[list[int]]:
    """Yield groups of four: the pair with the largest gain, then the items that add most to it."""
    rest = np.round(worth, 12)
    for _ in range(count):
        if not rest.any():
            return
        group = [int(k) for k in np.unravel_index(int(np.argmax(rest)), rest.shape)]
        while len(group) < FOUR:
            value = rest[group].sum(axis=0)
            value[group] = -1.0
            group.append(int(np.argmax(value)))
        rest[np.ix_(group, group)] *= 0.3  # rough worth of a second look in one batch
        yield group


def _best_looks(worth: Floats, batch: int, least: float) -> list[Look]:
    """Return up to `batch` pairs by gain, at most MAX_PER_ITEM for each item."""
    best = np.triu(np.maximum(worth, worth.T), 1)
    load = np.zeros(len(best), dtype=np.int64)
    chosen: list[Look] = []
    for place in np.argsort(-best, axis=None, kind="stable")[: 50 * batch].tolist():
        a, b = divmod(place, len(best))
        if best[a, b] < least or best[a, b] <= 0 or len(chosen) == batch:
            break
        if max(load[a], load[b]) < MAX_PER_ITEM:
            chosen.append((a, b))
            load[[a, b]] += 1
    return chosen


@dataclass(frozen=True, slots=True)
class Fixed:
    """Ask every pair once with balanced sides (`full`), then also with swapped sides (`both`)."""

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

    def explain(self, _asked: Iterable[Pairing | Group]) -> str:
        return self.reason

    def columns(self) -> tuple[Ints, Ints]:
        """Return all looks: the items shown first, and those shown second."""
        first, second = balanced_columns(len(self.field.items))
        if self.is_both:
            first, second = np.concatenate((first, second)), np.concatenate((second, first))
        return first[: self.field.looks], second[: self.field.looks]

    def next_batch(self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()) -> list[Pairing]:
        """Return the pairs of the first order, then those of the second, that were not asked yet."""
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
    """Ask the first judge everything, and each further judge only what is still worth asking."""

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

    def explain(self, asked: Iterable[Pairing | Group]) -> str:
        questions = set(asked)
        first, *later = ([q for q in questions if q.judge in stage.field.judges] for stage in self.stages)
        then = [f"Then {some[0].judge} was asked {len(some)} questions near the paid places." for some in later if some]
        return " ".join([self.stages[0].explain(first), *then])

    def next_batch(
        self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()
    ) -> Sequence[Pairing | Group]:
        judges: set[str] = set()
        for stage in self.stages:
            judges |= set(stage.field.judges)
            known = [result for result in results if result.judge in judges]
            if batch := stage.next_batch(known, [question for question in undecided if question.judge in judges]):
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
    """Choose a schedule of at most `max_comparisons` questions; BadInput for an unknown name.

    `literal` asks every pair once. `in_turn` splits the budget equally between the judges.
    """
    if name not in NAMES:
        remedy = f"Use {', '.join(NAMES[:-1])} or {NAMES[-1]}."
        raise BadInput(f"There is no schedule {name!r}.", path="schedule", value=name, remedy=remedy)
    if literal and name not in {"auto", "full"}:
        problem = f"CLARA_ELO=literal takes every pair once, but the schedule {name} was asked for."
        raise BadInput(problem, path="schedule", value=name, remedy="Leave out the schedule, or CLARA_ELO.")
    payout = checked_payout(winner_count, payout_bps)
    juries = [(judge,) for judge in judges] if in_turn and not literal else [tuple(judges)]
    each = None if max_comparisons is None else max_comparisons // max(1, len(juries))
    first, *later = (Field(tuple(items), jury, each) for jury in juries)
    stages = (_choose_stage(first, payout, name, literal=literal), *(Adaptive(field, payout) for field in later))
    return InTurn(stages) if later else stages[0]


def _choose_stage(field: Field, payout: tuple[int, ...], name: str, *, literal: bool) -> Adaptive | Fixed:
    if literal:
        return Fixed(field, reason="Every pair once, for the specification's single pass (CLARA_ELO=literal).")
    chosen, reason = (name, f"The schedule {name} was asked for.") if name != "auto" else _choose_name(field)
    if chosen == "fours" and "rules" in field.judges:
        chosen, reason = "adaptive", "Rules compare pairs only, so the schedule fours became adaptive."
    if chosen in {"full", "both"}:
        return Fixed(field, chosen == "both", reason)
    return Adaptive(field, payout, chosen, reason)


def _choose_name(field: Field) -> tuple[str, str]:
    """Return the name of a schedule, and one sentence why."""
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
