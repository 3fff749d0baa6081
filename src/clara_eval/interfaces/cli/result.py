"""The result of a challenge on a screen: what was asked, who judged, the leaderboard, how far to trust it, what next.

A `scores` document comes in; lines for a person go out. Titles and criteria are a poster's words: escaped and cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from clara_eval.actions.times import show_wait
from clara_eval.core.untrusted import escaped
from clara_eval.documents.results import Scores, StageProgress
from clara_eval.interfaces.cli.leaderboard_table import ROWS, LeaderboardTable, leaderboard_of, print_leaderboard
from clara_eval.interfaces.cli.screen import console, print_labelled, program, wrapped

MOST_TITLE = 100
MOST_CRITERIA = 300


def print_asked(scores: Scores) -> None:
    """What the poster asked for, and who compared."""
    screen = console(stderr=False)
    if scores.asked is not None:
        screen.print(Text(_cut(scores.asked.title, MOST_TITLE) or "A challenge without a title", style="bold"))
        _print_beside("asked", _cut(scores.asked.criteria, MOST_CRITERIA))
    if scores.judges:
        _print_beside("judged by", judged_by(scores))


def judged_by(scores: Scores) -> str:
    """`rules, 42 comparisons`, and that rules are no model."""
    names = ", ".join(_cut(name, 60) for name in scores.judges)
    rules = " (arithmetic on measured facts, no model)" if scores.judges == ["rules"] else ""
    games = (scores.schedule or {}).get("games")
    return f"{names}{rules}" + (f", {games} comparisons" if games else "")


def print_result(scores: Scores, *, leaderboard: LeaderboardTable | None = None, limit: int = ROWS) -> None:
    """Everything that the document says to a person."""
    screen = console(stderr=False)
    print_asked(scores)
    screen.print()
    print_leaderboard(screen, leaderboard or leaderboard_of(scores), limit=limit)
    screen.print()
    if scores.warning:
        print_labelled("Warning", scores.warning)
    if scores.postedBy == "poster":
        print_labelled("Posted by", "the poster, not the evaluator: the ranking is the poster's")
    elif scores.txHash:
        print_labelled("Posted", scores.txHash)
    elif not scores.is_posted:
        print_labelled("Posted", "not yet")
    if scores.traceDigest:
        print_labelled("Digest", scores.traceDigest)


def print_next(commands: Sequence[str]) -> None:
    """Commands to copy, each on a line of its own."""
    for number, words in enumerate(commands):
        print_labelled("" if number else "Next", f"{program()} {words}")


def stage_words(stage: StageProgress) -> str:
    """`comparing 186 of 300, 310 calls, $1.92, about 40 s left`."""
    parts = [f"{stage.name or 'working'} {stage.done or 0} of {stage.total or 0}"]
    parts += [f"{stage.calls} calls, ${stage.costUsd or 0:.4f}"] if stage.calls else []
    parts += [f"about {show_wait(round(stage.secondsLeft))} left"] if stage.secondsLeft else []
    return ", ".join(parts)


def _print_beside(label: str, text: str) -> None:
    """A label, and beside it a text that wraps under itself."""
    first, *rest = wrapped(text, 11) or [""]
    console(stderr=False).print(Text.assemble((f"{label:<10}", "dim"), " ", first))
    for line in rest:
        console(stderr=False).print(Text(" " * 11 + line))


def _cut(text: str, limit: int) -> str:
    shown = escaped(text[:limit])
    return shown if len(text) <= limit else shown.rstrip() + " …"
