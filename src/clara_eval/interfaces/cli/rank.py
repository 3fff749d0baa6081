"""`rank`: rank any pairwise results, or simulate what a schedule buys; equal rows in any order print equal bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from clara_eval.actions.rank import Point, Ranking, Standing, payout_shares, rank_file, ranking_document
from clara_eval.actions.rank import simulate as simulate_rounds
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console, safe

SCHEDULES = ("all", "full", "both", "adaptive")
SHOWN_ROWS = 100


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
            emit_json(ranking_document(found))
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
        emit_json({"size": size, "trials": trials, "seed": seed, "points": [_point(point) for point in points]})
    else:
        console(stderr=False).print(_quality_table(points))


def _print(ranking: Ranking) -> None:
    out = console(stderr=False)
    out.print(_table(ranking, names=min(40, max(12, out.width - 74))))
    if len(ranking.standings) > SHOWN_ROWS:
        out.print(f"… and {len(ranking.standings) - SHOWN_ROWS} more; --json lists all.")
    if any(ranking.tied_with(standing.item) for standing in ranking.standings[:SHOWN_ROWS]):
        out.print("= shares its rating with another; among equals the lower name comes first.")
    colour = {"clear": "green", "uncertain": "yellow", "toss-up": "red"}[ranking.margin.word]
    out.print(f"[bold]Pay line[/]  [{colour}]{safe(ranking.margin.sentence)}[/]")
    if ranking.ordered_by == "elo, then strength":
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


def _point(point: Point) -> dict[str, object]:
    q = point.quality
    shares = {"top1": q.top1, "set": q.set, "order": q.order, "misallocation": q.misallocation}
    return {
        "schedule": point.schedule,
        "calls": point.calls,
        **{name: round(value, 4) for name, value in {**shares, "regret": q.regret, "tau": q.tau}.items()},
    }


def _quality_table(points: list[Point]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("schedule", "calls", "winner right", "paid set right", "exact order", "pot misallocated", "τ"):
        table.add_column(heading, justify="left" if heading == "schedule" else "right")
    for point in points:
        q = point.quality
        shares = [f"{100 * value:.0f} %" for value in (q.top1, q.set, q.order, q.misallocation)]
        table.add_row(point.schedule, str(point.calls), *shares, f"{q.tau:.2f}")
    return table
