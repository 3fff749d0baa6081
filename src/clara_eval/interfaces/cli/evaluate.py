"""`evaluate`: judge one challenge by hand, with its progress on standard error."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from clara_eval.actions.operator import EvaluationReport, evaluate_now
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.documents.results import EvalStatus, Scores
from clara_eval.interfaces.cli.leaderboard_table import print_result
from clara_eval.interfaces.cli.output import AddressArgument, JsonFlag, answer
from clara_eval.interfaces.cli.screen import console, print_labelled, print_next, print_wrapped, short_hex

OUTCOMES = {
    "confirmed": "posted and confirmed",
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
    answer(done.scores, json, lambda: _print(target, done))
    if not done.is_done:
        raise typer.Exit(1)


def _print(address: str, done: EvaluationReport) -> None:
    print_result(Scores.model_validate(done.scores))
    if done.waits_for:
        print_labelled("Waits for", "a person:")
    for reason in done.waits_for:
        print_wrapped(short_hex(reason), "           - ")
    if done.outcome != "review":
        print_labelled("Outcome", done.detail or OUTCOMES[done.outcome])
    print_next(NEXT[done.outcome].format(address).split("|"))


class LiveProgress(Progress):
    """Call it with every status: bars on a terminal, one line a stage elsewhere; `tell` adds a sentence."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
        )
        self._stages: dict[str, TaskID] = {}

    def tell(self, stage: str, sentence: str) -> None:
        self.console.print(f"[bold cyan]{stage:<12}[/bold cyan] {sentence}", soft_wrap=True)

    def __call__(self, status: EvalStatus) -> None:
        stage = status.stage
        if stage is None or stage.name is None or status.status not in ("extracting", "comparing"):
            return
        if stage.name not in self._stages:
            self._stages[stage.name] = self.add_task(stage.name, total=stage.total, note="")
        note = f"{stage.calls} calls  ${stage.costUsd or 0:.4f}" if stage.calls else ""
        if stage.callsPerSecond and stage.calls:
            note += f"  {stage.callsPerSecond:.1f}/s"
        self.update(self._stages[stage.name], completed=stage.done, total=stage.total, note=note)
        if stage.done == stage.total and self.disable:
            self.tell(stage.name, f"{stage.done} of {stage.total} {note}".rstrip())
