"""`rank`: rank any pairwise results; equal rows in any order print equal bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from clara_eval.actions.rank import Ranking, Standing, payout_shares, rank_file, ranking_document
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli.output import answer
from clara_eval.interfaces.cli.screen import console, safe

SHOWN_ROWS = 100


def rank(  # one parameter for each option of the command
    file: Annotated[
        Path | None, typer.Argument(help="CSV with the columns left,right,winner (left, right or tie).")
    ] = None,
    winners: Annotated[int | None, typer.Option(help="How many places are paid; 3 unless --payout says it.")] = None,
    payout: Annotated[str, typer.Option(help="Basis points (6000,2500,1500), top3 or equal.")] = "",
    literal: Annotated[bool, typer.Option("--literal", help="The specification's single pass, in file order.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write plots into this folder.")] = None,
) -> None:
    """Rank pairwise results from a CSV file, with intervals, the margin at the pay line and a consistency report."""
    shares = payout_shares(payout, winners)
    if file is None:
        raise BadInput("No file given.", remedy="Name a CSV file with left,right,winner.")
    found, plots = rank_file(file, shares, literal=literal, with_plots=svg is not None)
    _write(svg, plots)
    answer(ranking_document(found), json, lambda: _print(found))


def _print(ranking: Ranking) -> None:
    out = console(stderr=False)
    out.print(_table(ranking, names=min(40, max(12, out.width - 74))))
    if len(ranking.standings) > SHOWN_ROWS:
        out.print(f"… and {len(ranking.standings) - SHOWN_ROWS} more; --json lists all.")
    if any(ranking.tied_with(standing.item) for standing in ranking.standings[:SHOWN_ROWS]):
        out.print("= shares its rating with another; among equals the lower name comes first.")
    colour = {"clear": "green", "uncertain": "yellow", "toss-up": "red"}[ranking.margin.word]
    out.print(f"[bold]Pay line[/]  [{colour}]{safe(ranking.margin.sentence)}[/]")
    if ranking.ordered_by.endswith(", then strength"):
        out.print("[dim]Paid places by Elo; below them by fitted strength, because some never met.[/]")
    report = ranking.consistency
    swapped = (
        "" if report.swap_consistency is None else f", {100 * report.swap_consistency:.0f} % kept their verdict swapped"
    )
    out.print(
        f"[bold]Verdicts[/]  {ranking.results} on {100 * report.coverage:.0f} % of pairs{swapped}; "
        f"{report.cycles} cycles in {report.decided_triples} decided triples; "
        f"lean to the first {ranking.position_bias:+.2f} logits"
    )
    for flag in ranking.flags:
        out.print(
            f"[{'red' if flag.severity == 'review' else 'yellow'}]{flag.severity:>8}[/]  {safe(flag.sentence, 400)}"
        )


def _table(ranking: Ranking, names: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("#", "item", "Elo", "95 %", "", "P(paid)", "W–L–T"):
        table.add_column(heading, justify="left" if heading in ("item", "") else "right", no_wrap=True)
    shown = ranking.standings[:SHOWN_ROWS]
    low, high = min(s.low for s in shown), max(s.high for s in shown)
    for s in shown:
        table.add_row(
            f"{s.rank}{'=' if ranking.tied_with(s.item) else ''}",
            safe(s.item, names),
            f"{s.elo:.0f}",
            f"{s.low:.0f}–{s.high:.0f}",
            _bar(s, low, high),
            f"{100 * s.p_top:.0f} %",
            f"{s.wins}–{s.losses}–{s.ties}",
            style="bold" if s.rank <= ranking.winner_count else None,
            end_section=s.rank == ranking.winner_count,
        )
    return table


def _bar(standing: Standing, low: float, high: float, width: int = 17) -> str:
    """Draw an interval: ─ from low to high, ● at the rating."""
    scale = (width - 1) / max(high - low, 1e-9)
    start, spot, end = (round((value - low) * scale) for value in (standing.low, standing.elo, standing.high))
    return "".join("●" if x == spot else "─" if start <= x <= end else " " for x in range(width))


def _write(folder: Path | None, files: dict[str, str]) -> None:
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as bad:
        raise BadInput(f"Plots cannot be written to {folder}: {bad.strerror}.", remedy="Name a folder.") from bad
    console().print(f"wrote {', '.join(files)} to {folder}", markup=False)
