"""A schedule that begins with questions about four at once, and goes on in pairs.

A few rounds in which everybody is shown once among four; the answer is a full order, from which six pairs are read off.
The first round takes neighbours in canonical order (a hash, so by lot), later ones neighbours by fitted strength, the
likeliest winners always among themselves. Who was shown early is shown late the next time. After that every call goes
to a pair, as in the adaptive schedule, with what the orders said as known. What must hold: a pure function of the
answers, no group is put to the same judge twice, and pairs read off are never taken for pairs that were asked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute

import numpy as np

from clara_eval.tournament.adaptive import Adaptive, Tuning
from clara_eval.tournament.estimate import estimate
from clara_eval.tournament.field import Field
from clara_eval.tournament.results import Game, Group, Result
from clara_eval.tournament.tally import Floats, Ints, Tally, content_hash, tally

FOUR = 4
ROUNDS = 4
DEFAULT = Tuning()
NARROW_FROM = 2  # rounds after which only the better half goes on


@dataclass(frozen=True, slots=True)
class Fours:
    """Rounds of four-way questions within the budget of the field, then the adaptive schedule."""

    field: Field
    winner_count: int = 1
    payout_bps: tuple[int, ...] | None = None
    tuning: Tuning = DEFAULT
    features: Floats | None = None
    rounds: int = ROUNDS
    name: str = "fours"
    _memo: dict[bytes, Adaptive] = attribute(default_factory=dict, init=False, compare=False, repr=False)
    _orders: dict[tuple[int, bytes], Ints] = attribute(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def most_questions(self) -> int:
        return self.field.most_questions(2)

    def next_batch(self, results: Sequence[Result], undecided: Collection[Game | Group] = ()) -> Sequence[Game | Group]:
        said = {Group(result.group, result.judge) for result in results if result.group}
        lost = {question for question in undecided if isinstance(question, Group)}
        asked: list[Group] = []
        for number in range(self.rounds):
            groups = self._round(number, asked, results)
            waiting = [group for group in groups if group not in said and group not in lost]
            if waiting:
                return waiting
            asked += groups
        pairs = [result for result in results if not result.group]
        games = [question for question in undecided if isinstance(question, Game)]
        return self._then(asked, results).next_batch(pairs, games)

    def _round(self, number: int, asked: Sequence[Group], results: Sequence[Result]) -> list[Group]:
        """The groups of one round, from the answers to the rounds before; each for every judge."""
        looks, spent = self.field.looks, len(asked) // len(self.field.judges)
        items = self.field.items
        if len(items) < FOUR + 1:
            return []
        order = np.arange(len(items)) if number == 0 else self._by_strength(number, self._known(asked, results))
        if number >= NARROW_FROM:
            order = order[: max(3 * FOUR, len(order) // 2, FOUR * self.winner_count)]
        shown = [self._turned(group, asked) for group in by_fours(order)]
        left = None if looks is None else max(0, looks - spent)
        return [Group(group, judge) for group in shown[:left] for judge in self.field.judges]

    def _by_strength(self, number: int, known: Tally) -> Ints:
        """Best first; rounded, so that equals stay equal on every processor, and remembered."""
        key = number, content_hash(known)
        if key not in self._orders:
            theta = np.round(estimate(known, self.features).theta, 6)
            self._orders[key] = np.argsort(-theta, kind="stable")
        return self._orders[key]

    def _turned(self, group: Ints, asked: Sequence[Group]) -> tuple[str, ...]:
        """Who was shown late so far is shown early now."""
        names = [self.field.items[i] for i in group.tolist()]
        late = dict.fromkeys(names, 0.0)
        for earlier in asked:
            for place, item in enumerate(earlier.items):
                if item in late:
                    late[item] += place - (FOUR - 1) / 2
        turn = len(asked) // max(1, len(self.field.judges))
        mixed = names[turn % FOUR :] + names[: turn % FOUR]
        return tuple(sorted(mixed, key=lambda item: -late[item]))

    def _known(self, asked: Sequence[Group], results: Sequence[Result]) -> Tally:
        """What the answers to these groups say about pairs."""
        counted = set(asked)
        return tally(self.field.items, [r for r in results if r.group and Group(r.group, r.judge) in counted])

    def _then(self, asked: Sequence[Group], results: Sequence[Result]) -> Adaptive:
        """The adaptive schedule with what is left of the budget; kept, since it remembers its own batches."""
        known = self._known(asked, results)
        story = content_hash(known)
        if story not in self._memo:
            most = self.field.max_games
            rest = replace(self.field, max_games=None if most is None else max(0, most - len(asked)))
            self._memo[story] = Adaptive(
                rest, self.winner_count, self.payout_bps, self.tuning, "none", self.name, self.features, known
            )
        return self._memo[story]


def by_fours(order: Ints) -> list[Ints]:
    """Neighbours in fours; the last group is filled with the neighbours before it."""
    count = len(order)
    starts = [*range(0, count - FOUR + 1, FOUR)]
    if count % FOUR:
        starts.append(count - FOUR)
    return [order[start : start + FOUR] for start in starts]
