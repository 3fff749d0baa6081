"""`judge` and `view`: entries without a chain, and the result in a browser. What they need is loaded late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clara_eval.interfaces.cli.commands import load
from clara_eval.interfaces.cli.output import HarnessOption, JsonFlag, Judges, Problem, text_or_file


def judge(
    source: Annotated[
        str, typer.Argument(metavar="PATH", help="A folder, a JSON Lines or CSV file, or - for standard input.")
    ],
    *,
    config: Annotated[Path, typer.Option(metavar="FILE", help="The eval config, a JSON file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results and paid answers are kept.")] = Path("judged"),
    harness: HarnessOption = None,
    problem: Problem = "",
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
    asked = {"judges": judges, "winners": winners, "max_usd": max_usd, "problem": text_or_file(problem)}
    load("judge_run:run")(source, config, out, harness, dry_run=dry_run, as_json=json, **asked)


def view(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out folder of `judge`.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 lets the system choose.")] = 0,
) -> None:
    """Show the result of `judge` in a browser, until Ctrl-C; its trace is checked first, and nothing is written."""
    load("judge_run:show")(folder, port)
