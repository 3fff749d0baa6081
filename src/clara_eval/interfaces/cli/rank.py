"""`rank`: rank any pairwise results, or simulate what a schedule buys; equal rows in any order print equal bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from clara_eval.actions.rank import payout_shares, rank_file
from clara_eval.actions.rank import simulate as simulate_rounds
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console, safe

SCHEDULES = ("all", "full", "both", "adaptive")
SHOWN_ROWS = 100
BAR_WIDTH = 17


def rank(  # noqa: PLR0917  # one parameter for each option of the command
    file: Annotated[
        Path | None, typer.Argument(help="CSV with the columns left,right,winner (left, right or tie).")
    ] = None,
    winners: Annotated[int | None, typer.Option(help="How many places are paid; 3 unless --payout says it.")] = None,
    payout: Annotated[str, typer.Option(help="Basis points (6000,2500,1500), top3 or equal.")] = "",
    literal: Annotated[bool, typer.Option("--literal", help="The specification's single pass, in file order.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write plots into this folder.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="No file: simulate challenges with a known truth.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
    schedule: Annotated[str, typer.Option(help="Simulate only this schedule: full, both, adaptive or all.")] = "all",
    size: Annotated[int, typer.Option(help="Submissions in a simulated challenge.", min=4, max=300)] = 25,
    trials: Annotated[int, typer.Option(help="Simulated challenges.", min=1)] = 60,
) -> None:
    """Rank pairwise results from a CSV file, with intervals, the margin at the pay line and a consistency report."""
    shares = payout_shares(payout, winners)
    if not simulate:
        if file is None:
            raise BadInput("No file given.", remedy="Name a CSV file with left,right,winner, or use --simulate.")
        found, plots = rank_file(file, shares, literal=literal, with_plots=svg is not None)
        _write(svg, plots)
        if json:
            emit_json(found)
        else:
            _print(found)
        return
    if file is not None:
        raise BadInput("--simulate needs no file.", remedy="Leave out the file or the option.")
    if schedule not in SCHEDULES:
        raise BadInput(f"There is no schedule {schedule!r} to simulate.", remedy=f"Use {', '.join(SCHEDULES)}.")
    if seed < 0:
        raise BadInput(f"--seed {seed} is negative.", value=seed, remedy="Use 0 or more.")
    console().print(f"simulating {trials} challenges of {size} submissions, seed {seed} …")
    points, plots = simulate_rounds(size, trials, seed, schedule, shares)
    _write(svg, plots)
    if json:
        emit_json({"size": size, "trials": trials, "seed": seed, "points": points})
    else:
        console(stderr=False).print(_quality_table(points))


def _print(found: dict[str, Any]) -> None:
    out, rows, margin = console(stderr=False), found["ranking"], found["margin"]
    shown = rows[:SHOWN_ROWS]
    out.print(_table(found, shown, names=min(40, max(12, out.width - 74))))
    if len(rows) > SHOWN_ROWS:
        out.print(f"… and {len(rows) - SHOWN_ROWS} more; --json lists all.")
    if any(row["tiedWith"] for row in shown):
        out.print("= shares its rating with another; among equals the lower name comes first.")
    colour = {"clear": "green", "uncertain": "yellow", "toss-up": "red"}[margin["word"]]
    out.print(f"[bold]Pay line[/]  [{colour}]{safe(margin['sentence'])}[/]")
    if found["orderedBy"] == "elo, then strength":
        out.print("[dim]Paid places by Elo; below them by fitted strength, because some never met.[/]")
    swaps = found["swapConsistency"]
    swapped = "" if swaps is None else f", {100 * swaps:.0f} % kept their verdict swapped"
    out.print(
        f"[bold]Verdicts[/]  {found['results']} on {100 * found['coverage']:.0f} % of pairs{swapped}; "
        f"{found['cycles']} cycles in {found['decidedTriples']} decided triples; "
        f"lean to the first {found['positionBias']:+.2f} logits"
    )
    for flag in found["flags"]:
        colour = "red" if flag["severity"] == "review" else "yellow"
        out.print(f"[{colour}]{flag['severity']:>8}[/]  {safe(flag['sentence'], 400)}")


def _table(found: dict[str, Any], shown: list[dict[str, Any]], names: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("#", "item", "Elo", "95 %", "", "P(paid)", "W–L–T"):
        table.add_column(heading, justify="left" if heading in ("item", "") else "right", no_wrap=True)
    low, high = min(row["low"] for row in shown), max(row["high"] for row in shown)
    for row in shown:
        table.add_row(
            f"{row['rank']}{'=' if row['tiedWith'] else ''}",
            safe(row["item"], names),
            f"{row['elo']:.0f}",
            f"{row['low']:.0f}–{row['high']:.0f}",
            _bar(row, low, high),
            f"{100 * row['pTop']:.0f} %",
            f"{row['wins']}–{row['losses']}–{row['ties']}",
            style="bold" if row["rank"] <= found["winnerCount"] else None,
            end_section=row["rank"] == found["winnerCount"],
        )
    return table


def _bar(row: dict[str, Any], low: float, high: float) -> str:
    """Draw an interval: ─ from low to high, ● at the rating."""
    scale = (BAR_WIDTH - 1) / max(high - low, 1e-9)
    start, spot, end = (round((row[name] - low) * scale) for name in ("low", "elo", "high"))
    return "".join("●" if x == spot else "─" if start <= x <= end else " " for x in range(BAR_WIDTH))


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


def _quality_table(points: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("schedule", "calls", "winner right", "paid set right", "exact order", "pot misallocated", "τ"):
        table.add_column(heading, justify="left" if heading == "schedule" else "right")
    for point in points:
        shares = [f"{100 * point[name]:.0f} %" for name in ("top1", "set", "order", "misallocation")]
        table.add_row(point["schedule"], str(point["calls"]), *shares, f"{point['tau']:.2f}")
    return table
