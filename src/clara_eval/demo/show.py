"""The demo for a person: what happened room by room, a leaderboard, the money, and where to look next."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clara_eval.challenge.model import Address, short
from clara_eval.demo.lifecycle import Told
from clara_eval.ranking.rank import Standing

_BAR = 19


def show_story(console: Console, told: Told) -> None:
    """Everything after the walk, on standard output."""
    console.print()
    console.print(_leaderboard(told, console.width))
    _rejections(console, told)
    console.print()
    console.print(_money(told))
    _where(console, told)


_LEFT = frozenset({"entry", "agent", "95 % interval"})
_ONLY_WIDE = frozenset({"agent", "95 % interval"})
"""Left out where a round also shows what was run and the screen has fewer columns than `_WIDE`."""
_WIDE = 116
_METRICS_SHOWN = 2


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


def _leaderboard(told: Told, width: int) -> Table:
    """One row for each place; where submissions were run, also the tests they passed and what was measured."""
    standings = told.evaluation.walk.ranking.standings if told.evaluation.walk.ranking else ()
    executed = told.evaluation.walk.execution.summaries if told.evaluation.walk.execution else {}
    rows = [_row(told, standing, executed) for standing in standings]
    table = _table("Leaderboard")
    hidden = _ONLY_WIDE if executed and width < _WIDE else frozenset()
    headings = [heading for heading in (rows[0] if rows else {}) if heading not in hidden]
    for heading in headings:
        table.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[heading] for heading in headings), style="bold green" if row["prize"] else "")
    return table


def _row(told: Told, s: Standing, executed: Mapping[Address, Mapping[str, Any]]) -> dict[str, str]:
    walk, token = told.evaluation.walk, told.evaluation.challenge.token
    account = Address(s.item)
    prize = {w.account: w.prize_amount for w in walk.winners.entries}.get(account)
    standings = walk.ranking.standings if walk.ranking else ()
    low, high = min(one.low for one in standings), max(one.high for one in standings)
    return {
        "#": f"{s.rank}{'=' if walk.ranking and walk.ranking.tied_with(s.item) else ''}",
        "entry": told.round.names[account],
        "agent": short(account),
        **_ran(account, executed),
        "Elo": f"{s.elo:.0f}",
        "95 % interval": bar(s.low, s.elo, s.high, low, high),
        "P(paid)": f"{100 * s.p_top:.0f} %",
        "W–L–T": f"{s.wins}–{s.losses}–{s.ties}",
        "score": str(s.score),
        "prize": f"{prize / 10**token.decimals:,.2f} {token.symbol}" if prize is not None else "",
    }


def _ran(account: Address, executed: Mapping[Address, Mapping[str, Any]]) -> dict[str, str]:
    """Tests passed of all, and the first metrics (gas or fuel without any); nothing where nothing was run."""
    if not executed:
        return {}
    run = executed.get(account, {})
    tests = f"{run['testsPassed']} of {run['tests']}" if run.get("tests") else ""
    metrics = sorted({name for one in executed.values() for name in one["metrics"]})[:_METRICS_SHOWN]
    unit = "fuel" if any(one["fuel"] for one in executed.values()) else "gas"
    values = {name: run.get("metrics", {}).get(name) for name in metrics} or {unit: run.get(unit)}
    shown = {name.replace("_", " "): "" if value is None else f"{value:,}" for name, value in values.items()}
    return {"tests": tests, **shown}


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
