"""Holding a tournament: ask the schedule for games, put them to the judges, until it has no more.

In: a schedule, judges by name, a vector for each item. Out: one `Comparison` for each game, in canonical order. Games
of a batch are asked together by a fixed number of workers, at most `at_once` at a time, so that memory holds results
and not waiting tasks. What comes out depends on the answers, never on the order in which they arrive. A game nobody
answered is undecided; when that is most of a batch, it is an outage, and the tournament stops without a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from clara_eval.errors import Temporary
from clara_eval.gather import gather_or_raise
from clara_eval.judge.comparison import Decision, Judge, ModelJudge
from clara_eval.judge.vector import JudgeVector
from clara_eval.tournament.results import Game, Result, Winner
from clara_eval.tournament.schedule import Schedule

OUTAGE_SHARE = 0.5
"""A ranking from fewer answers than this would be one of luck; later there may be answers."""
_WINNERS: dict[str, Winner] = {"A": "first", "B": "second", "tie": "tie"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One game and what became of it; without a verdict `winner` is None and `reason` says why."""

    first: str
    second: str
    judge: str
    winner: Winner | None
    confidence: float | None
    reason: str
    requests: tuple[str, ...]

    @property
    def game(self) -> Game:
        return Game(self.first, self.second, self.judge)


async def play_tournament(
    schedule: Schedule,
    judges: Mapping[str, Judge],
    vectors: Mapping[str, JudgeVector],
    *,
    on_game: Callable[[int, int], None] | None = None,
    at_once: int = 64,
) -> tuple[Comparison, ...]:
    """Play until the schedule is finished. `on_game` is told how many games are done and how many are known so far."""
    played: list[Comparison] = []
    results: list[Result] = []
    undecided: set[Game] = set()
    while batch := schedule.next_batch(results, undecided):
        total = len(played) + len(batch)
        await _foresee(batch, judges, vectors)
        fresh = await _play(batch, judges, vectors, at_once, _counter(len(played), total, on_game))
        for comparison in fresh:  # in the order of the batch: arrival must not matter
            played.append(comparison)
            if comparison.winner is None:
                undecided.add(comparison.game)
            else:
                results.append(Result(comparison.first, comparison.second, comparison.winner, comparison.judge))
    return tuple(sorted(played, key=lambda c: (c.first, c.second, c.judge)))


async def _foresee(batch: list[Game], judges: Mapping[str, Judge], vectors: Mapping[str, JudgeVector]) -> None:
    """A model's judge is told the whole batch: it can look up, or have asked elsewhere, many games at once."""
    for name, judge in judges.items():
        if isinstance(judge, ModelJudge):
            await judge.foresee([(vectors[game.first], vectors[game.second]) for game in batch if game.judge == name])


def _counter(done: int, total: int, on_game: Callable[[int, int], None] | None) -> Callable[[], None]:
    def count() -> None:
        nonlocal done
        done += 1
        if on_game is not None:
            on_game(done, total)

    return count


async def _play(
    batch: list[Game],
    judges: Mapping[str, Judge],
    vectors: Mapping[str, JudgeVector],
    at_once: int,
    count: Callable[[], None],
) -> list[Comparison]:
    answers: list[Comparison | None] = [None] * len(batch)
    unanswered: list[Decision] = []

    async def work(waiting: Iterator[tuple[int, Game]]) -> None:
        for number, game in waiting:
            decision = await judges[game.judge].compare(vectors[game.first], vectors[game.second])
            answers[number] = _comparison(game, decision)
            if decision.outage:
                unanswered.append(decision)
            count()

    waiting = iter(enumerate(batch))
    await gather_or_raise(work(waiting) for _ in range(min(at_once, len(batch))))
    if len(unanswered) > OUTAGE_SHARE * len(batch):
        raise Temporary(
            f"{len(unanswered)} of {len(batch)} games got no answer. The last: {unanswered[-1].reason}",
            retry_after_seconds=max((decision.pause_seconds or 0.0 for decision in unanswered), default=None) or None,
        )
    return [answer for answer in answers if answer is not None]


def _comparison(game: Game, decision: Decision) -> Comparison:
    verdict = decision.verdict
    if verdict is None:
        return Comparison(game.first, game.second, game.judge, None, None, decision.reason, decision.requests)
    return Comparison(
        game.first,
        game.second,
        game.judge,
        _WINNERS[verdict.winner],
        verdict.confidence,
        verdict.reason,
        decision.requests,
    )
