"""`clara-eval config …`: write, check and hash an eval config before any money is escrowed.

A file comes in; findings go out for people, or as one JSON document with `--json`. Exit 0 if the config is usable, 1 if
it is not, 2 if the file cannot be read or must not be overwritten.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clara_eval.cli.output import console, emit_json, safe
from clara_eval.cli.quote import quote
from clara_eval.cli.rehearse import rehearse
from clara_eval.errors import BadInput

if TYPE_CHECKING:
    from clara_eval.eval_config import EvalConfig, Problem

app = typer.Typer(no_args_is_help=True, help="Write, check and hash eval configs.", rich_markup_mode=None)


class Template(StrEnum):
    code = "code"
    text = "text"
    amm = "amm"


ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="The eval config, a JSON file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("eval-config.json"),
    template: Annotated[Template, typer.Option(help="What will be submitted.")] = Template.code,
    as_json: AsJson = False,
) -> None:
    """Write a starter config that explains itself; never overwrites a file."""
    from clara_eval.eval_config import config_hash
    from clara_eval.eval_config.templates import template_text

    text = template_text(template.value)
    try:
        with file.open("x", encoding="utf-8", newline="\n") as out:
            out.write(text)
    except FileExistsError:
        raise BadInput(f"{file} exists already.", remedy="Choose another name, or remove it first.") from None
    except OSError as bad:
        raise BadInput(f"{file} cannot be written: {bad.strerror or bad}.") from None
    if as_json:
        emit_json({"file": str(file), "template": template.value, "hash": config_hash(text.encode())})
        return
    out_ = console(stderr=False)
    out_.print(f"Wrote {safe(str(file))} (template {template.value}).", soft_wrap=True)
    out_.print(f"Edit it, then: clara-eval config validate {safe(str(file))}", soft_wrap=True)


@app.command()
def validate(file: ConfigFile, as_json: AsJson = False) -> None:
    """List everything that is wrong with a config, with its place and remedy; exit 1 if it is not usable."""
    from clara_eval.eval_config import collect_problems

    content = read_bytes(file)
    problems = collect_problems(content)
    failed = any(problem.severity == "error" for problem in problems)
    summary = {} if failed else _summary(content)
    if as_json:
        emit_json({"ok": not failed, "file": str(file), "problems": [one.to_json() for one in problems], **summary})
    else:
        _print_problems(problems)
        _print_summary(file, problems, summary)
    raise typer.Exit(1 if failed else 0)


@app.command("hash")
def hash_(
    file: ConfigFile,
    canonical: Annotated[bool, typer.Option("--canonical", help="Hash the RFC 8785 form, not the bytes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the evalConfigHash: keccak256 of the exact bytes, or of the canonical form."""
    from clara_eval.eval_config import canonical_config, config_hash

    content = read_bytes(file)
    config = usable_config(file, content, as_json=as_json)
    hashed = canonical_config(config) if canonical else content
    if as_json:
        form = "canonical" if canonical else "bytes"
        emit_json({"ok": True, "file": str(file), "hash": config_hash(hashed), "form": form, "bytes": len(hashed)})
    else:
        typer.echo(config_hash(hashed))


def usable_config(file: Path, content: bytes, *, as_json: bool) -> EvalConfig:
    """The config, checked; one that is not usable ends the command with its problems and exit code 1."""
    from clara_eval.eval_config import BadEvalConfig, parse_eval_config

    try:
        return parse_eval_config(content)
    except BadEvalConfig as bad:
        if as_json:
            emit_json({"ok": False, "file": str(file), "problems": [one.to_json() for one in bad.problems]})
        else:
            _print_problems(list(bad.problems))
        raise typer.Exit(1) from None


def read_bytes(file: Path) -> bytes:
    """The bytes of a config file, or an error that names the file."""
    try:
        with file.open("rb") as handle:
            return handle.read(1_048_576)  # far above the config's own limit, which gives the reason
    except OSError as bad:
        raise BadInput(f"{file} cannot be read: {bad.strerror or bad}.", remedy="Name a JSON file.") from None


def _summary(content: bytes) -> dict[str, Any]:
    from clara_eval.eval_config import canonical_config, compile_schema, config_hash, parse_eval_config

    config = parse_eval_config(content)
    schema, untyped = compile_schema(config)
    return {
        "hash": config_hash(content),
        "canonicalHash": config_hash(canonical_config(config)),
        "features": [{**feature.to_json(), "judged": feature in schema.judged} for feature in schema.features],
        "untyped": list(untyped),
    }


def _print_problems(problems: list[Problem]) -> None:
    out = console(stderr=False)
    for problem in problems:
        colour = "red" if problem.severity == "error" else "yellow"
        value = "" if problem.value is None else f"  ({safe(str(problem.value), 80)})"
        out.print(f"[{colour}]{problem.severity:7}[/] [bold]{safe(problem.path)}[/]{value}", soft_wrap=True)
        out.print(f"        {safe(problem.reason, 400)} {safe(problem.remedy, 400)}", soft_wrap=True)


def _print_summary(file: Path, problems: list[Problem], summary: dict[str, Any]) -> None:
    out = console(stderr=False)
    errors = sum(1 for problem in problems if problem.severity == "error")
    if not summary:
        out.print(
            f"[red]{safe(str(file))} is not usable:[/] {errors} error{'s' if errors > 1 else ''}.", soft_wrap=True
        )
        return
    warnings = f" with {len(problems)} warning{'s' if len(problems) > 1 else ''}" if problems else ""
    out.print(f"[green]{safe(str(file))} is usable{warnings}.[/]", soft_wrap=True)
    for feature in summary["features"]:
        out.print(f"  {feature['name']:28} {_describe(feature, summary['untyped'])}", soft_wrap=True, markup=False)
    out.print(f"evalConfigHash {summary['hash']}", soft_wrap=True)


def _describe(feature: dict[str, Any], untyped: list[str]) -> str:
    kind = feature["type"]
    if kind == "enum":
        kind += " " + "|".join(feature["values"])
    elif feature["min"] is not None and feature["max"] is not None:
        kind += f" {feature['min']:g}–{feature['max']:g}"
    direction = f", {feature['better']} is better" if feature["better"] else ""
    if not feature["judged"]:
        return f"{kind}, for people only"
    note = "; no catalogue knows this name, a model may type it" if feature["name"] in untyped else ""
    return f"{kind}{direction}, weight {feature['weight']:g}, {feature['source']}{note}"


app.command("quote")(quote)
app.command("rehearse")(rehearse)
