"""Play a tournament: ask the judges what the schedule asks for, until it has no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from clara_eval.core.constants import Winner
from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.core.tasks import gather_or_raise
from clara_eval.judge.comparison import Decision, Judge
from clara_eval.judge.ordering import Ordered, OrderingJudge
from clara_eval.judge.vector import JudgeVector
from clara_eval.ranking import Group, Pairing, Result, Schedule

OUTAGE_SHARE = 0.5
"""A ranking from fewer answers than this would be one of luck; later there may be answers."""
_WINNERS: dict[str, Winner] = {"A": "first", "B": "second", "tie": "tie"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison and what became of it; without a verdict `winner` is None and `reason` says why."""

    first: str
    second: str
    judge: str
    winner: Winner | None
    confidence: float | None
    reason: str
    requests: tuple[str, ...]
    group: tuple[str, ...] = ()
    """Read off an order of these, in the order in which they were shown; empty for a pair that was asked."""

    @property
    def pairing(self) -> Pairing:
        return Pairing(self.first, self.second, self.judge)

    @property
    def question(self) -> Pairing | Group:
        return Group(self.group, self.judge) if self.group else self.pairing

    @property
    def result(self) -> Result:
        """The verdict as the ranking takes it; only if there is one."""
        assert self.winner is not None, "a comparison without a verdict has no result"
        return Result(self.first, self.second, self.winner, self.judge, self.group)


async def play_tournament(
    schedule: Schedule,
    judges: Mapping[str, Judge],
    vectors: Mapping[str, JudgeVector],
    *,
    orderers: Mapping[str, OrderingJudge] | None = None,
    on_comparison: Callable[[int, int], None] | None = None,
    at_once: int = 64,
    gives_up: bool = False,
) -> tuple[Comparison, ...]:
    """Play until the schedule is finished; the result does not depend on the order of the answers.

    An outage stops it, unless it `gives_up` waiting. `on_comparison` gets the questions done, and of how many at most.
    `orderers` put several in order, for schedules that ask for it; an order becomes one comparison for each pair.
    """
    table = _Table(judges, orderers or {}, vectors)
    played: list[Comparison] = []
    results: list[Result] = []
    undecided: set[Pairing | Group] = set()
    done, most = 0, schedule.most_questions
    while batch := schedule.next_batch(results, undecided):
        await table.prefetch(batch)
        bearable = len(batch) - (not results) if gives_up else OUTAGE_SHARE * len(batch)
        count = _counter(done, max(most, done + len(batch)), on_comparison)
        fresh = await _play(batch, table, at_once, count, bearable)
        done += len(batch)
        for comparison in fresh:  # in the order of the batch: arrival must not matter
            played.append(comparison)
            if comparison.winner is None:
                undecided.add(comparison.question)
            else:
                results.append(comparison.result)
    if on_comparison is not None and done < most:
        on_comparison(done, done)  # settled before everything was asked
    return tuple(sorted(played, key=lambda c: (c.first, c.second, c.judge, c.group)))


@dataclass(frozen=True, slots=True)
class _Table:
    judges: Mapping[str, Judge]
    orderers: Mapping[str, OrderingJudge]
    vectors: Mapping[str, JudgeVector]

    async def prefetch(self, batch: Sequence[Pairing | Group]) -> None:
        for name, judge in self.judges.items():
            pairings = [q for q in batch if isinstance(q, Pairing) and q.judge == name]
            await judge.prefetch([(self.vectors[pairing.first], self.vectors[pairing.second]) for pairing in pairings])
        for name, orderer in self.orderers.items():
            groups = [q for q in batch if isinstance(q, Group) and q.judge == name]
            await orderer.prefetch([[self.vectors[item] for item in group.items] for group in groups])

    async def ask(self, question: Pairing | Group) -> tuple[list[Comparison], Decision | Decision[Ordered]]:
        if isinstance(question, Pairing):
            judge = self.judges[question.judge]
            decision = await judge.compare(self.vectors[question.first], self.vectors[question.second])
            return [compared(question, decision)], decision
        if question.judge not in self.orderers:
            raise ConfigError(
                f"The judge {question.judge} cannot put several entries in order.",
                remedy="Choose another schedule than fours, or let models judge.",
            )
        ordered = await self.orderers[question.judge].order([self.vectors[item] for item in question.items])
        return _read_off(question, ordered, self.vectors), ordered


def _counter(done: int, total: int, on_comparison: Callable[[int, int], None] | None) -> Callable[[], None]:
    def count() -> None:
        nonlocal done
        done += 1
        if on_comparison is not None:
            on_comparison(done, total)

    return count


async def _play(
    batch: Sequence[Pairing | Group], table: _Table, at_once: int, count: Callable[[], None], bearable: float
) -> list[Comparison]:
    """Ask all of these; more than `bearable` without an answer are an outage."""
    answers: list[list[Comparison]] = [[] for _ in batch]
    unanswered: list[Decision | Decision[Ordered]] = []

    async def work(waiting: Iterator[tuple[int, Pairing | Group]]) -> None:
        for number, question in waiting:
            answers[number], decision = await table.ask(question)
            if decision.outage:
                unanswered.append(decision)
            count()

    waiting = iter(enumerate(batch))
    await gather_or_raise(work(waiting) for _ in range(min(at_once, len(batch))))
    if len(unanswered) > bearable:
        raise Temporary(
            f"{len(unanswered)} of {len(batch)} comparisons got no answer. The last: {unanswered[-1].reason}",
            retry_after_seconds=max((decision.pause_seconds or 0.0 for decision in unanswered), default=None) or None,
        )
    return [comparison for answer in answers for comparison in answer]


def _read_off(group: Group, decision: Decision[Ordered], vectors: Mapping[str, JudgeVector]) -> list[Comparison]:
    """One comparison for each pair of the group; without an order each is undecided, and equal facts are a tie."""
    if decision.verdict is None:
        return [
            Comparison(a, b, group.judge, None, None, decision.reason, decision.requests, group.items)
            for a, b in combinations(group.items, 2)
        ]
    reason, requests = decision.verdict.reason, decision.requests
    return [
        Comparison(
            r.first,
            r.second,
            r.judge,
            "tie" if vectors[r.first] == vectors[r.second] else r.winner,
            None,
            reason,
            requests,
            group.items,
        )
        for r in group.read_off([group.items[place] for place in decision.verdict.best_first])
    ]


def compared(pairing: Pairing, decision: Decision) -> Comparison:
    verdict = decision.verdict
    if verdict is None:
        return Comparison(pairing.first, pairing.second, pairing.judge, None, None, decision.reason, decision.requests)
    return Comparison(
        pairing.first,
        pairing.second,
        pairing.judge,
        _WINNERS[verdict.winner],
        verdict.confidence,
        verdict.reason,
        decision.requests,
    )
