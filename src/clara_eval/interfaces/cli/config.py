"""`config …`: write, check, price, rehearse and hash an eval config before any money is escrowed."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from clara_eval.actions import quote as quoting
from clara_eval.config import eval_config as configs
from clara_eval.config.eval_config.catalogue import COMMON, EXECUTED, KINDS, MEASURED, template_text
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli import screen
from clara_eval.interfaces.cli.output import ConfigFile, JsonFlag, Judges, answer, emit_json, write_new

ConfigTemplate = Literal["measured", "gas", "code", "text", "amm"]


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("eval-config.json"),
    template: Annotated[
        ConfigTemplate | None, typer.Option(help="The kind of challenge; asked for on a terminal.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a starter config that explains itself; never overwrites a file."""
    judges = Settings.from_env().judges
    is_asked = template is None and sys.stdin.isatty() and not as_json
    kind = template or (_asked(judges) if is_asked else _usual(judges))
    text = _tailored(template_text(kind)) if is_asked else template_text(kind)
    warnings = quoting.missing_model(configs.parse_eval_config(text), judges)
    write_new(file, text.encode())
    if as_json:
        emit_json(
            {"file": str(file), "template": kind, "hash": configs.config_hash(text.encode()), "warnings": warnings}
        )
        return
    screen.print_labelled("Wrote", f"{file} (template {kind}: {KINDS[kind]})")
    screen.print_warnings(warnings)
    quoted = shlex.quote(str(file))
    screen.print_next([f"config validate {quoted}", f"config rehearse {quoted} --sample DRAFT"])


def _usual(judges: str) -> str:
    """The template that works with what is configured."""
    return "code" if quoting.has_model(judges) else "measured"


def _tailored(text: str) -> str:
    """Ask for criteria and language; Enter keeps those of the template."""
    config: dict[str, object] = json.loads(text)
    screen.print_labelled("criteria", str(config["criteria"]), stderr=True)
    criteria = typer.prompt("What makes an entry good", default="as above", err=True)
    language = typer.prompt("Language of the entries", default=str(config.get("language", "none")), err=True)
    changed = {"criteria": criteria.strip(), "language": language.strip().lower()}
    kept = {name: said for name, said in changed.items() if said not in {"", "as above", "none", config.get(name)}}
    return json.dumps({**config, **kept}, indent=2, ensure_ascii=False) + "\n" if kept else text


def _asked(judges: str) -> str:
    for name, sentence in KINDS.items():
        screen.print_labelled(name, sentence, stderr=True)
    while True:
        kind = str(typer.prompt("What kind of challenge", default=_usual(judges), err=True)).strip().lower()
        if kind in KINDS:
            return kind
        told = f"There is no kind {screen.safe(kind[:40])!r}. Choose one of {', '.join(KINDS)}."
        screen.print_labelled("Sorry", told, stderr=True)


def features(
    *,
    measured: Annotated[bool, typer.Option("--measured", help="Only what needs no model.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List every feature with a built-in type: what tools measure, what running tells, what a model reads."""
    groups = {
        "measured by tools": MEASURED,
        "told by running it": EXECUTED,
        "read by a model": COMMON,
    }
    shown = {title: found for title, found in groups.items() if not (measured and found is COMMON)}
    if as_json:
        found = [{**one.to_json(), "group": title} for title, group in shown.items() for one in group.values()]
        emit_json({"features": found, "harness": HARNESS_FEATURES})
        return
    for title, group in shown.items():
        screen.print_lines(f"[bold]{title} ({len(group)})[/]")
        for feature in group.values():
            kind = "|".join(feature.values) if feature.type == "enum" else feature.type
            better = f", {feature.better} is better" if feature.better else ""
            screen.print_wrapped(f"{feature.description} ({kind}{better})", f"  {feature.name:<25} ")
    screen.print_lines("[bold]told by your own harness[/]")
    for name, sentence in HARNESS_FEATURES.items():
        screen.print_wrapped(sentence, f"  {name:<25} ")


HARNESS_FEATURES = {
    "tests_passed": "Share of the harness's tests that pass (0 to 1).",
    "gas_NAME": "Gas of the harness's function test_NAME, in Solidity.",
    "fuel_NAME": "The same in JavaScript and Python.",
    "metric_NAME": "The number that the harness's function metric_NAME returns.",
}


def validate(file: ConfigFile, as_json: JsonFlag = False) -> None:
    """List everything that is wrong with a config, with its place and remedy; exit 1 if it is not usable."""
    content = read_bytes(file)
    found = quoting.check_config(content, Settings.from_env())
    answer({"file": str(file), **found}, as_json, lambda: _print_summary(file, content, found))
    raise typer.Exit(0 if found["ok"] else 1)


def hash_(
    file: ConfigFile,
    canonical: Annotated[bool, typer.Option("--canonical", help="Hash the RFC 8785 form, not the bytes.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the evalConfigHash: keccak256 of the exact bytes, or of the canonical form."""
    config, content = read_config(file, as_json=as_json)
    hashed = config.canonical if canonical else content
    form, found = "canonical" if canonical else "bytes", configs.config_hash(hashed)
    document = {"ok": True, "file": str(file), "hash": found, "form": form, "bytes": len(hashed)}
    answer(document, as_json, lambda: typer.echo(found))


def _print_summary(file: Path, content: bytes, found: quoting.ConfigResult) -> None:
    problems, name = configs.collect_problems(content), screen.safe(str(file))
    print_problems(problems)
    if not found["ok"]:
        errors = sum(problem.severity == "error" for problem in problems)
        screen.print_lines(f"[red]{name} is not usable:[/] {errors} error{'s' if errors > 1 else ''}.")
        return
    warnings = f" with {len(problems)} warning{'s' if len(problems) > 1 else ''}" if problems else ""
    screen.print_lines(f"[green]{name} is usable{warnings}.[/]")
    for line in feature_lines(configs.parse_eval_config(content)):
        screen.print_text(f"  {line}")
    screen.print_lines(f"evalConfigHash {found['hash']}")
    screen.print_warnings(found["warnings"])


def feature_lines(config: configs.EvalConfig) -> list[str]:
    """A line for each feature: its name, type, direction, weight and source."""
    schema, untyped = configs.compile_schema(config)
    return [
        f"{one.name:28} {_describe(one, is_judged=one in schema.judged, is_untyped=one.name in untyped)}"
        for one in schema.features
    ]


def _describe(feature: configs.Feature, *, is_judged: bool, is_untyped: bool) -> str:
    kind: str = feature.type
    if kind == "enum":
        kind += " " + "|".join(feature.values)
    elif feature.min is not None and feature.max is not None:
        kind += f" {feature.min:g}–{feature.max:g}"
    if not is_judged:
        return f"{kind}, for people only"
    direction = f", {feature.better} is better" if feature.better else ""
    note = "; not in the catalogue, so a model may choose its type" if is_untyped else ""
    return f"{kind}{direction}, weight {feature.weight:g}, {feature.source}{note}"


def quote(
    file: ConfigFile,
    submissions: Annotated[int, typer.Option(min=1, max=100_000, help="How many submissions to expect.")] = 25,
    size: Annotated[int, typer.Option("--bytes", min=1, max=10_000_000, help="Typical size of a submission.")] = 4_000,
    schedule: Annotated[
        Literal["auto", "both", "full", "adaptive", "fours"], typer.Option(help="Which pairs are compared.")
    ] = "auto",
    judges: Judges = "",
    batch: Annotated[
        bool, typer.Option("--batch", help="In batches, at half the price, where a judge offers them.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say what an evaluation will cost, stage by stage."""
    config, _ = read_config(file, as_json=as_json)
    asked = quoting.Size(submissions, 0, size, batch)
    found = quoting.quote_config(config, Settings.from_env(), judges=judges, size=asked, schedule=schedule)
    if as_json:
        emit_json({"file": str(file), **found.document})
        return
    print_quote(found.quote, found.schedule)
    screen.print_lines(*found.notes)
    screen.print_warnings(found.warnings)


def print_quote(found: quoting.Quote, schedule: str, *, is_posted: bool = True) -> None:
    """Print a quote; what is judged without a chain is not posted."""
    size = found.size
    table = Table(title=f"{size.submissions} submissions of {size.submission_bytes} bytes, schedule {schedule}")
    for name in ("stage", "judge", "calls", "input tokens", "output tokens", "USD"):
        table.add_column(name, justify="left" if name in ("stage", "judge") else "right")
    for line in found.lines:
        counts = (f"{line.calls:,}", f"{line.input_tokens:,}", f"{line.output_tokens:,}")
        table.add_row(line.purpose, screen.safe(line.judge), *counts, _dollars(line.micro_usd))
    if is_posted:
        table.add_row("posting", "Base", "1", "", "", _dollars(quoting.GAS_MICRO_USD))
    total = found.total_micro_usd if is_posted else found.models_micro_usd
    table.add_row("total", "", "", "", "", _dollars(total))
    screen.console(stderr=False).print(table)
    if found.lines:
        screen.print_lines(
            f"At most {_dollars(found.most_micro_usd)} for the models, where every answer is cut at every limit up to "
            f"{found.most_tokens:,} tokens (CLARA_ANSWER_TOKENS); the CLARA_BUDGET_… caps hold before that."
        )
    for judge in found.unpriced:
        price = screen.safe(f'CLARA_PRICES="{judge}"=INPUT/OUTPUT in dollars per million tokens')
        screen.print_lines(f"No known price: {screen.safe(judge)}. Set {price} (0/0 for your own machine).")


def _dollars(micro_usd: int | None) -> str:
    return "no known price" if micro_usd is None else f"${micro_usd / 1_000_000:.2f}"


def read_config(file: Path, *, as_json: bool) -> tuple[configs.EvalConfig, bytes]:
    """Read and check a config; one that is not usable ends the command with its problems and exit code 1."""
    content = read_bytes(file)
    try:
        return configs.parse_eval_config(content), content
    except configs.BadEvalConfig as bad:
        problems = bad.problems
        document = {"ok": False, "file": str(file), "problems": [one.to_json() for one in problems]}
        answer(document, as_json, lambda: print_problems(problems))
        raise typer.Exit(1) from None


def read_bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as handle:
            return handle.read(1_048_576)  # far above the config's own limit, which gives the reason
    except OSError as bad:
        raise BadInput(f"{file} cannot be read: {bad.strerror or bad}.", remedy="Name a JSON file.") from None


def print_problems(problems: Sequence[configs.ConfigProblem]) -> None:
    for problem in problems:
        colour = "red" if problem.severity == "error" else "yellow"
        value = "" if problem.value is None else f"  ({screen.safe(str(problem.value), 80)})"
        screen.print_lines(
            f"[{colour}]{problem.severity:7}[/] [bold]{screen.safe(problem.path)}[/]{value}",
            f"        {screen.safe(problem.reason, 400)} {screen.safe(problem.remedy, 400)}",
        )
