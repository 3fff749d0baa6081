"""Print leaderboards of challenges, and the command `rank` for any pairwise results.

Invariant: untrusted text is escaped; `rank` prints equal bytes for equal rows in any order.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Option, echo

from clara_eval.actions import rank as ranks
from clara_eval.actions.amounts import round_amount
from clara_eval.core.address import short
from clara_eval.core.errors import BadInput
from clara_eval.core.untrusted import bare, escaped
from clara_eval.documents.actions import StandingRow
from clara_eval.documents.results import ExecutedRun, LeaderboardRow, Margin, RankedEntry, Scores, Token
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console, print_labelled, print_wrapped, safe, short_hex

ROWS = 25  # places shown by default
MAX_NAME_CHARS = 20
GAP = "  "
BAR_WIDTHS = (13, 31)  # smallest and largest, in characters
UNKNOWN = "–"
MAX_CRITERIA_CHARS = 300


@dataclass(frozen=True, slots=True)
class LeaderboardTable:
    rows: Sequence[LeaderboardRow | StandingRow]
    token: Token | None = None
    margin: Margin | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    marked: str = ""  # an address whose row is highlighted


class Column:
    """A heading and its cells, padded to one width; a narrow screen drops the lowest `keep` first."""

    def __init__(self, heading: str, cells: list[str], keep: int, side: Literal["left", "right"] = "right") -> None:
        self.heading, self.cells, self.keep = heading, cells, keep
        self.width = max(map(cell_len, (heading, *cells)))
        texts = [(text, " " * (self.width - cell_len(text))) for text in (heading, *cells)]
        self.aligned = [text + missing if side == "left" else missing + text for text, missing in texts]


def print_leaderboard(
    screen: Console, leaderboard: LeaderboardTable, *, limit: int = ROWS, heading: str = "Leaderboard"
) -> None:
    """Print the table with a line below the winners, then the entries that were not ranked and why."""
    ranked = [row for row in leaderboard.rows if row.is_ranked]
    rejected = [row for row in leaderboard.rows if not row.is_ranked]
    if ranked:
        screen.print(Text(heading, style="bold"))
        for line in table_lines(leaderboard, ranked[:limit], screen.width):
            screen.print(line, no_wrap=True, overflow="crop", crop=False)
        if len(ranked) > limit:
            screen.print(f"and {len(ranked) - limit} more places", style="dim")
    if rejected:
        screen.print()
        screen.print(Text.assemble(("Not ranked", "bold"), ", each with its reason; the round went on without them:"))
    for row in rejected[:limit]:
        who = "  ".join(filter(None, (_entry_name(leaderboard, row), _short_address(row))))
        screen.print(Text.assemble("  ", who, "  ", (escaped(row.code or "rejected"), "yellow")), soft_wrap=True)
        reason = row.reason if isinstance(row.reason, str) else bare(row.reason) if row.reason else ""
        print_wrapped(short_hex(reason), "    ", screen=screen)
    if len(rejected) > limit:
        screen.print(f"  and {len(rejected) - limit} more", style="dim")


def table_lines(leaderboard: LeaderboardTable, shown: Sequence[RankedEntry], width: int) -> list[Text]:
    columns, bar = _fit_columns(_columns(leaderboard, shown), width)
    heading, *cells = zip(*(column.aligned for column in columns), strict=True)
    ends = [_interval(row) for row in shown if row.elo is not None]
    scale = min((low for low, _, _ in ends), default=0.0), max((high for _, _, high in ends), default=1.0)
    is_exact = bool(shown) and all(row.low is not None and row.low == row.high for row in shown)
    lines = [_join_cells(heading, bar, "exact" if is_exact else "90 % range", "dim")]
    for number, row in enumerate(shown):
        if number and shown[number - 1].is_paid and not row.is_paid:
            whole, margin = _total_width(columns) + (bar + len(GAP) if bar else 0), leaderboard.margin
            sure = f": {100 * margin.sure:.0f} % sure by this judge, {margin.word}" if margin else ""
            above = "paid above this line" if leaderboard.token else "winners above this line"
            lines.append(Text(f"── {above}{sure} ".ljust(whole, "─")[:whole], style="dim"))
        style = "bold green" if row.is_paid else ""
        style = f"{style} reverse".strip() if row.address == leaderboard.marked else style
        drawn = "" if row.elo is None or not bar else draw_bar(*_interval(row), scale, bar)
        lines.append(_join_cells(cells[number], bar, drawn, style))
    return lines


def draw_bar(low: float, middle: float, high: float, scale: tuple[float, float], width: int) -> str:
    """Draw an interval, ├──●──┤, on a scale shared by all rows."""
    first, span = scale[0], (scale[1] - scale[0]) or 1.0
    at = [max(0, min(width - 1, round((value - first) / span * (width - 1)))) for value in (low, middle, high)]
    cells = [" "] * width
    cells[at[0] : at[2] + 1] = ["─"] * (at[2] - at[0] + 1)
    cells[at[0]], cells[at[2]], cells[at[1]] = "├", "┤", "●"
    return "".join(cells)


def _interval(row: RankedEntry) -> tuple[float, float, float]:
    elo = row.elo or 0.0
    return (elo if row.low is None else row.low), elo, (elo if row.high is None else row.high)


def _columns(leaderboard: LeaderboardTable, shown: Sequence[RankedEntry]) -> list[Column]:
    names, token = [_entry_name(leaderboard, row) for row in shown], leaderboard.token
    games = ["" if row.wins is None else f"{row.wins:g}–{row.losses or 0:g}–{row.ties or 0:g}" for row in shown]
    chances = ["" if row.pTop is None else f"{100 * row.pTop:.0f} %" for row in shown]
    prizes = [round_amount(int(row.prizeAmount or 0), token) if row.is_paid and token else "" for row in shown]
    found = [
        Column("#", [f"{row.rank or UNKNOWN}{'=' if row.tiedWith else ''}" for row in shown], 99),
        Column("entry", names, 99, "left"),
        Column("agent", [_short_address(row) for row in shown], 2 if any(names) else 99, "left"),
        *_run_columns([row.executed for row in shown]),
        Column("Elo", [UNKNOWN if row.elo is None else f"{row.elo:.0f}" for row in shown], 9),
        Column("P(paid)" if token else "P(wins)", chances, 5),
        Column("W–L–T", games, 1),
        Column("score", ["" if row.score is None else str(row.score) for row in shown], 3),
        Column("prize", prizes, 99),
    ]
    return [column for column in found if any(column.cells)]


def _fit_columns(columns: list[Column], width: int) -> tuple[list[Column], int]:
    """Return the columns that fit, and the width of the bar, 0 if it does not fit or nothing is rated."""
    kept, rated = list(columns), any(column.heading == "Elo" for column in columns)
    least = BAR_WIDTHS[0] + len(GAP) if rated else 0
    while _total_width(kept) + least > width:
        worst = min(kept, key=lambda column: column.keep)
        if worst.keep >= 9:
            least = 0
            if _total_width(kept) <= width or worst.keep == 99:
                break
        kept.remove(worst)
    left = width - _total_width(kept) - len(GAP)
    return kept, min(BAR_WIDTHS[1], left) if rated and least and left >= BAR_WIDTHS[0] else 0


def _total_width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _join_cells(cells: Sequence[str], bar: int, drawn: str, style: str) -> Text:
    """Join the cells, with the bar before the last one."""
    parts = [*cells[:-1], *([drawn[:bar].ljust(bar)] if bar else []), cells[-1]]
    return Text(GAP.join(parts).rstrip(), style=style)


def _entry_name(leaderboard: LeaderboardTable, row: RankedEntry) -> str:
    name = escaped(leaderboard.names.get(row.address, ""))
    return name if len(name) <= MAX_NAME_CHARS else name[: MAX_NAME_CHARS - 1] + "…"


def _short_address(row: RankedEntry) -> str:
    """Return the shortened address; empty for an entry that has only a name."""
    return short(row.address) if row.address.startswith("0x") else ""


def _run_columns(runs: Sequence[ExecutedRun | None]) -> list[Column]:
    """Return columns for passed tests and for the harness's metrics, or else gas or fuel."""
    tests = ["" if not run else f"{run.testsPassed or 0}/{run.tests}" if run.tests else UNKNOWN for run in runs]
    names = sorted({name for run in runs if run for name in run.metrics})[:2]
    unit = "fuel" if any(run and run.fuel for run in runs) else "gas"
    found = [Column("tests", tests, 8)]
    for name, keep in zip(names or [unit], (7, 6), strict=False):
        figures = [{unit: getattr(run, unit), **run.metrics}.get(name) if run else None for run in runs]
        cells = ["" if one is None else f"{one:,}" if isinstance(one, int) else f"{one:,.4g}" for one in figures]
        found.append(Column(escaped(name)[:MAX_NAME_CHARS].replace("_", " "), cells, keep))
    return found


def print_asked(scores: Scores) -> None:
    """Print how much money may be misplaced, what the poster asked for, and who judged."""
    screen = console(stderr=False)
    if scores.misplaced is not None:
        print_wrapped(_truncate(scores.misplaced.sentence, MAX_CRITERIA_CHARS))
        screen.print()
    if scores.asked is not None:
        screen.print(Text(_truncate(scores.asked.title, 100) or "A challenge without a title", style="bold"))
        print_wrapped(_truncate(scores.asked.criteria, MAX_CRITERIA_CHARS), f"{'asked':<10} ", "dim")
    if scores.judges:
        names = ", ".join(_truncate(name, 60) for name in scores.judges)
        rules = " (arithmetic on measured facts, no model)" if scores.judges == ["rules"] else ""
        games = (scores.schedule or {}).get("games")
        print_wrapped(f"{names}{rules}" + (f", {games} comparisons" if games else ""), f"{'judged by':<10} ", "dim")


def print_result(scores: Scores) -> None:
    screen = console(stderr=False)
    print_asked(scores)
    screen.print()
    print_leaderboard(screen, LeaderboardTable(scores.rankings, scores.token, scores.margin))
    screen.print()
    print_labelled("Warning", scores.warning)
    if scores.postedBy == "poster":
        print_labelled("Posted by", "the poster, not the evaluator: the ranking is the poster's")
    elif scores.txHash:
        print_labelled("Posted", scores.txHash)
    elif not scores.is_posted:
        print_labelled("Posted", "not yet")
    print_labelled("Digest", scores.traceDigest)


def _truncate(text: str, limit: int) -> str:
    shown = escaped(text[:limit])
    return shown if len(text) <= limit else shown.rstrip() + " …"


SHOWN_ROWS = 100


def rank(
    file: Annotated[Path, Argument(help="CSV or JSON lines; - is standard input.")] = Path("-"),
    top: Annotated[
        int | None, Option("--top", "--winners", help="How many places count as the top; 3 by default.")
    ] = None,
    columns: Annotated[str, Option(help="Your names for left,right,winner.")] = "",
    form: Annotated[Literal["table", "csv", "json"], Option("--format", help="How to print it.")] = "table",
    literal: Annotated[bool, Option("--literal", help="The specification's single pass, in file order.")] = False,
    json: Annotated[bool, Option("--json", help="The same as --format json.")] = False,
    svg: Annotated[Path | None, Option(help="Write plots into this folder.")] = None,
) -> None:
    """Rank pairwise results, with ranges, chances and a report on consistency.

    Columns: left,right,winner or model_a,model_b,winner. The winner is left, right, model_a, model_b, tie, or a name.
    """
    if str(file) == "-" and sys.stdin.isatty():
        raise BadInput("No file given.", remedy="Name a CSV or JSONL file, or pipe one in.")
    results = ranks.read_results(file, columns)
    found = ranks.rank_results(results, top, literal=literal)
    if svg:
        plots = ranks.plots(found, results)
        try:
            svg.mkdir(parents=True, exist_ok=True)
            for name, text in plots.items():
                (svg / name).write_text(text, encoding="utf-8")
        except OSError as bad:
            raise BadInput(f"Plots cannot be written to {svg}: {bad.strerror}.", remedy="Name a folder.") from bad
        console().print(f"wrote {', '.join(plots)} to {svg}", markup=False)
    if json or form == "json":
        emit_json(ranks.ranking_document(found))
    elif form == "csv":
        echo(ranks.ranking_csv(found), nl=False)
    else:
        _print_ranks(found)


def _print_ranks(ranking: ranks.Ranking) -> None:
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
            draw_bar(s.low, s.elo, s.high, scale, 17),
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
