"""The demo for a person: what happened room by room, a leaderboard, the money, and where to look next."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clara_eval.challenge.model import Address, short
from clara_eval.demo.lifecycle import Told

_BAR = 19


def show_story(console: Console, told: Told) -> None:
    """Everything after the walk, on standard output."""
    console.print()
    console.print(_leaderboard(told))
    _rejections(console, told)
    console.print()
    console.print(_money(told))
    _where(console, told)


_HEADINGS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("#", "right"),
    ("entry", "left"),
    ("agent", "left"),
    ("Elo", "right"),
    ("95 % interval", "left"),
    ("P(paid)", "right"),
    ("W–L–T", "right"),
    ("score", "right"),
    ("prize", "right"),
)


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
        padding=(0, 1),
    )


def _leaderboard(told: Told) -> Table:
    walk, token = told.evaluation.walk, told.evaluation.challenge.token
    standings = walk.ranking.standings if walk.ranking else ()
    table = _table("Leaderboard")
    for heading, side in _HEADINGS:
        table.add_column(heading, justify=side, no_wrap=True)
    prizes = {w.account: w.prize_amount for w in walk.winners.entries}
    low, high = min((s.low for s in standings), default=0), max((s.high for s in standings), default=1)
    for s in standings:
        account = Address(s.item)
        prize = prizes.get(account)
        table.add_row(
            f"{s.rank}{'=' if walk.ranking and walk.ranking.tied_with(s.item) else ''}",
            told.round.names[account],
            short(account),
            f"{s.elo:.0f}",
            bar(s.low, s.elo, s.high, low, high),
            f"{100 * s.p_top:.0f} %",
            f"{s.wins}–{s.losses}–{s.ties}",
            str(s.score),
            f"{prize / 10**token.decimals:,.2f} {token.symbol}" if prize is not None else "",
            style="bold green" if prize else "",
        )
    return table


def bar(low: float, middle: float, high: float, first: float, last: float) -> str:
    """An interval as characters: ├──●──┤ on a scale shared by all rows."""
    span = (last - first) or 1.0
    at = [round((value - first) / span * (_BAR - 1)) for value in (low, middle, high)]
    cells = [" "] * _BAR
    cells[at[0] : at[2] + 1] = ["─"] * (at[2] - at[0] + 1)
    cells[at[0]], cells[at[2]], cells[at[1]] = "├", "┤", "●"
    return "".join(cells)


def _rejections(console: Console, told: Told) -> None:
    console.print()
    console.print("[bold]Not ranked[/bold], each with its reason; the round went on without them:")
    for refused in told.evaluation.walk.rejected:
        account = refused.submission.submitter
        who = f"{told.round.names[account]:<22}{short(account)}"
        reason = re.sub(r"0x[0-9a-f]{40,}", lambda found: short(found.group()), refused.reason)
        console.print(f"  {who}  [yellow]{refused.code}[/yellow]: {escape(reason)}", soft_wrap=True)


def _money(told: Told) -> Table:
    challenge = told.evaluation.challenge
    unit, symbol = 10**challenge.token.decimals, challenge.token.symbol
    table = _table("The money")
    table.add_column("account")
    table.add_column("before", justify="right")
    table.add_column("claimed", justify="right")
    table.add_column("after", justify="right")
    for account, (before, after) in told.balances.items():
        table.add_row(
            f"{told.round.names[account]} {short(account)}",
            f"{before / unit:,.2f}",
            f"+{(after - before) / unit:,.2f}",
            f"{after / unit:,.2f} {symbol}",
        )
    total = sum(after - before for before, after in told.balances.values())
    table.add_row("prize pool", f"{challenge.prize_pool / unit:,.2f}", f"{total / unit:,.2f}", "", style="dim")
    return table


def _where(console: Console, told: Told) -> None:
    evaluation = told.evaluation
    margin = evaluation.walk.ranking.margin if evaluation.walk.ranking else None
    console.print()
    if margin is not None:
        names = {str(account): name for account, name in told.round.names.items()}
        pair = f"{names.get(margin.item, margin.item)} over {names.get(margin.next_item, margin.next_item)}"
        console.print(f"[bold]Pay line[/bold]   {pair}: {100 * margin.probability:.0f} % sure, {margin.word}")
    console.print(f"[bold]Trace[/bold]      {escape(str(told.trace_path))}", soft_wrap=True)
    console.print(f"[bold]Digest[/bold]     {evaluation.digest} (also in the posted transaction)", soft_wrap=True)
    console.print(f"[bold]Check it[/bold]   {escape(_program())} verify <the trace above>", soft_wrap=True)


def _program() -> str:
    """The program as it can be called from here: after `make demo` it is on nobody's path."""
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "clara-eval" and not shutil.which(called.name) else "clara-eval"
