"""Play a tournament: ask the judges the questions of a schedule, or decide a large round by rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from typing import Any, overload

import numpy as np

from clara_eval.core.errors import ConfigError
from clara_eval.core.model import Winner
from clara_eval.core.tasks import gather_or_raise
from clara_eval.judge.comparison import TIE_BAND, Decision, Judge, JudgeVector, Ordered, OrderingJudge, RulesJudge
from clara_eval.judge.port import NothingJudged
from clara_eval.judge.structured_llm import AskOutcome
from clara_eval.ranking import Group, Pairing, Result, Schedule, Tally
from clara_eval.ranking.schedule import Fixed

OUTAGE_SHARE = 0.5  # with more questions unanswered than this, the round is tried again later
_WINNERS: dict[str, Winner] = {"A": "first", "B": "second", "tie": "tie"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison and its verdict; if there is none, `winner` is None and `reason` says why."""

    first: str
    second: str
    judge: str
    winner: Winner | None
    confidence: float | None
    reason: str
    requests: tuple[str, ...]
    group: tuple[str, ...] = ()
    """The items shown together, if this was read off their order; empty for a pair that was asked."""

    @property
    def pairing(self) -> Pairing:
        return Pairing(self.first, self.second, self.judge)

    @property
    def question(self) -> Pairing | Group:
        return Group(self.group, self.judge) if self.group else self.pairing

    @property
    def result(self) -> Result:
        """The verdict for the ranking; there must be one."""
        assert self.winner is not None, "a comparison without a verdict has no result"
        return Result(self.first, self.second, self.winner, self.judge, self.group)


async def play_tournament(
    schedule: Schedule,
    judges: Mapping[str, Judge],
    vectors: Mapping[str, JudgeVector],
    *,
    orderers: Mapping[str, OrderingJudge] | None = None,
    on_comparison: Callable[[int, int], None] = lambda _done, _most: None,
    at_once: int = 64,
    gives_up: bool = False,
) -> tuple[Comparison, ...]:
    """Play until the schedule ends; NothingJudged if too few answers come, unless it `gives_up` waiting."""
    panel = _Panel(judges, orderers or {}, vectors)
    played: list[Comparison] = []
    results: list[Result] = []
    undecided: set[Pairing | Group] = set()
    done, total = 0, schedule.most_questions

    def count() -> None:
        nonlocal done
        done += 1
        on_comparison(done, total)

    while batch := schedule.next_batch(results, undecided):
        total = max(schedule.most_questions, done + len(batch))
        needed = 0 if results else 1  # a ranking needs at least one answer
        max_unanswered = len(batch) - needed if gives_up else OUTAGE_SHARE * len(batch)
        for comparison in await panel.play(batch, at_once, count, max_unanswered):  # in the order of `batch`
            played.append(comparison)
            if comparison.winner is None:
                undecided.add(comparison.question)
            else:
                results.append(comparison.result)
        lost = without_verdict(played)
        if len(lost) > OUTAGE_SHARE * (len(lost) + len(results)) and (not gives_up or not results):
            asked = [request for comparison in lost for request in comparison.requests]
            raise NothingJudged(f"{len(lost)} comparisons have no verdict. The last: {lost[-1].reason}", asked)
    if done < schedule.most_questions:
        on_comparison(done, done)  # the schedule ended early
    return tuple(sorted(played, key=lambda c: (c.first, c.second, c.judge, c.group)))


def without_verdict(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the pairs without a verdict; not those of failed orders, which are asked again as pairs."""
    return [one for one in comparisons if one.winner is None and not one.group]


@dataclass(frozen=True, slots=True)
class _Panel:
    judges: Mapping[str, Judge]
    orderers: Mapping[str, OrderingJudge]
    vectors: Mapping[str, JudgeVector]

    async def play(
        self, batch: Sequence[Pairing | Group], at_once: int, count: Callable[[], None], max_unanswered: float
    ) -> list[Comparison]:
        """Ask all of these; NothingJudged if more than `max_unanswered` get no answer."""
        for name, judge in self.judges.items():
            pairings = [q for q in batch if isinstance(q, Pairing) and q.judge == name]
            await judge.prefetch([(self.vectors[pairing.first], self.vectors[pairing.second]) for pairing in pairings])
        for name, orderer in self.orderers.items():
            groups = [q for q in batch if isinstance(q, Group) and q.judge == name]
            await orderer.prefetch([[self.vectors[item] for item in group.items] for group in groups])
        answers: list[list[Comparison]] = [[] for _ in batch]
        unanswered: list[Decision | AskOutcome[Ordered]] = []
        waiting = iter(enumerate(batch))

        async def work() -> None:
            for number, question in waiting:
                answers[number], decision = await self._ask(question)
                if decision.outage:
                    unanswered.append(decision)
                count()

        await gather_or_raise(work() for _ in range(min(at_once, len(batch))))
        if len(unanswered) > max_unanswered:
            raise NothingJudged(
                f"{len(unanswered)} of {len(batch)} comparisons got no answer. The last: {unanswered[-1].reason}",
                [request for decision in unanswered for request in decision.requests],
                max((one.outage.retry_after_seconds or 0.0 for one in unanswered if one.outage), default=None) or None,
            )
        return [comparison for answer in answers for comparison in answer]

    async def _ask(self, question: Pairing | Group) -> tuple[list[Comparison], Decision | AskOutcome[Ordered]]:
        if isinstance(question, Pairing):
            judge = self.judges[question.judge]
            decision = await judge.compare(self.vectors[question.first], self.vectors[question.second])
            return [compared(question, decision)], decision
        if question.judge not in self.orderers:
            problem = f"The judge {question.judge} cannot put several entries in order."
            raise ConfigError(problem, remedy="Choose another schedule than fours, or let models judge.")
        ordered = await self.orderers[question.judge].order([self.vectors[item] for item in question.items])
        return _split_order(question, ordered, self.vectors), ordered


def _split_order(group: Group, decision: AskOutcome[Ordered], vectors: Mapping[str, JudgeVector]) -> list[Comparison]:
    """Return one comparison for each pair of the group; equal facts are a tie."""
    verdict, requests = decision.value, decision.requests
    if verdict is None:
        return [
            Comparison(a, b, group.judge, None, None, decision.reason, requests, group.items)
            for a, b in combinations(group.items, 2)
        ]
    found = []
    for r in group.read_off([group.items[place] for place in verdict.best_first]):
        winner = "tie" if vectors[r.first] == vectors[r.second] else r.winner
        found.append(Comparison(r.first, r.second, r.judge, winner, None, verdict.reason, requests, group.items))
    return found


def compared(pairing: Pairing, decision: Decision) -> Comparison:
    asked, verdict = (pairing.first, pairing.second, pairing.judge), decision.value
    if verdict is None:
        return Comparison(*asked, None, None, decision.reason, decision.requests)
    return Comparison(*asked, _WINNERS[verdict.winner], verdict.confidence, verdict.reason, decision.requests)


LISTED = 100  # items; up to here comparisons by rules are listed one by one in the trace, like those by models
_ROW = np.dtype([("first", "<u4"), ("second", "<u4"), ("half_points", "u1")])


class RuledComparisons(Sequence[Comparison]):
    """Comparisons by rules, computed on access; sorted by the canonical indices (first, second)."""

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
        first, second = items[self.table.first[number]], items[self.table.second[number]]
        decision = self._judge.decide(self._vectors[first], self._vectors[second])
        return compared(Pairing(first, second, self._judge.name), decision)

    @property
    def commitment(self) -> str:
        """SHA-256 over 9 bytes per verdict: both indices as little-endian 32 bits, and the half points."""
        rows = np.empty(len(self), dtype=_ROW)
        for column in ("first", "second", "half_points"):
            rows[column] = getattr(self.table, column)
        return "0x" + sha256(rows.tobytes()).hexdigest()


def judge_by_rules(
    schedule: Schedule, judges: Mapping[str, Judge], items: Sequence[str], vectors: Mapping[str, JudgeVector]
) -> RuledComparisons | None:
    """Decide all comparisons at once; None if they must be played: models, few items, adaptive schedule."""
    judge = next(iter(judges.values()))
    if len(judges) > 1 or not isinstance(judge, RulesJudge) or len(items) <= LISTED or not isinstance(schedule, Fixed):
        return None
    first, second = schedule.columns()
    order = np.argsort(first * len(items) + second, kind="stable")
    first, second = first[order], second[order]
    merits = np.array([judge.merit(vectors[item]) for item in items])
    gap = merits[first] - merits[second]
    # Half points of the first: 2 if its merit is larger, 1 within the tie band, 0 if it is smaller.
    points = np.where(np.abs(gap) <= TIE_BAND, 1, np.where(gap > 0, 2, 0)).astype(np.int64)
    only_judge = np.broadcast_to(np.int64(0), first.shape)
    return RuledComparisons(judge, vectors, Tally(tuple(items), (judge.name,), first, second, only_judge, points))


_LETTERS: dict[Winner | None, str | None] = {"first": "A", "second": "B", "tie": "tie", None: None}


def votes_document(votes: Sequence[Comparison]) -> dict[str, Any]:
    """Return the public document of one ordered pair (`Pairwise`), with the vote of every judge."""
    counted = Counter(vote.winner for vote in votes if vote.winner is not None).most_common(2)
    is_split = len(counted) == 2 and counted[0][1] == counted[1][1]
    winner = "tie" if is_split else counted[0][0] if counted else None
    agreeing = [vote for vote in votes if vote.winner == winner]
    confidences = [vote.confidence for vote in agreeing if vote.confidence is not None]
    return {
        "winner": _LETTERS[winner],
        "confidence": round(sum(confidences) / len(confidences), 4) if confidences else None,
        "reason": agreeing[0].reason if agreeing else "The judges disagree.",
        "votes": [
            {"judge": v.judge, "winner": _LETTERS[v.winner], "confidence": v.confidence, "reason": v.reason}
            for v in votes
        ],
    }
