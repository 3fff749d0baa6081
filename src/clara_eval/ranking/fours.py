"""A schedule that begins with questions about four at once, and goes on in pairs.

Two rounds in which everybody is shown once among four; the answer is a full order, from which six pairs are read off.
The first round takes neighbours in canonical order (a hash, so by lot), the second neighbours by fitted strength. Then
batches of groups among those who may still be paid: the four between whom a verdict would tell most about the prizes.
Who was shown late is shown early the next time, and two who were shown in one sequence are shown in the other. After
that every call goes to a pair, as in the adaptive schedule, with what the orders said as known. What must hold: a pure
function of the answers, no group is put to the same judge twice in the same order, and pairs read off are never taken
for pairs that were asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from hashlib import sha256
from itertools import combinations, permutations

import numpy as np

from clara_eval.ranking.adaptive import (
    Adaptive,
    Tuning,
    objective,
    pair_gains,
    repeated,
)
from clara_eval.ranking.estimate import LOOK, estimate
from clara_eval.ranking.field import Field
from clara_eval.ranking.results import Group, Pairing, Result
from clara_eval.ranking.strength import Strengths
from clara_eval.ranking.tally import (
    HALF_POINTS,
    Floats,
    Ints,
    Tally,
    tally,
)

FOUR = 4
LEAN = (-3, -1, 1, 3)  # how late each position is
FAIR = 4  # in all
ROUNDS = 2
GROUPS_PER_ITEM = 2.5  # then pairs; fewer for a judge whose orders repeat each other
DEFAULT = Tuning()
SEEN_NOW = 0.3  # what a second look at a pair is still worth in the batch that holds the first
Question = tuple[tuple[str, ...], str]  # the items as shown, and the judge
Answers = Mapping[Question, list[Result]]


@dataclass(frozen=True, slots=True)
class Fours:
    """Four-way questions within the budget of the field, then the adaptive schedule."""

    field: Field
    winner_count: int = 1
    payout_bps: tuple[int, ...] | None = None
    tuning: Tuning = DEFAULT
    features: Floats | None = None
    rounds: int = ROUNDS
    groups_per_item: float = GROUPS_PER_ITEM
    name: str = "fours"
    _memo: dict[tuple[int, bytes], list[Group]] = attribute(default_factory=dict, init=False, compare=False, repr=False)
    _fits: dict[bytes, Strengths] = attribute(default_factory=dict, init=False, compare=False, repr=False)
    _pairs: dict[bytes, Adaptive] = attribute(default_factory=dict, init=False, compare=False, repr=False)
    _heard: dict[bytes, tuple[list[list[Result]], bytes]] = attribute(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def most_questions(self) -> int:
        return self.field.most_questions(2)

    def next_batch(
        self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()
    ) -> Sequence[Pairing | Group]:
        answers = _answers(results, undecided)
        asked: list[Group] = []
        story = before = b""
        for number in range(len(answers) + 1):
            groups = self._batch(number, asked, answers, (before, story))
            waiting = [group for group in groups if (group.items, group.judge) not in answers]
            if waiting:
                return waiting
            if not groups:
                break
            asked += groups
            before, story = story, self._told(story, [answers[group.items, group.judge] for group in groups])
        pairs = [result for result in results if not result.group]
        pairings = [question for question in undecided if isinstance(question, Pairing)]
        return self._then(asked, answers, story).next_batch(pairs, pairings)

    def _batch(
        self, number: int, asked: Sequence[Group], answers: Answers, stories: tuple[bytes, bytes]
    ) -> list[Group]:
        """The groups after these, each for every judge; remembered, since replaying asks for them again."""
        key = number, stories[1]
        if key not in self._memo:
            left = self._left(len(asked) // len(self.field.judges))
            shown = self._choose(number, asked, answers, stories)[:left] if left > 0 else []
            self._memo[key] = [Group(group, judge) for group in shown for judge in self.field.judges]
        return self._memo[key]

    def _left(self, spent: int) -> int:
        """How many more groups may be shown."""
        size, looks = len(self.field.items), self.field.looks
        most = round(self.groups_per_item * size) if size > FOUR else 0
        return (most if looks is None else min(most, looks)) - spent

    def _choose(
        self, number: int, asked: Sequence[Group], answers: Answers, stories: tuple[bytes, bytes]
    ) -> list[tuple[str, ...]]:
        turned = _Turns(self.field.items, asked[:: len(self.field.judges)], answers)
        if number == 0:
            return [turned.shown(group) for group in by_fours(np.arange(len(self.field.items)))]
        strengths = self._fit(asked, answers, stories)
        if number < self.rounds:  # rounded, so that equals stay equal on every processor
            order = np.argsort(-np.round(strengths.theta, 6), kind="stable")
            return [turned.shown(group) for group in by_fours(order)]
        if self._is_heard(strengths, len(asked) // len(self.field.judges)):
            return []
        prizes = objective(self.payout_bps, min(self.winner_count, len(self.field.items)), self.tuning)
        chosen, gain = pair_gains(strengths, prizes, self.tuning)
        gain = gain * repeated(strengths.scale, before := turned.before(chosen), np.minimum(before, before.T))
        batch = max(2, len(self.field.items) // 12)
        return [turned.shown(chosen[group]) for group in best_groups(gain, turned.often(chosen), batch)]

    def _is_heard(self, strengths: Strengths, spent: int) -> bool:
        """Whether pairs tell more now: the more alike orders repeat what they said about a pair, the earlier they do.

        Rounded, so that every processor sees the same.
        """
        alike = max(0.0, round(strengths.scale.look, 3) - LOOK)
        return spent * (1 + alike) >= self.groups_per_item * len(self.field.items)

    def _told(self, story: bytes, answers: list[list[Result]]) -> bytes:
        """A hash of everything answered so far; remembered, since most of it was answered before."""
        heard, after = self._heard.get(story, ([], b""))
        if heard != answers:
            marks = ("".join(str(HALF_POINTS[r.winner]) for r in sorted(pairs)) for pairs in answers)
            after = sha256(story + "|".join(marks).encode()).digest()
            self._heard[story] = answers, after
        return after

    def _fit(self, asked: Sequence[Group], answers: Answers, stories: tuple[bytes, bytes]) -> Strengths:
        """From these answers, begun where the fit before the last ones ended."""
        before, story = stories
        strengths = estimate(self._known(asked, answers), self.features, self._fits.get(before))
        self._fits[story] = strengths.beginning
        return strengths

    def _known(self, asked: Sequence[Group], answers: Answers) -> Tally:
        """What the answers to these groups say about pairs."""
        return tally(self.field.items, [result for group in asked for result in answers[group.items, group.judge]])

    def _then(self, asked: Sequence[Group], answers: Answers, story: bytes) -> Adaptive:
        """The adaptive schedule with what is left of the budget; kept, since it remembers its own batches."""
        if story not in self._pairs:
            most = self.field.max_comparisons
            rest = replace(self.field, max_comparisons=None if most is None else max(0, most - len(asked)))
            known = self._known(asked, answers)
            self._pairs[story] = Adaptive(
                rest, self.winner_count, self.payout_bps, self.tuning, "none", self.name, self.features, known
            )
        return self._pairs[story]


def _answers(results: Sequence[Result], undecided: Collection[Pairing | Group]) -> dict[Question, list[Result]]:
    """The pairs read off each group that was put to a judge; none where there was no order."""
    answers: dict[Question, list[Result]] = {
        (question.items, question.judge): [] for question in undecided if isinstance(question, Group)
    }
    for result in results:
        if result.group:
            answers.setdefault((result.group, result.judge), []).append(result)
    return answers


class _Turns:
    """In which order the items of a group are shown: who was shown late so far is shown early now."""

    def __init__(self, items: Sequence[str], asked: Sequence[Group], answers: Answers) -> None:
        self._items = items
        self._groups = [group.items for group in asked]
        self._before = set(self._groups)
        self._late = dict.fromkeys(items, 0)
        self._sequences: Counter[tuple[str, ...]] = Counter()
        for group in asked:
            if answers[group.items, group.judge]:  # what nobody answered favoured nobody
                self._note(group.items)

    def _note(self, group: Sequence[str]) -> None:
        for place, item in enumerate(group):
            self._late[item] += LEAN[place]
        self._sequences.update(combinations(group, 2))

    def shown(self, group: Ints) -> tuple[str, ...]:
        """The fairest sequence that was not shown before."""
        names = [self._items[i] for i in group.tolist()]
        turn = len(self._groups) % FOUR
        fresh = (order for order in permutations(names[turn:] + names[:turn]) if order not in self._before)
        order = min(fresh, key=self._unfairness)
        self._groups.append(order)
        self._before.add(order)
        self._note(order)
        return order

    def _unfairness(self, order: Sequence[str]) -> tuple[int, int, int]:
        """The worst position so far, if it is worse than `FAIR`; pairs that were shown in this sequence before; and all
        positions so far.
        """
        late = [abs(self._late[item] + lean) for item, lean in zip(order, LEAN, strict=True)]
        again = sum(map(self._sequences.__getitem__, combinations(order, 2)))
        return max(FAIR, *late), again, sum(each * each for each in late)

    def often(self, chosen: Ints) -> Counter[frozenset[int]]:
        """How often each four was shown, as positions in `chosen`."""
        place = {self._items[i]: k for k, i in enumerate(chosen.tolist())}
        return Counter(frozenset(place.get(item, -1) for item in group) for group in self._groups)

    def before(self, chosen: Ints) -> Floats:
        """How often each of these was shown before each other one."""
        place = {self._items[i]: k for k, i in enumerate(chosen.tolist())}
        seen = np.zeros((len(chosen), len(chosen)))
        for group in self._groups:
            for a, b in combinations([place[item] for item in group if item in place], 2):
                seen[a, b] += 1.0
        return seen


def best_groups(gain: Floats, often: Counter[frozenset[int]], batch: int) -> Iterator[Ints]:
    """Groups between whose members verdicts would tell most: the best pair, and who tells most beside them.

    No four are shown together more than twice.
    """
    worth = gain.copy()
    for _ in range(batch):
        while (group := _best_group(worth, often)) is None:
            best = np.unravel_index(int(np.argmax(worth)), worth.shape)
            worth[best] = worth[best[::-1]] = 0.0
        if not group:
            return
        often[frozenset(group)] += 1
        for a, b in combinations(group, 2):
            worth[a, b] *= SEEN_NOW
            worth[b, a] *= SEEN_NOW
        yield np.array(sorted(group))


def _best_group(worth: Floats, often: Counter[frozenset[int]]) -> list[int] | None:
    """None if the best pair has been shown with everybody who tells most beside them; nobody if no pair tells."""
    size = len(worth)
    if not worth.any():
        return []
    group = [int(k) for k in np.unravel_index(int(np.argmax(worth)), worth.shape)]
    while len(group) < FOUR:
        value = worth[group].sum(axis=0)
        value[group] = -1.0
        order = np.argsort(-np.round(value, 9), kind="stable")[: size - len(group)].tolist()
        last = len(group) == FOUR - 1
        free = (k for k in order if not last or often[frozenset((*group, k))] < 2)
        more = next(free, None)
        if more is None:
            return None
        group.append(more)
    return group


def by_fours(order: Ints) -> list[Ints]:
    """Neighbours in fours; the last group is filled with the neighbours before it."""
    count = len(order)
    starts = [*range(0, count - FOUR + 1, FOUR)]
    if count % FOUR:
        starts.append(count - FOUR)
    return [order[start : start + FOUR] for start in starts]
