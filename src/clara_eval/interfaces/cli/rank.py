"""`rank`: rank any pairwise results; equal rows in any order print equal bytes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich import box
from rich.table import Table

from clara_eval.actions import rank as ranks
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli.leaderboard_table import bar_of
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console, safe

SHOWN_ROWS = 100
BAR_WIDTH = 17


def rank(
    file: Annotated[Path, typer.Argument(help="CSV or JSON lines; - is standard input.")] = Path("-"),
    top: Annotated[
        int | None, typer.Option("--top", "--winners", help="Tell the chance of the first so many; else of three.")
    ] = None,
    columns: Annotated[str, typer.Option(help="Your names for left,right,winner.")] = "",
    form: Annotated[Literal["table", "csv", "json"], typer.Option("--format", help="How to print it.")] = "table",
    literal: Annotated[bool, typer.Option("--literal", help="The specification's single pass, in file order.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write plots into this folder.")] = None,
) -> None:
    """Rank pairwise results, with ranges, chances and a report on consistency.

    Columns: left,right,winner or model_a,model_b,winner. The winner is left, right, model_a, model_b, tie, or a name.
    """
    if str(file) == "-" and sys.stdin.isatty():
        raise BadInput("No file given.", remedy="Name a CSV or JSONL file, or pipe one in.")
    results = ranks.read_results(file, columns)
    found = ranks.rank_results(results, top, literal=literal)
    if svg:
        _write(svg, ranks.plots(found, results))
    if json or form == "json":
        emit_json(ranks.ranking_document(found))
    elif form == "csv":
        typer.echo(ranks.ranking_csv(found), nl=False)
    else:
        _print(found)


def _print(ranking: ranks.Ranking) -> None:
    out, top = console(stderr=False), ranking.winner_count
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("#", "item", "Elo", "90 %", "", f"P(top {top})", "W–L–T"):
        table.add_column(heading, justify="left" if heading in ("item", "") else "right", no_wrap=True)
    shown, widest = ranking.standings[:SHOWN_ROWS], min(40, max(12, out.width - 74))
    scale = min(s.low for s in shown), max(s.high for s in shown)
    for s in shown:
        table.add_row(
            f"{s.rank}{'=' if ranking.tied_with(s.item) else ''}",
            safe(s.item, widest),
            f"{s.elo:.0f}",
            f"{s.low:.0f}–{s.high:.0f}",
            bar_of(s.low, s.elo, s.high, scale, BAR_WIDTH),
            f"{100 * s.p_top:.0f} %",
            f"{s.wins}–{s.losses}–{s.ties}",
            style="bold" if s.rank <= top else None,
            end_section=s.rank == top,
        )
    out.print(table)
    if len(ranking.standings) > SHOWN_ROWS:
        out.print(f"… and {len(ranking.standings) - SHOWN_ROWS} more; --format csv lists all.")
    if any(ranking.tied_with(s.item) for s in shown):
        out.print("= has exactly the rating of another; equals are in the order of their names.")
    colour = {"clear": "green", "about equal": "yellow", "uncertain": "yellow", "toss-up": "red"}[ranking.margin.word]
    out.print(f"[bold]{f'Top {top}':<9}[/] [{colour}]{safe(ranks.margin_sentence(ranking))}[/]")
    if ranking.ordered_by.endswith(", then strength"):
        out.print(f"[dim]The top {top} are by Elo; the others by fitted strength, because some never met.[/]")
    report, kept = ranking.consistency, ranking.consistency.swap_consistency
    swapped = "" if kept is None else f"; swapping sides kept {100 * kept:.0f} % of them"
    out.print(
        f"[bold]Verdicts[/]  {ranking.results} on {100 * report.coverage:.0f} % of pairs{swapped}; {report.cycles} of "
        f"{report.decided_triples} triples are cycles; first-side advantage {ranking.position_bias:+.2f} logits"
    )
    for flag in ranks.other_flags(ranking):
        out.print(f"[yellow]{'Note':<9}[/] {safe(flag.sentence, 400)}")


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as bad:
        raise BadInput(f"Plots cannot be written to {folder}: {bad.strerror}.", remedy="Name a folder.") from bad
    console().print(f"wrote {', '.join(files)} to {folder}", markup=False)
