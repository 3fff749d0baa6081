"""`calibrate`: how far the judges agree with people, on pairs that people decided."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from clara_eval.actions.calibrate import LEAST_LABELS, Calibration, calibrate_labels
from clara_eval.config.settings import Settings
from clara_eval.core.codec import to_camel_json
from clara_eval.interfaces.cli.output import JsonFlag, Judges, emit_json, read_text
from clara_eval.interfaces.cli.screen import console, print_lines, safe


def calibrate(
    labels: Annotated[Path, typer.Argument(metavar="LABELS.jsonl", help="An evalConfig line, then one pair a line.")],
    *,
    judges: Judges = "",
    json: JsonFlag = False,
) -> None:
    """Run the judges over pairs that people decided; report agreement and biases, and keep them for the gate."""
    settings = Settings.from_env()
    found = asyncio.run(calibrate_labels(read_text(labels), settings, judges))
    if json:
        rows = [{**to_camel_json(one), "mayPostAlone": doubt is None} for one, doubt in found]
        emit_json({"calibrations": rows})
        return
    enough = f"At least {settings.calibration_floor:.0%} of clear pairs on {LEAST_LABELS} labels: it may post alone."
    for one, doubt in found:
        console(stderr=False).print(_table(one))
        print_lines(safe(doubt or enough, 600))


def _table(found: Calibration) -> Table:
    table = Table(title=safe(found.judge, 200), title_justify="left")
    for name in ("figure", "value", "95 % interval", "pairs"):
        table.add_column(name)
    figures = {
        "agreement with people": found.agreement,
        "agreement on clear pairs": found.clear,
        "position bias": found.position_bias,
        "length bias": found.length_bias,
    }
    for name, figure in figures.items():
        value = "not known" if figure.value is None else f"{figure.value:.3f}"
        between = "" if figure.low is None or figure.high is None else f"{figure.low:.3f} to {figure.high:.3f}"
        table.add_row(name, value, between, str(figure.count))
    kappa = "not known" if found.kappa is None else f"{found.kappa:.3f}"
    table.add_row("kappa (beyond chance)", kappa, "", str(found.labels - found.undecided))
    table.add_row("base rate (most frequent choice)", f"{found.base_rate:.3f}", "", str(found.labels))
    if (alone := found.alone) is not None:
        told = f"{alone.chance:.2f} at the pay line"
        table.add_row(
            "posts alone from", told, f"at most {alone.alpha:.0%} wrong", f"{alone.count} ({alone.coverage:.0%})"
        )
    table.add_row("pairs without a verdict", str(found.undecided), "", str(found.labels))
    return table
