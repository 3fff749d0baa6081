"""The command `clara-eval demo`: the whole lifecycle on a local chain."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from clara_eval.actions.amounts import round_amount
from clara_eval.core.address import short
from clara_eval.core.errors import BadInput
from clara_eval.devnet.demo.lifecycle import DemoResult, demo_document, run_demo
from clara_eval.documents.results import Scores
from clara_eval.interfaces.cli.evaluate import LiveProgress
from clara_eval.interfaces.cli.leaderboard_table import LeaderboardTable, print_asked, print_leaderboard
from clara_eval.interfaces.cli.output import JsonFlag, emit_json
from clara_eval.interfaces.cli.screen import console, from_here, print_labelled, program


def demo(
    *,
    json: JsonFlag = False,
    trace_dir: Annotated[Path, typer.Option(help="Where the trace file goes.")] = Path("var/traces"),
) -> None:
    """Run one challenge from escrow to claimed prizes on a local chain, and verify its trace."""
    created = _create_folder(trace_dir)
    screen = console()
    try:
        with LiveProgress(screen) as progress:
            result = asyncio.run(run_demo(trace_dir, progress.tell, progress))
    except BaseException:
        _remove_empty(created)
        raise
    document = demo_document(result)
    if json:
        emit_json(document)
    else:
        _print_result(result)
    if not document["verified"]:
        raise typer.Exit(1)


def _create_folder(trace_dir: Path) -> list[Path]:
    """Create the folder, check that it is writable, and return the folders that were created."""
    created = [folder for folder in (trace_dir, *trace_dir.parents) if not folder.exists()]
    try:
        trace_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=trace_dir):
            return created
    except OSError as bad:
        _remove_empty(created)
        raise BadInput(
            f"Traces cannot be written to {trace_dir}: {bad.strerror or bad}.",
            remedy="Name a writable folder with --trace-dir.",
        ) from None


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # it is not empty
            folder.rmdir()


def _print_result(result: DemoResult) -> None:
    screen, scores = console(stderr=False), Scores.model_validate(result.scores)
    screen.print()
    print_asked(scores)
    screen.print()
    print_leaderboard(
        screen,
        LeaderboardTable(
            scores.rankings, scores.token, scores.margin, {str(a): name for a, name in result.round.names.items()}
        ),
    )
    screen.print()
    screen.print(_prize_table(result))
    screen.print()
    print_labelled("Trace", str(result.trace_path))
    print_labelled("Digest", f"{result.evaluation.digest} (also in the posted transaction)")
    print_labelled("Check it", f"{program()} verify {shlex.quote(from_here(result.trace_path))}")
    print_labelled("See it", f"{program()} serve --demo")


def _prize_table(result: DemoResult) -> Table:
    challenge = result.evaluation.challenge
    table = Table(
        title="The money", title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    table.add_column("account", no_wrap=True)
    for heading in ("before", "claimed", "after"):
        table.add_column(heading, justify="right", no_wrap=True)
    for account, (before, after) in result.balances.items():
        amounts = [round_amount(units, challenge.token) for units in (before, after - before, after)]
        table.add_row(f"{result.round.names[account]} {short(account)}", amounts[0], f"+{amounts[1]}", amounts[2])
    total = sum(after - before for before, after in result.balances.values())
    pool = [round_amount(units, challenge.token) for units in (challenge.prize_pool, total)]
    table.add_row("prize pool", pool[0], pool[1], "", style="dim")
    return table
