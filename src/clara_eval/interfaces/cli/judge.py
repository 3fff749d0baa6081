"""`judge`: judge a folder or a list of entries, without a chain."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from clara_eval.actions.folder_entries import read_entries
from clara_eval.actions.judge import Judged, JudgeRequest, judge_entries, quote_judging
from clara_eval.config.settings import Settings
from clara_eval.documents.results import LeaderboardRow, Margin
from clara_eval.interfaces.cli.config import print_quote, read_config
from clara_eval.interfaces.cli.evaluate import LiveProgress
from clara_eval.interfaces.cli.leaderboard_table import LeaderboardTable, print_leaderboard
from clara_eval.interfaces.cli.output import JsonFlag, Judges, answer
from clara_eval.interfaces.cli.screen import (
    console,
    from_here,
    print_labelled,
    print_next,
    print_warnings,
    print_wrapped,
    program,
)


def judge(
    source: Annotated[
        str, typer.Argument(metavar="PATH", help="A folder, a JSON Lines or CSV file, or - for standard input.")
    ],
    *,
    config: Annotated[Path, typer.Option(metavar="FILE", help="The eval config, a JSON file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results and paid answers are kept.")] = Path("judged"),
    judges: Judges = "",
    winners: Annotated[int | None, typer.Option(min=1, help="How many win; by default 3.")] = None,
    max_usd: Annotated[
        float | None,
        typer.Option("--max-usd", min=0, help="Spend at most this; by default CLARA_BUDGET_PER_CHALLENGE_USD."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost; ask nothing.")] = False,
    json: JsonFlag = False,
) -> None:
    """Judge entries without a chain; called again, it continues and pays for nothing twice."""
    settings = Settings.from_env()
    _, content = read_config(config, as_json=json)
    title = "Entries" if source == "-" else Path(source).resolve().stem
    request = JudgeRequest(read_entries(source), content, judges, winners, max_usd, title)
    if dry_run:
        quoted = quote_judging(request, settings)
        answer(quoted.document, json, lambda: print_quote(quoted.quote, quoted.schedule, is_posted=False))
        return
    with LiveProgress(console()) as progress:
        try:
            found = asyncio.run(judge_entries(request, settings, out, progress))
        except KeyboardInterrupt:
            progress.tell("stopped", f"what was paid for is kept; {program()} judge … --out {out} continues it")
            raise
    answer(found.document, json, lambda: _print(found, out))


def _print(found: Judged, out: Path) -> None:
    rows = [
        LeaderboardRow.model_validate({**row, "address": row["id"], "prizeAmount": "1" if row["winner"] else None})
        for row in found.document["rankings"]
    ]
    told = found.document.get("margin")
    margin = Margin.model_validate(told) if told else None
    names = {row.address: row.address for row in rows}
    print_leaderboard(console(stderr=False), LeaderboardTable(rows, margin=margin, names=names))
    console(stderr=False).print()
    if margin is not None:
        print_wrapped(margin.sentence)
    print_warnings([flag["sentence"] for flag in found.document["flags"] if flag["severity"] != "info"])
    print_labelled("Cost", f"${found.cost_usd:.4f}")
    print_labelled("Digest", found.digest)
    place = from_here(out.resolve())
    print_labelled("Wrote", f"{place}: trace.json, scores.json, leaderboard.csv, leaderboard.md")
    print_next([f"verify {place}/trace.json"])
