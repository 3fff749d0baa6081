"""Commands `evaluate` and `config rehearse`, and the body of `judge`."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from typer import Exit, Option

from clara_eval.actions.evaluate import EvaluationRequest
from clara_eval.actions.folder import read_entries, sample_entries
from clara_eval.actions.harness import with_harness
from clara_eval.actions.judge import Judged, JudgeRequest, judge_entries, quote_judging
from clara_eval.actions.judge import rehearse as rehearse_config
from clara_eval.actions.operator import evaluate_now
from clara_eval.app import plan_of
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.documents.results import EvalStatus, LeaderboardRow, Margin, Scores
from clara_eval.interfaces.cli import output, screen
from clara_eval.interfaces.cli.config import print_quote, read_config
from clara_eval.interfaces.cli.leaderboard_table import LeaderboardTable, print_leaderboard, print_result
from clara_eval.interfaces.cli.output import AddressArgument, ConfigFile, HarnessOption, JsonFlag, Judges, Problem
from clara_eval.interfaces.words import show_value

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
}  # The commands to run after each outcome.


def evaluate(
    address: AddressArgument,
    *,
    dry_run: Annotated[bool, Option("--dry-run", help="Compute and rehearse everything, send nothing.")] = False,
    restart: Annotated[bool, Option("--restart", help="Discard an unfinished evaluation and start again.")] = False,
    schedule: Annotated[str, Option(help="auto, full, both, adaptive or fours (orders of four first).")] = "auto",
    max_games: Annotated[int | None, Option(help="Compare at most this many times.", min=1)] = None,
    json: JsonFlag = False,
) -> None:
    """Evaluate one challenge and post its winners; without a key it is a dry run."""
    target, settings = to_address(address), Settings.from_env()
    with LiveProgress(screen.console()) as live:
        plan = plan_of(settings, schedule=schedule, max_games=max_games)
        asked = EvaluationRequest(is_named=True, plan=plan, dry_run=dry_run, restart=restart, progress=live)
        done, document = asyncio.run(evaluate_now(settings, target, asked))
    if json:
        output.emit_json(document)
    else:
        print_result(Scores.model_validate(document))
        waits = (done.review.unless_decided, *done.review.reasons) if done.review and not done.receipt else ()
        screen.print_labelled("Waits for", "a person:" if waits else None)
        for reason in waits:
            screen.print_wrapped(screen.short_hex(reason), "           - ")
        if done.receipt:
            screen.print_labelled("Outcome", done.receipt.detail or OUTCOMES[done.outcome])
        screen.print_next(NEXT[done.outcome].format(target).split("|"))
    if not done.is_done:
        raise Exit(1)


class LiveProgress(Progress):
    """A progress callback for statuses: bars on a terminal, otherwise one line per stage."""

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


def run_judge(
    source: str, config: Path, out: Path, harness: Path | None, *, dry_run: bool, json: bool, **asked: Any
) -> None:
    settings = Settings.from_env()
    _, content = read_config(config, as_json=json)
    title = "Entries" if source == "-" else Path(source).resolve().stem
    request = JudgeRequest(read_entries(source), with_harness(content, harness), title=title, **asked)
    if dry_run:
        quoted = quote_judging(request, settings)
        output.answer(quoted.document, json, lambda: print_quote(quoted.quote, quoted.schedule, is_posted=False))
        return
    with LiveProgress(screen.console()) as progress:
        try:
            found = asyncio.run(judge_entries(request, settings, out, progress))
        except KeyboardInterrupt:
            progress.tell("stopped", f"what was paid for is kept; {screen.program()} judge … --out {out} continues it")
            raise
    if json:
        output.emit_json(found.document)
        return
    _print_ranking(found)
    screen.print_labelled("Digest", found.digest)
    place = screen.from_here(out.resolve())
    screen.print_labelled("Wrote", f"{place}: trace.json, scores.json, leaderboard.csv, leaderboard.md")
    screen.print_next([f"view {shlex.quote(place)}", f"verify {shlex.quote(place)}/trace.json"])


def _print_ranking(found: Judged) -> None:
    rows = [
        LeaderboardRow.model_validate({**row, "address": row["id"], "prizeAmount": "1" if row["winner"] else None})
        for row in found.document["rankings"]
    ]
    values = found.document.get("margin")
    margin = Margin.model_validate(values) if values else None
    names = {row.address: row.address for row in rows}
    print_leaderboard(screen.console(stderr=False), LeaderboardTable(rows, margin=margin, names=names))
    screen.console(stderr=False).print()
    if margin is not None:
        screen.print_wrapped(margin.sentence)
    screen.print_warnings([flag["sentence"] for flag in found.document["flags"] if flag["severity"] != "info"])
    screen.print_labelled("Cost", f"${found.cost_usd:.4f}")


def rehearse(
    file: ConfigFile,
    sample: Annotated[list[Path] | None, Option(help="A file to judge (repeat for more).")] = None,
    harness: HarnessOption = None,
    problem: Problem = "",
    write: Annotated[Path | None, Option(help="Write the fully typed config here.")] = None,
    judges: Judges = "",
    as_json: JsonFlag = False,
) -> None:
    """Judge samples as an evaluation would: facts, test results, and who would win. Nothing is kept."""
    config, content = read_config(file, as_json=as_json)
    if write is not None and write.exists():
        raise output.already_exists(write)  # before any model is paid
    entries, task = sample_entries(sample or []), output.text_or_file(problem)
    request = JudgeRequest(entries, with_harness(content, harness), judges, problem=task)
    found = asyncio.run(rehearse_config(config, request, Settings.from_env()))
    if write is not None:
        output.write_new(write, found.typed_config.encode())
    document: dict[str, Any] = {"file": str(file), **found.document, "written": None if write is None else str(write)}
    if as_json:
        output.emit_json(document)
        return
    for line in found.descriptions:
        screen.print_text(line)
    for read in document["readings"]:
        screen.print_text(f"\n{read['file']}")
        for name, value in read["facts"].items():
            screen.print_text(f"  {name:28} {show_value(value)}")
        for test in read["tests"]:
            shown = test["value"] if test["outcome"] == "passed" and test["kind"] == "metric" else test["outcome"]
            screen.print_text(f"  {test['name']:28} {shown}")
        screen.print_lines(*(f"  [dim]{screen.safe(line, 300)}[/]" for line in read["said"]))
        screen.print_lines(*(f"  flag: {screen.safe(sentence, 400)}" for sentence in read["flags"]))
    if document["ranking"]:
        screen.print_text("")
        _print_ranking(found.judged)
    screen.print_warnings(document["warnings"])
    if document["written"]:
        screen.print_lines(f"Wrote {screen.safe(document['written'])}.")
