"""`clara-eval config quote`: what an evaluation will cost, before it is paid for.

A config file and a number of submissions come in; calls, tokens and dollars for each stage go out, beside the
specification's own table. A judge with no known price is said, and then there is no total.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import ceil, comb
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clara_eval.cli.output import console, emit_json, safe

if TYPE_CHECKING:
    from clara_eval.eval_config import EvalConfig
    from clara_eval.judge.jury import JudgeName
    from clara_eval.judge.prices import PriceCard
    from clara_eval.judge.quote import Quote
    from clara_eval.settings import Settings

ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="The eval config, a JSON file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Judges = Annotated[str, typer.Option(help="Judges instead of CLARA_JUDGES, a comma list.")]


class Looks(StrEnum):
    auto = "auto"
    both = "both"
    full = "full"
    adaptive = "adaptive"


def quote(
    file: ConfigFile,
    submissions: Annotated[int, typer.Option(min=1, max=100_000, help="How many submissions to expect.")] = 25,
    size: Annotated[int, typer.Option("--bytes", min=1, max=10_000_000, help="Typical size of a submission.")] = 4_000,
    schedule: Annotated[Looks, typer.Option(help="Which pairs are compared.")] = Looks.auto,
    judges: Judges = "",
    batch: Annotated[bool, typer.Option("--batch", help="Claude through message batches, at half the price.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what an evaluation will cost, stage by stage, beside the specification's table."""
    from clara_eval.judge.jury import parse_jury
    from clara_eval.judge.quote import Size, to_json
    from clara_eval.judge.quote import quote as make_quote
    from clara_eval.settings import Settings

    settings = Settings.from_env()
    config = read_config(file, as_json=as_json)
    jury = parse_jury(judges or settings.judges)
    cards = price_cards(settings, jury)
    quotes = {
        name: make_quote(config, Size(submissions, looks, size, batch), jury, cards)
        for name, looks in _looks(submissions).items()
    }
    chosen = _affordable(quotes, settings) if schedule is Looks.auto else schedule.value
    if as_json:
        emit_json({"file": str(file), "schedule": chosen, **to_json(quotes[chosen])})
        return
    _print_quote(quotes[chosen], chosen)


def read_config(file: Path, *, as_json: bool) -> EvalConfig:
    """The config in a file, checked."""
    from clara_eval.cli.config import read_bytes, usable_config

    return usable_config(file, read_bytes(file), as_json=as_json)


def price_cards(settings: Settings, jury: Sequence[JudgeName]) -> dict[str, PriceCard | None]:
    """What each judge costs; None where nobody knows."""
    from clara_eval.judge.prices import parse_prices, price_card

    given = parse_prices(settings.prices)
    return {judge.text: price_card(judge, given) for judge in jury}


def _looks(submissions: int) -> dict[str, int]:
    from clara_eval.tournament.schedule import CALLS_PER_ITEM

    pairs = comb(submissions, 2)
    return {"both": 2 * pairs, "full": pairs, "adaptive": min(pairs, ceil(CALLS_PER_ITEM * submissions))}


def _affordable(quotes: dict[str, Quote], settings: Settings) -> str:
    """The richest schedule within the cap per challenge, as an evaluation would choose it."""
    cap = settings.budget_per_challenge_usd
    for name, found in quotes.items():
        total = found.models_micro_usd
        if cap is None or total is None or total <= cap * 1_000_000:
            return name
    return "adaptive"


def _print_quote(found: Quote, schedule: str) -> None:
    from rich.table import Table

    from clara_eval.judge.quote import GAS_MICRO_USD, specification_table

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
