"""A large round by rules: every verdict at once, as columns, with one hash over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import overload

import numpy as np
import numpy.typing as npt

from clara_eval.evaluation.play import Comparison, compared
from clara_eval.judge.comparison import Judge, JudgeVector
from clara_eval.judge.rules import TIE_BAND, RulesJudge
from clara_eval.ranking import Pairing, Schedule, Tally

Ints = npt.NDArray[np.int64]
LISTED = 100
"""Up to so many items the comparisons are listed one by one, as where models judge."""
_ROW = np.dtype([("first", "<u4"), ("second", "<u4"), ("half_points", "u1")])


class RuledComparisons(Sequence[Comparison]):
    """In order of (first, second), both as canonical indices."""

    def __init__(self, judge: RulesJudge, vectors: Mapping[str, JudgeVector], table: Tally) -> None:
        self._judge, self._vectors = judge, vectors
        self.table = table

    def __len__(self) -> int:
        return len(self.table.first)

    @overload
    def __getitem__(self, number: int) -> Comparison: ...
    @overload
    def __getitem__(self, number: slice) -> list[Comparison]: ...
    def __getitem__(self, number: int | slice) -> Comparison | list[Comparison]:
        if isinstance(number, slice):
            return [self[place] for place in range(*number.indices(len(self)))]
        items = self.table.items
        return self._made(items[self.table.first[number]], items[self.table.second[number]])

    def _made(self, first: str, second: str) -> Comparison:
        decision = self._judge.decide(self._vectors[first], self._vectors[second])
        return compared(Pairing(first, second, self._judge.name), decision)

    @property
    def commitment(self) -> str:
        """SHA-256 over nine bytes for each verdict: both indices as 32 bits, little endian, and the half points."""
        rows = np.empty(len(self), dtype=_ROW)
        for column in ("first", "second", "half_points"):
            rows[column] = getattr(self.table, column)
        return "0x" + sha256(rows.tobytes()).hexdigest()


def judge_by_rules(
    schedule: Schedule, judges: Mapping[str, Judge], items: Sequence[str], vectors: Mapping[str, JudgeVector]
) -> RuledComparisons | None:
    """Every verdict of the schedule; None if it has to be played: models, few items, chosen pairs."""
    judge = next(iter(judges.values()))
    if len(judges) > 1 or not isinstance(judge, RulesJudge) or len(items) <= LISTED:
        return None
    looks = schedule.columns()
    if looks is None:
        return None
    first, second = looks
    order = np.argsort(first * len(items) + second, kind="stable")
    first, second = first[order], second[order]
    merits = np.array([judge.merit(vectors[item]) for item in items])
    points = verdicts(merits, first, second)
    alone = np.broadcast_to(np.int64(0), first.shape)
    return RuledComparisons(judge, vectors, Tally(tuple(items), (judge.name,), first, second, alone, points))


def verdicts(merits: npt.NDArray[np.float64], first: Ints, second: Ints) -> Ints:
    """Half points of the first: 2 if its merit is larger, 1 within the tie band, 0 if it is smaller."""
    gap = merits[first] - merits[second]
    points: Ints = np.where(np.abs(gap) <= TIE_BAND, 1, np.where(gap > 0, 2, 0)).astype(np.int64)
    return points
