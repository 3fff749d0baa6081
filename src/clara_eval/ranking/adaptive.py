"""The adaptive schedule: calls go where a verdict would most reduce the uncertainty about who is paid what.

A few Swiss rounds give a first picture; whoever they left unconnected is connected next, or earlier where the budget
would not reach otherwise, so that no order is a guess if there are at least as many calls as links in a chain. Then,
batch by batch: fit the strengths, draw from the posterior, and take the open looks whose outcome would reduce the
variance of the prizes most (prize-variance reduction). A pair may be looked at twice at most, the second time with the
sides swapped. It ends when the budget is spent, when the pay line is clear (p ≥ .95 at every paid place with a prize of
its own), or when nothing is open. The batches are recomputed from the answers, so a tournament cut short anywhere goes
on with the very comparisons it would have asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from hashlib import sha256
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from clara_eval.ranking.estimate import estimate
from clara_eval.ranking.field import Field, balanced_looks
from clara_eval.ranking.results import Group, Pairing, Result
from clara_eval.ranking.strength import Scale, Strengths, one_thread
from clara_eval.ranking.tally import (
    HALF_POINTS,
    Floats,
    Ints,
    Tally,
    connected_groups,
)

Look = tuple[int, int]
Bools = npt.NDArray[np.bool_]
Board = npt.NDArray[np.int8]
OPEN, NO_VERDICT = -2, -1
LARGE, HUGE = 60, 200  # items
GROUP_DRAWS = 512
IN_CACHE = 1 << 17  # numbers
SHARED = 0.2  # variance of a verdict between equals: looks at a pair repeat so much of what they share


@dataclass(frozen=True, slots=True)
class Tuning:
    """The knobs. The benchmark measures these defaults, except that it never stops early (`sure` out of reach)."""

    swiss_rounds: int | None = None
    draws: int | None = None
    per_item: int | None = None
    most_candidates: int = 48
    sure: float = 0.95
    set_weight: float = 0.4  # share of the objective that asks only who is paid, not how much
    batch: int | None = None

    def opening_rounds(self, size: int) -> int:
        """In a large field a third round would ask about too many who are out of the running; in a huge one the calls
        are many enough for it.
        """
        return self.swiss_rounds or (2 if LARGE <= size <= HUGE else 3)

    def draw_count(self, size: int) -> int:
        """With few calls to spend, a clearer picture of the gains pays; on large fields it only costs time."""
        return self.draws or (2048 if size < 100 else 512)

    def batch_size(self, size: int) -> int:
        """6 looks for 25 items, 10 for 100, 25 for 300.

        In larger fields far fewer than a quarter: only some 48 candidates are in the running, so a larger batch gives
        every one of them its comparisons and chooses nothing.
        """
        if size > HUGE:
            return self.batch or size // 12
        return self.batch or max(2, size // 4 if size < LARGE else size // 10)

    def most_per_item(self, size: int) -> int:
        """Of one item in one batch: more would spend calls on what the batch itself may settle."""
        return self.per_item or (2 if LARGE <= size <= HUGE else 3)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Prize-variance reduction within the budget of the field."""

    field: Field
    winner_count: int = 1
    payout_bps: tuple[int, ...] | None = None
    tuning: Tuning = Tuning()
    opening: str = "swiss"
    name: str = "adaptive"
    features: Floats | None = None
    known: Tally | None = None
    """What is known before the first pair is asked, from orders of several."""
    _memo: dict[tuple[int, bytes], list[Look]] = attribute(default_factory=dict, init=False, compare=False, repr=False)
    _fits: dict[bytes, Strengths] = attribute(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def most_questions(self) -> int:
        return self.field.most_questions(2)

    def next_batch(self, results: Sequence[Result], undecided: Collection[Pairing | Group] = ()) -> list[Pairing]:
        board = self._board(results, undecided)
        asked: list[Look] = []
        story = before = b""
        for number in range(len(results) + len(undecided) + 2):
            batch = self._batch(number, asked, board, (before, story))
            first, second = np.array(batch, dtype=np.int64).reshape(-1, 2).T
            verdicts = board[first, second]
            if not batch or np.any(verdicts == OPEN):
                return [
                    pairing
                    for pairing, v in zip(self.field.pairings(batch), verdicts.ravel(), strict=True)
                    if v == OPEN
                ]
            asked += batch
            before, story = story, sha256(story + verdicts.tobytes()).digest()
        return []

    def _board(self, results: Sequence[Result], undecided: Collection[Pairing | Group]) -> Board:
        """Half points of the first by (first, second, judge), or that there is no verdict, or that it is open."""
        index = {item: number for number, item in enumerate(self.field.items)}
        voices = {judge: number for number, judge in enumerate(self.field.judges)}
        board = np.full((len(index), len(index), len(voices)), OPEN, dtype=np.int8)
        for pairing in undecided:
            if isinstance(pairing, Group):
                continue
            board[index[pairing.first], index[pairing.second], voices[pairing.judge]] = NO_VERDICT
        for result in results:
            board[index[result.first], index[result.second], voices[result.judge]] = HALF_POINTS[result.winner]
        return board

    def _batch(self, number: int, asked: Sequence[Look], board: Board, stories: tuple[bytes, bytes]) -> list[Look]:
        """The batch after these, from the answers to these alone; remembered, since replaying asks for it again.

        `stories`: what was told before the last answers, and with them. A fit begins where the one before ended.
        """
        key = (number, stories[1])
        if key not in self._memo:
            left = None if self.field.looks is None else self.field.looks - len(asked)
            spent = left is not None and left <= 0
            self._memo[key] = [] if spent else self._choose(number, asked, board, stories, left)[:left]
        return self._memo[key]

    def _table(self, asked: Sequence[Look], board: Board) -> Tally:
        first, second = np.array(sorted(asked), dtype=np.int64).reshape(-1, 2).T
        verdicts = board[first, second].astype(np.int64)
        look, judge = np.nonzero(verdicts >= 0)
        table = Tally(self.field.items, self.field.judges, first[look], second[look], judge, verdicts[look, judge])
        return table if self.known is None else table.beside(self.known)

    def _choose(
        self, number: int, asked: Sequence[Look], board: Board, stories: tuple[bytes, bytes], left: int | None
    ) -> list[Look]:
        size = len(self.field.items)
        looks = looked(asked, size)
        shown = None if self.known is None else often_looked(self.known.looks, size)
        met = looks if shown is None else looks + shown.astype(np.int64)
        if self.opening == "full" and number == 0:
            return list(balanced_looks(size))
        before, story = stories
        strengths = estimate(self._table(asked, board), self.features, self._fits.get(before) if number else None)
        self._fits[story] = strengths.beginning
        pairs: list[Look] = []
        if self.opening == "swiss" and number < self.tuning.opening_rounds(size):
            pairs = swiss_round(strengths.theta, (looks + looks.T) == 0)
        pairs = self._connecting(strengths.theta, met, pairs, left)
        if pairs:
            return with_sides(pairs, looks, shown)
        prizes = objective(self.payout_bps, min(self.winner_count, size), self.tuning)
        if self.is_settled(strengths, prizes):
            return []
        worth = None if shown is None else repeated(strengths.scale, shown + looks, _next_look(looks, shown))
        pairs = best_pairs(strengths, prizes, 2 - looks - looks.T, self.tuning, worth)
        return with_sides(pairs, looks, shown)

    def _connecting(self, theta: Floats, looks: Ints, pairs: list[Look], left: int | None) -> list[Look]:
        """These pairs of the opening, unless the budget then could not connect everybody and now still can."""
        now, later = missing_bridges(theta, looks, ()), missing_bridges(theta, looks, pairs)
        too_late = left is not None and len(now) <= left < len(pairs) + len(later)
        return now if not pairs or too_late else pairs

    def is_settled(self, strengths: Strengths, prizes: Floats) -> bool:
        """Whether every place at which the prize changes is as good as sure."""
        order = np.argsort(-strengths.theta, kind="stable")
        steps = np.flatnonzero(np.append(prizes, 0.0)[:-1] > np.append(prizes, 0.0)[1:])
        return all(
            place + 1 >= len(order) or strengths.ahead(int(order[place]), int(order[place + 1])) >= self.tuning.sure
            for place in steps.tolist()
        )


def objective(payout_bps: Sequence[int] | None, winner_count: int, tuning: Tuning) -> Floats:
    """The worth of each paid place: its share of the pot, mixed with equal shares."""
    count = max(1, winner_count)
    pay = np.array(payout_bps or [1] * count, dtype=float)[:count]
    flat = np.full(count, 1 / count)
    worth: Floats = (1 - tuning.set_weight) * pay / max(float(pay.sum()), 1e-12) + tuning.set_weight * flat
    return worth


def looked(asked: Iterable[Look], size: int) -> Ints:
    """L[a, b] = 1 if a was shown first against b."""
    looks = np.zeros((size, size), dtype=np.int64)
    for a, b in asked:
        looks[a, b] = 1
    return looks


def often_looked(asked: Iterable[Look], size: int) -> Floats:
    """How often a was shown before b."""
    looks = np.zeros((size, size))
    np.add.at(looks, tuple(np.array(list(asked), dtype=np.int64).reshape(-1, 2).T), 1.0)
    return looks


def repeated(scale: Scale, before: Floats, same: Floats) -> Floats:
    """How much a look at each pair still tells, of what a first one would: all looks at a pair share its quirk, and
    those in the same sequence, of which there are `same`, are correlated.
    """
    rho = min(SHARED * scale.look, 0.9)
    alike = (1 - rho) / ((1 + rho * same) * (1 + rho * (same - 1)))
    left: Floats = alike / (1 + SHARED * scale.pair * (before + before.T))
    return left


def _next_look(looks: Ints, shown: Floats) -> Floats:
    """How often orders showed each pair in the sequence in which it would be asked about next."""
    free: Floats = np.where(looks > looks.T, shown.T, np.where(looks < looks.T, shown, np.minimum(shown, shown.T)))
    return free


def swiss_round(theta: Floats, allowed: Bools) -> list[Look]:
    """Neighbours by strength among the pairs still allowed; who is left over sits out.

    Rounded far above the last digits in which two processors differ: equals must stay equal on every one.
    """
    waiting = np.argsort(-np.round(theta, 6), kind="stable").tolist()
    pairs = []
    while waiting:
        i = waiting.pop(0)
        j = next((other for other in waiting if allowed[i, other]), None)
        if j is not None:
            waiting.remove(j)
            pairs.append((i, j))
    return pairs


def missing_bridges(theta: Floats, looks: Ints, planned: Sequence[Look]) -> list[Look]:
    """What would still be missing after these to connect everybody: the best of each group, neighbours by strength."""
    met = looks > 0
    for i, j in planned:
        met[i, j] = True
    group = connected_groups(met)
    order = np.argsort(-np.round(theta, 6), kind="stable")
    _, first = np.unique(group[order], return_index=True)
    heads = order[np.sort(first)].tolist()
    return list(pairwise(heads))


def best_pairs(
    strengths: Strengths, prizes: Floats, open_looks: Ints, tuning: Tuning, worth: Floats | None = None
) -> list[Look]:
    """The pairs of one batch: highest gain first, few comparisons for each item. `worth` is what a look at each pair
    still tells, where it is not the same for all.
    """
    size = len(strengths.theta)
    batch, most = tuning.batch_size(size), tuning.most_per_item(size)
    draws = strengths.draws(tuning.draw_count(size), "schedule")
    pay = prize_draws(draws, prizes)
    i, j = _candidates(strengths, pay > 0, open_looks > 0, batch, tuning)
    gain = gains(draws, pay, i, j)
    if worth is not None:
        gain = np.round(gain * worth[i, j], 9)
    load = np.zeros(size, dtype=np.int64)
    chosen: list[Look] = []
    for k in np.lexsort((j, i, -gain)).tolist():
        a, b = int(i[k]), int(j[k])
        if load[a] < most and load[b] < most:
            chosen.append((a, b))
            load[[a, b]] += 1
            if len(chosen) == batch:
                break
    return chosen


def pair_gains(strengths: Strengths, prizes: Floats, tuning: Tuning) -> tuple[Ints, Floats]:
    """The likeliest winners, and the gain of each pair of them as a symmetric table."""
    size = len(strengths.theta)
    draws = strengths.draws(tuning.draws or GROUP_DRAWS, "schedule")
    pay = prize_draws(draws, prizes)
    everybody = np.ones((size, size), dtype=bool)
    i, j = _candidates(strengths, pay > 0, everybody, tuning.batch_size(size), tuning)
    chosen = np.unique(np.concatenate((i, j)))
    gain = np.zeros((size, size))
    gain[i, j] = gains(draws, pay, i, j)
    return chosen, (gain + gain.T)[np.ix_(chosen, chosen)]


def prize_draws(draws: Floats, prizes: Floats) -> Floats:
    """The prize of each item (columns) in each draw (rows)."""
    rest, rows = draws.copy(), np.arange(len(draws))
    pay = np.zeros_like(draws)
    for prize in prizes[: draws.shape[1]].tolist():
        best = rest.argmax(axis=1)
        pay[rows, best] = prize
        rest[rows, best] = -np.inf
    return pay


def gains(draws: Floats, pay: Floats, i: Ints, j: Ints) -> Floats:
    """Σ_m Cov(pay_m, p_ij)² / (p̄(1 − p̄)): how much the verdict on i against j lowers the variance of the prizes.

    As many pairs at a time as the processor's cache holds.
    """
    items, at = np.unique(np.concatenate((i, j)), return_inverse=True)
    odds, (a, b) = np.exp(draws.T[items]), at.reshape(2, -1)
    paid = pay[:, pay.any(axis=0)]
    paid = paid - paid.mean(axis=0)
    mean, covariance = np.empty(len(i)), np.empty((len(i), paid.shape[1]))
    rows = max(1, IN_CACHE // len(draws))
    with one_thread():
        for start in range(0, len(i), rows):
            part = slice(start, start + rows)
            p = odds[a[part]]
            p /= p + odds[b[part]]
            mean[part] = p.mean(axis=1)
            np.matmul(p, paid, out=covariance[part])
    covariance /= len(draws)
    value = np.sum(covariance**2, axis=1) / np.maximum(mean * (1 - mean), 1e-9)
    relative: Floats = np.round(value / max(float(value.max(initial=0.0)), 1e-300), 9)
    return relative


def _candidates(strengths: Strengths, paid: Bools, open_pairs: Bools, batch: int, tuning: Tuning) -> tuple[Ints, Ints]:
    """Open pairs among the likeliest winners, widened until there is a choice."""
    size, winners = len(strengths.theta), int(paid[0].sum())
    chance = paid.mean(axis=0)
    likeliest = np.lexsort((np.arange(size), -strengths.theta, -chance))
    count = min(max(12, 3 * winners, int(np.sum(chance > 0.004))), tuning.most_candidates, size)
    while True:
        chosen = np.sort(likeliest[:count])
        i, j = np.nonzero(np.triu(open_pairs[np.ix_(chosen, chosen)], 1))
        if len(i) >= 3 * batch or count == size:
            return chosen[i], chosen[j]
        count = min(size, count + max(1, count // 4))


def with_sides(pairs: Sequence[Look], looks: Ints, shown: Floats | None = None) -> list[Look]:
    """A pair seen before gets the other order, also where orders showed it (`shown`) more often in one; else whoever
    was first less often is first.
    """
    lead = looks.sum(axis=1) - looks.sum(axis=0)
    more = looks - looks.T if shown is None else 1000.0 * (looks - looks.T) + shown - shown.T
    chosen = []
    for i, j in pairs:
        a, b = min(i, j), max(i, j)
        if more[a, b] > 0 or (more[a, b] == 0 and (lead[a] > lead[b] or (lead[a] == lead[b] and (a + b) % 2 == 0))):
            a, b = b, a
        lead[a] += 1
        lead[b] -= 1
        chosen.append((a, b))
    return chosen
