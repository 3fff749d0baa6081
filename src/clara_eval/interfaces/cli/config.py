"""`clara-eval config …`: write, check and hash an eval config before any money is escrowed.

A file comes in; findings go out for people, or as one JSON document with `--json`. Exit 0 if the config is usable, 1 if
it is not, 2 if the file cannot be read or must not be overwritten.
"""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from clara_eval.actions.check_config import check_config
from clara_eval.actions.model_needed import missing_model
from clara_eval.config.eval_config import (
    COMMON,
    EXECUTED,
    MEASURED,
    ConfigProblem,
    Feature,
    collect_problems,
    config_hash,
    parse_eval_config,
)
from clara_eval.config.eval_config.templates import KINDS, template_text
from clara_eval.config.settings import Settings
from clara_eval.interfaces.cli.config_file import (
    print_problems,
    print_warning,
    read_bytes,
    usable_config,
    write_new,
)
from clara_eval.interfaces.cli.options import ConfigFile, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.result import print_next
from clara_eval.interfaces.cli.screen import console, print_labelled, safe, wrapped
from clara_eval.judge.providers.registry import models_of, parse_jury


class ConfigTemplate(StrEnum):
    measured = "measured"
    gas = "gas"
    code = "code"
    text = "text"
    amm = "amm"


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("eval-config.json"),
    template: Annotated[
        ConfigTemplate | None, typer.Option(help="The kind of challenge; asked for on a terminal.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a starter config that explains itself; never overwrites a file."""
    judges = Settings.from_env().judges
    kind = template.value if template else _asked(judges) if sys.stdin.isatty() and not as_json else _usual(judges)
    text = template_text(kind)
    write_new(file, text.encode())
    lacking = missing_model(parse_eval_config(text), judges)
    if as_json:
        warnings = [lacking] if lacking else []
        emit_json({"file": str(file), "template": kind, "hash": config_hash(text.encode()), "warnings": warnings})
        return
    print_labelled("Wrote", f"{file} (template {kind}: {KINDS[kind]})")
    print_warning(lacking)
    print_next(
        [f"config validate {shlex.quote(str(file))}", f"config rehearse {shlex.quote(str(file))} --sample DRAFT"]
    )


def _usual(judges: str) -> str:
    """What works with what is configured: without a model, only what tools measure is judged."""
    return ConfigTemplate.code.value if models_of(parse_jury(judges)) else ConfigTemplate.measured.value


def _asked(judges: str) -> str:
    """Ask a person which kind it is, with a sentence for each."""
    for name, sentence in KINDS.items():
        print_labelled(name, sentence, stderr=True)
    while True:
        kind = str(typer.prompt("What kind of challenge", default=_usual(judges), err=True)).strip().lower()
        if kind in KINDS:
            return kind
        print_labelled("Sorry", f"There is no kind {safe(kind[:40])!r}. Choose one of {', '.join(KINDS)}.", stderr=True)


def features(
    *,
    measured: Annotated[bool, typer.Option("--measured", help="Only what needs no model.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List every feature with a built-in type: what tools measure, what running tells, what a model reads."""
    groups = {"measured by tools": MEASURED, "told by running it": EXECUTED, "read by a model": COMMON}
    shown = {title: found for title, found in groups.items() if not (measured and found is COMMON)}
    if as_json:
        found = [{**one.to_json(), "group": title} for title, group in shown.items() for one in group.values()]
        emit_json({"features": found, "harness": HARNESS_FEATURES})
        return
    for title, group in shown.items():
        console(stderr=False).print(Text(f"{title} ({len(group)})", style="bold"))
        for feature in group.values():
            _print_line(feature.name, f"{feature.description} {_range(feature)}")
    console(stderr=False).print(Text("told by your own harness", style="bold"))
    for name, sentence in HARNESS_FEATURES.items():
        _print_line(name, sentence)


HARNESS_FEATURES = {
    "tests_passed": "Share of the harness's tests that pass (0 to 1).",
    "gas_NAME": "Gas of the harness's function test_NAME, in Solidity.",
    "fuel_NAME": "The same in JavaScript and Python.",
    "metric_NAME": "The number that the harness's function metric_NAME returns.",
}


def _range(feature: Feature) -> str:
    kind = "|".join(feature.values) if feature.type == "enum" else feature.type
    better = f", {feature.better} is better" if feature.better else ""
    return f"({kind}{better})"


def _print_line(name: str, sentence: str) -> None:
    first, *rest = wrapped(sentence, 28) or [""]
    console(stderr=False).print(Text(f"  {name:<25} {first}"))
    for line in rest:
        console(stderr=False).print(Text(" " * 28 + line))


def validate(file: ConfigFile, as_json: JsonFlag = False) -> None:
    """List everything that is wrong with a config, with its place and remedy; exit 1 if it is not usable."""
    content = read_bytes(file)
    found = check_config(content, Settings.from_env())
    if as_json:
        emit_json({"file": str(file), **found})
    else:
        problems = collect_problems(content)
        print_problems(problems)
        _print_summary(file, problems, cast("dict[str, Any]", found))
    raise typer.Exit(0 if found["ok"] else 1)


def hash_(
    file: ConfigFile,
    canonical: Annotated[bool, typer.Option("--canonical", help="Hash the RFC 8785 form, not the bytes.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the evalConfigHash: keccak256 of the exact bytes, or of the canonical form."""
    content = read_bytes(file)
    config = usable_config(file, content, as_json=as_json)
    hashed = config.canonical if canonical else content
    if as_json:
        form = "canonical" if canonical else "bytes"
        emit_json({"ok": True, "file": str(file), "hash": config_hash(hashed), "form": form, "bytes": len(hashed)})
    else:
        typer.echo(config_hash(hashed))


def _print_summary(file: Path, problems: list[ConfigProblem], summary: dict[str, Any]) -> None:
    out = console(stderr=False)
    errors = sum(1 for problem in problems if problem.severity == "error")
    if not summary["ok"]:
        out.print(
            f"[red]{safe(str(file))} is not usable:[/] {errors} error{'s' if errors > 1 else ''}.", soft_wrap=True
        )
        return
    warnings = f" with {len(problems)} warning{'s' if len(problems) > 1 else ''}" if problems else ""
    out.print(f"[green]{safe(str(file))} is usable{warnings}.[/]", soft_wrap=True)
    for feature in summary["features"]:
        out.print(f"  {feature['name']:28} {_describe(feature, summary['untyped'])}", soft_wrap=True, markup=False)
    out.print(f"evalConfigHash {summary['hash']}", soft_wrap=True)
    for sentence in summary["warnings"]:
        print_warning(sentence)


def _describe(feature: dict[str, Any], untyped: list[str]) -> str:
    kind = feature["type"]
    if kind == "enum":
        kind += " " + "|".join(feature["values"])
    elif feature["min"] is not None and feature["max"] is not None:
        kind += f" {feature['min']:g}–{feature['max']:g}"
    direction = f", {feature['better']} is better" if feature["better"] else ""
    if not feature["judged"]:
        return f"{kind}, for people only"
    note = "; not in the catalogue, so a model may choose its type" if feature["name"] in untyped else ""
    return f"{kind}{direction}, weight {feature['weight']:g}, {feature['source']}{note}"
