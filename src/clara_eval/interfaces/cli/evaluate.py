"""`evaluate`: judge one challenge by hand."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from clara_eval.actions.evaluate import EvaluationReport, evaluate_now
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.documents.results import Scores
from clara_eval.interfaces.cli.leaderboard_table import print_result
from clara_eval.interfaces.cli.options import AddressArgument, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.progress import LiveProgress
from clara_eval.interfaces.cli.screen import console, print_labelled, print_next, short_hex, wrapped

OUTCOMES = {
    "confirmed": "posted, and deep enough in the chain to stay",
    "already_done": "it was posted already",
    "dry_run": "a dry run: checked and rehearsed, nothing was sent",
    "reverted": "the transaction was mined, but reverted",
    "unknown": "sent, but not seen in a block yet",
}
NEXT = {
    "review": "review show {0}",
    "dry_run": "evaluate {0}  # with CLARA_EVALUATOR_KEY: posts it|trace {0} -o trace.json",
    "reverted": "evaluate {0}|status {0}",
    "unknown": "evaluate {0}|status {0}",
    "confirmed": "verify {0}|trace {0} -o trace.json",
    "already_done": "verify {0}|trace {0} -o trace.json",
}
"""The commands to run after each outcome."""


def evaluate(
    address: AddressArgument,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compute and rehearse everything, send nothing.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an unfinished evaluation and start again.")
    ] = False,
    schedule: Annotated[str, typer.Option(help="auto, full, both, adaptive or fours (orders of four first).")] = "auto",
    max_games: Annotated[int | None, typer.Option(help="Compare at most this many times.", min=1)] = None,
    json: JsonFlag = False,
) -> None:
    """Evaluate one challenge and post its winners; without a key it is a dry run."""
    target, settings = to_address(address), Settings.from_env()
    with LiveProgress(console()) as progress:
        done = asyncio.run(
            evaluate_now(
                settings,
                target,
                dry_run=dry_run,
                restart=restart,
                schedule=schedule,
                max_games=max_games,
                progress=progress,
            )
        )
    if json:
        emit_json(done.scores)
    else:
        _print(target, done)
    if not done.is_done:
        raise typer.Exit(1)


def _print(address: str, done: EvaluationReport) -> None:
    print_result(Scores.model_validate(done.scores))
    if done.waits_for:
        print_labelled("Waits for", "a person:")
    for reason in done.waits_for:
        for number, line in enumerate(wrapped(short_hex(reason), 13)):
            console(stderr=False).print(Text(f"{'             ' if number else '           - '}{line}"))
    if done.outcome != "review":
        print_labelled("Outcome", done.detail or OUTCOMES[done.outcome])
    print_next(NEXT[done.outcome].format(address).split("|"))
