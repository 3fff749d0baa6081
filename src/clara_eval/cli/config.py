"""`clara-eval config …`: write, check and hash an eval config before any money is escrowed.

A file comes in; findings go out for people, or as one JSON document with `--json`. Exit 0 if the config is usable, 1 if
it is not, 2 if the file cannot be read or must not be overwritten.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from clara_eval.cli.config_file import print_problems, print_warning, read_bytes, usable_config, write_new
from clara_eval.cli.options import ConfigFile, JsonFlag
from clara_eval.cli.output import emit_json
from clara_eval.cli.screen import console, safe
from clara_eval.eval_config import (
    Problem,
    canonical_config,
    collect_problems,
    config_hash,
)
from clara_eval.eval_config.templates import template_text
from clara_eval.settings import Settings
from clara_eval.use_cases.check_config import check_config


class Template(StrEnum):
    code = "code"
    text = "text"
    amm = "amm"


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("eval-config.json"),
    template: Annotated[Template, typer.Option(help="What will be submitted.")] = Template.code,
    as_json: JsonFlag = False,
) -> None:
    """Write a starter config that explains itself; never overwrites a file."""
    text = template_text(template.value)
    write_new(file, text.encode())
    if as_json:
        emit_json({"file": str(file), "template": template.value, "hash": config_hash(text.encode())})
        return
    out_ = console(stderr=False)
    out_.print(f"Wrote {safe(str(file))} (template {template.value}).", soft_wrap=True)
    out_.print(f"Edit it, then: clara-eval config validate {safe(str(file))}", soft_wrap=True)


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
    hashed = canonical_config(config) if canonical else content
    if as_json:
        form = "canonical" if canonical else "bytes"
        emit_json({"ok": True, "file": str(file), "hash": config_hash(hashed), "form": form, "bytes": len(hashed)})
    else:
        typer.echo(config_hash(hashed))


def _print_summary(file: Path, problems: list[Problem], summary: dict[str, Any]) -> None:
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
