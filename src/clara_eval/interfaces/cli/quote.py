"""`clara-eval config quote`: what an evaluation will cost, before it is paid for.

A config file and a number of submissions come in; calls, tokens and dollars for each stage go out, beside the
specification's own table. A judge whose price is unknown is named, and then there is no total.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from clara_eval.actions.model_needed import missing_model
from clara_eval.actions.quote import JURY_NOTE, quote_schedule
from clara_eval.config.settings import Settings
from clara_eval.interfaces.cli.config_file import print_warning, read_config
from clara_eval.interfaces.cli.options import ConfigFile, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console, safe
from clara_eval.judge.costs.quote import (
    GAS_MICRO_USD,
    Quote,
    Size,
    specification_table,
    to_json,
)
from clara_eval.judge.providers.registry import parse_jury

Judges = Annotated[str, typer.Option(help="Judges instead of CLARA_JUDGES, a comma list.")]


class Looks(StrEnum):
    auto = "auto"
    both = "both"
    full = "full"
    adaptive = "adaptive"
    fours = "fours"


def quote(
    file: ConfigFile,
    submissions: Annotated[int, typer.Option(min=1, max=100_000, help="How many submissions to expect.")] = 25,
    size: Annotated[int, typer.Option("--bytes", min=1, max=10_000_000, help="Typical size of a submission.")] = 4_000,
    schedule: Annotated[Looks, typer.Option(help="Which pairs are compared.")] = Looks.auto,
    judges: Judges = "",
    batch: Annotated[
        bool, typer.Option("--batch", help="In batches, at half the price, where a judge offers them.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say what an evaluation will cost, stage by stage, beside the specification's table."""
    settings = Settings.from_env()
    config = read_config(file, as_json=as_json)
    jury = parse_jury(judges or settings.judges)
    asked = Size(submissions, 0, size, batch)
    chosen, found = quote_schedule(config, asked, jury, settings, schedule.value)
    notes = [JURY_NOTE] if len(jury) > 1 else []
    lacking = missing_model(config, judges or settings.judges)
    if as_json:
        warnings = [lacking] if lacking else []
        emit_json({"file": str(file), "schedule": chosen, **to_json(found), "notes": notes, "warnings": warnings})
        return
    _print_quote(found, chosen)
    for note in notes:
        console(stderr=False).print(note, soft_wrap=True)
    print_warning(lacking)


def _print_quote(found: Quote, schedule: str) -> None:
    out = console(stderr=False)
    size = found.size
    table = Table(title=f"{size.submissions} submissions of {size.submission_bytes} bytes, schedule {schedule}")
    for name in ("stage", "judge", "calls", "input tokens", "output tokens", "USD"):
        table.add_column(name, justify="left" if name in ("stage", "judge") else "right")
    for line in found.lines:
        counts = (f"{line.calls:,}", f"{line.input_tokens:,}", f"{line.output_tokens:,}")
        table.add_row(line.purpose, safe(line.judge), *counts, _dollars(line.micro_usd))
    table.add_row("posting", "Base", "1", "", "", _dollars(GAS_MICRO_USD))
    table.add_row("total", "", "", "", "", _dollars(found.total_micro_usd))
    out.print(table)
    if found.lines:
        out.print(
            f"At most {_dollars(found.most_micro_usd)} for the models, where every answer is cut at every limit up to "
            f"{found.most_tokens:,} tokens (CLARA_ANSWER_TOKENS); the CLARA_BUDGET_… caps hold before that.",
            soft_wrap=True,
        )
    spec = specification_table(size.submissions)
    out.print(
        f"The specification's table: features {_dollars(spec['features'])}, pairs {_dollars(spec['comparison'])}, "
        f"posting {_dollars(spec['posting'])}, total {_dollars(spec['total'])}.",
        soft_wrap=True,
    )
    if found.unpriced:
        out.print(f"No known price: {safe(', '.join(found.unpriced))}. Set CLARA_PRICES to name it.", soft_wrap=True)


def _dollars(micro_usd: int | None) -> str:
    return "no known price" if micro_usd is None else f"${micro_usd / 1_000_000:.2f}"
