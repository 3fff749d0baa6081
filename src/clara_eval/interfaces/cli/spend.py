"""`spend`: what evaluations cost, by challenge, poster and month."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table

from clara_eval.config.settings import Settings
from clara_eval.core.dollars import usd
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli.options import JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console
from clara_eval.judge.costs.spend_report import SpendLine, SpendReport, spend_report, to_json
from clara_eval.store.open import existing_store


def spend(
    *,
    since: Annotated[str | None, typer.Option(help="First day, YYYY-MM-DD; without it everything.")] = None,
    json: JsonFlag = False,
) -> None:
    """Report what was spent on models; reservations of running evaluations count and are shown apart."""
    report = asyncio.run(_report(Settings.from_env(), _first_moment(since)))
    if json:
        emit_json(to_json(report))
        return
    for title, lines in (("Month", report.by_month), ("Poster", report.by_poster), ("Challenge", report.by_challenge)):
        console(stderr=False).print(_table(title, lines, report.total))


async def _report(settings: Settings, since: int) -> SpendReport:
    async with existing_store(settings.database_url) as store:
        return spend_report(await store.spends(since=since) if store else [])


def _first_moment(since: str | None) -> int:
    if since is None:
        return 0
    try:
        return int(datetime.strptime(since, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise BadInput(f"--since {since!r} is not a day.", value=since, remedy="Write YYYY-MM-DD.") from None


def _table(title: str, lines: tuple[SpendLine, ...], total: SpendLine) -> Table:
    table = Table(title, "USD", "reserved", "evaluations", box=None, header_style="dim", pad_edge=False)
    for line in lines:
        table.add_row(line.name, usd(line.micro_usd), usd(line.open_micro_usd), str(line.evaluations))
    table.add_row("total", usd(total.micro_usd), usd(total.open_micro_usd), str(total.evaluations), style="bold")
    return table
