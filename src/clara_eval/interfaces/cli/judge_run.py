"""What `judge` and `view` do: read, quote or judge, print, and serve."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from clara_eval.actions.folder_entries import read_entries
from clara_eval.actions.judge import Judged, JudgeRequest, judge_entries, quote_judging
from clara_eval.config.settings import Settings
from clara_eval.documents.results import LeaderboardRow, Margin
from clara_eval.interfaces.cli import screen
from clara_eval.interfaces.cli.commands import load
from clara_eval.interfaces.cli.config import print_quote, read_config
from clara_eval.interfaces.cli.evaluate import LiveProgress
from clara_eval.interfaces.cli.leaderboard_table import LeaderboardTable, print_leaderboard
from clara_eval.interfaces.cli.output import answer


def run(
    source: str, config: Path, out: Path, asked: tuple[str, int | None, float | None], *, dry_run: bool, as_json: bool
) -> None:
    """Quote, or judge; `asked` has judges, winners and dollars."""
    settings = Settings.from_env()
    _, content = read_config(config, as_json=as_json)
    title = "Entries" if source == "-" else Path(source).resolve().stem
    request = JudgeRequest(read_entries(source), content, *asked, title)
    if dry_run:
        quoted = quote_judging(request, settings)
        answer(quoted.document, as_json, lambda: print_quote(quoted.quote, quoted.schedule, is_posted=False))
        return
    with LiveProgress(screen.console()) as progress:
        try:
            found = asyncio.run(judge_entries(request, settings, out, progress))
        except KeyboardInterrupt:
            progress.tell("stopped", f"what was paid for is kept; {screen.program()} judge … --out {out} continues it")
            raise
    answer(found.document, as_json, lambda: _print(found, out))


def show(folder: Path, port: int) -> None:
    """Serve the pages of a result until Ctrl-C."""
    serve_folder = load("clara_eval.interfaces.view:serve_folder")  # the extra `server`
    asyncio.run(serve_folder(folder, port, lambda url: screen.print_labelled("Page", f"{url}  (Ctrl-C ends it)")))


def _print(found: Judged, out: Path) -> None:
    rows = [
        LeaderboardRow.model_validate({**row, "address": row["id"], "prizeAmount": "1" if row["winner"] else None})
        for row in found.document["rankings"]
    ]
    told = found.document.get("margin")
    margin = Margin.model_validate(told) if told else None
    names = {row.address: row.address for row in rows}
    print_leaderboard(screen.console(stderr=False), LeaderboardTable(rows, margin=margin, names=names))
    screen.console(stderr=False).print()
    if margin is not None:
        screen.print_wrapped(margin.sentence)
    screen.print_warnings([flag["sentence"] for flag in found.document["flags"] if flag["severity"] != "info"])
    screen.print_labelled("Cost", f"${found.cost_usd:.4f}")
    screen.print_labelled("Digest", found.digest)
    place = screen.from_here(out.resolve())
    screen.print_labelled("Wrote", f"{place}: trace.json, scores.json, leaderboard.csv, leaderboard.md")
    screen.print_next([f"view {shlex.quote(place)}", f"verify {shlex.quote(place)}/trace.json"])
