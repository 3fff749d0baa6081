"""Commands `config …` and `harness …`."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from rich.table import Table
from typer import Argument, Exit, Option, echo, prompt

from clara_eval.actions import harness as harnesses
from clara_eval.actions import quote as quoting
from clara_eval.config import eval_config as configs
from clara_eval.config.eval_config.catalogue import COMMON, EXECUTED, KINDS, MEASURED, template_text
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli import screen
from clara_eval.interfaces.cli.output import AddressArgument, ConfigFile, JsonFlag, Judges, answer, emit_json, write_new
from clara_eval.interfaces.cli.screen import print_lines, safe
from clara_eval.interfaces.words import show_value

ConfigTemplate = Literal["measured", "gas", "code", "text", "amm"]


def init(
    file: Annotated[Path, Argument(metavar="FILE", help="The file to write.")] = Path("eval-config.json"),
    template: Annotated[ConfigTemplate | None, Option(help="The kind of challenge; asked for on a terminal.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a starter config that explains itself; never overwrites a file."""
    judges = Settings.from_env().judges
    is_asked = template is None and sys.stdin.isatty() and not as_json
    default_kind = "code" if quoting.has_model(judges) else "measured"
    kind = template or (_ask_kind(default_kind) if is_asked else default_kind)
    text = _ask_criteria(template_text(kind)) if is_asked else template_text(kind)
    warnings = quoting.missing_model(configs.parse_eval_config(text), judges)
    content = text.encode()
    write_new(file, content)
    if as_json:
        emit_json({"file": str(file), "template": kind, "hash": configs.config_hash(content), "warnings": warnings})
        return
    screen.print_labelled("Wrote", f"{file} (template {kind}: {KINDS[kind]})")
    screen.print_warnings(warnings)
    quoted = shlex.quote(str(file))
    screen.print_next([f"config validate {quoted}", f"config rehearse {quoted} --sample DRAFT"])


def _ask_criteria(text: str) -> str:
    """Ask for criteria and language and return the config with them; Enter keeps the template's."""
    config: dict[str, object] = json.loads(text)
    screen.print_labelled("criteria", str(config["criteria"]), stderr=True)
    criteria = prompt("What makes an entry good", default="as above", err=True)
    language = prompt("Language of the entries", default=str(config.get("language", "none")), err=True)
    changed = {"criteria": criteria.strip(), "language": language.strip().lower()}
    kept = {name: value for name, value in changed.items() if value not in {"", "as above", "none", config.get(name)}}
    return json.dumps({**config, **kept}, indent=2, ensure_ascii=False) + "\n" if kept else text


def _ask_kind(default_kind: str) -> str:
    for name, sentence in KINDS.items():
        screen.print_labelled(name, sentence, stderr=True)
    while True:
        kind = str(prompt("What kind of challenge", default=default_kind, err=True)).strip().lower()
        if kind in KINDS:
            return kind
        text = f"There is no kind {safe(kind[:40])!r}. Choose one of {', '.join(KINDS)}."
        screen.print_labelled("Sorry", text, stderr=True)


def features(
    *,
    measured: Annotated[bool, Option("--measured", help="Only what needs no model.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List every feature with a built-in type: measured by tools, by running it, or read by a model."""
    groups = {"measured by tools": MEASURED, "measured by running it": EXECUTED, "read by a model": COMMON}
    shown = {title: found for title, found in groups.items() if not (measured and found is COMMON)}
    if as_json:
        found = [{**one.to_json(), "group": title} for title, group in shown.items() for one in group.values()]
        emit_json({"features": found, "harness": HARNESS_FEATURES})
        return
    for title, group in shown.items():
        print_lines(f"[bold]{title} ({len(group)})[/]")
        for feature in group.values():
            kind = "|".join(feature.values) if feature.type == "enum" else feature.type
            better = f", {feature.better} is better" if feature.better else ""
            screen.print_wrapped(f"{feature.description} ({kind}{better})", f"  {feature.name:<25} ")
    print_lines("[bold]measured by your own harness[/]")
    for name, sentence in HARNESS_FEATURES.items():
        screen.print_wrapped(sentence, f"  {name:<25} ")


HARNESS_FEATURES = {
    "tests_passed": "Share of the harness's tests that pass (0 to 1).",
    "gas_NAME": "Gas of the harness's function test_NAME, in Solidity.",
    "fuel_NAME": "The same in JavaScript and Python.",
    "metric_NAME": "The number that the harness's function metric_NAME returns.",
}


def validate(file: ConfigFile, as_json: JsonFlag = False) -> None:
    """List all problems of a config, with place and remedy; exit 1 if it is not usable."""
    content = read_bytes(file)
    found = quoting.check_config(content, Settings.from_env())
    answer({"file": str(file), **found}, as_json, lambda: _print_summary(file, content, found))
    raise Exit(0 if found["ok"] else 1)


def hash_(
    file: ConfigFile,
    canonical: Annotated[bool, Option("--canonical", help="Hash the RFC 8785 form, not the bytes.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the evalConfigHash: keccak256 of the exact bytes, or of the canonical form."""
    config, content = read_config(file, as_json=as_json)
    hashed = config.canonical if canonical else content
    form, found = "canonical" if canonical else "bytes", configs.config_hash(hashed)
    document = {"ok": True, "file": str(file), "hash": found, "form": form, "bytes": len(hashed)}
    answer(document, as_json, lambda: echo(found))


def _print_summary(file: Path, content: bytes, found: quoting.ConfigResult) -> None:
    problems, name = configs.collect_problems(content), safe(str(file))
    print_problems(problems)
    if not found["ok"]:
        errors = sum(problem.severity == "error" for problem in problems)
        print_lines(f"[red]{name} is not usable:[/] {errors} error{'s' if errors > 1 else ''}.")
        return
    warnings = f" with {len(problems)} warning{'s' if len(problems) > 1 else ''}" if problems else ""
    print_lines(f"[green]{name} is usable{warnings}.[/]")
    for line in feature_lines(configs.parse_eval_config(content)):
        screen.print_text(f"  {line}")
    print_lines(f"evalConfigHash {found['hash']}")
    screen.print_warnings(found["warnings"])


def feature_lines(config: configs.EvalConfig) -> list[str]:
    schema, untyped = configs.compile_schema(config)
    lines: list[str] = []
    for one in schema.features:
        kind: str = one.type
        if kind == "enum":
            kind += " " + "|".join(one.values)
        elif one.min is not None and one.max is not None:
            kind += f" {one.min:g}–{one.max:g}"
        direction = f", {one.better} is better" if one.better else ""
        note = "; not in the catalogue, so a model may choose its type" if one.name in untyped else ""
        judged = f"{direction}, weight {one.weight:g}, {one.source}{note}"
        lines.append(f"{one.name:28} {kind}{judged if one in schema.judged else ', for people only'}")
    return lines


def quote(
    file: ConfigFile,
    submissions: Annotated[int, Option(min=1, max=100_000, help="How many submissions to expect.")] = 25,
    size: Annotated[int, Option("--bytes", min=1, max=10_000_000, help="Typical size of a submission.")] = 4_000,
    schedule: Annotated[
        Literal["auto", "both", "full", "adaptive", "fours"], Option(help="Which pairs are compared.")
    ] = "auto",
    judges: Judges = "",
    batch: Annotated[bool, Option("--batch", help="In batches, at half the price, where a judge offers them.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Estimate the cost of an evaluation, stage by stage."""
    config, _ = read_config(file, as_json=as_json)
    asked = quoting.Size(submissions, 0, size, batch)
    found = quoting.quote_config(config, Settings.from_env(), judges=judges, size=asked, schedule=schedule)
    if as_json:
        emit_json({"file": str(file), **found.document})
        return
    print_quote(found.quote, found.schedule)
    print_lines(*found.notes)
    screen.print_warnings(found.warnings)


def print_quote(found: quoting.Quote, schedule: str, *, is_posted: bool = True) -> None:
    """Print a quote, without the cost of posting if nothing is posted."""
    size = found.size
    table = Table(title=f"{size.submissions} submissions of {size.submission_bytes} bytes, schedule {schedule}")
    for name in ("stage", "judge", "calls", "input tokens", "output tokens", "USD"):
        table.add_column(name, justify="left" if name in ("stage", "judge") else "right")
    for line in found.lines:
        counts = (f"{line.calls:,}", f"{line.input_tokens:,}", f"{line.output_tokens:,}")
        table.add_row(line.purpose, safe(line.judge), *counts, _dollars(line.micro_usd))
    if is_posted:
        table.add_row("posting", "Base", "1", "", "", _dollars(quoting.GAS_MICRO_USD))
    table.add_row("total", "", "", "", "", _dollars(found.total_micro_usd if is_posted else found.models_micro_usd))
    screen.console(stderr=False).print(table)
    if found.lines:
        print_lines(
            f"Worst case {_dollars(found.most_micro_usd)} for the models, if every answer is cut at every limit up to "
            f"{found.most_tokens:,} tokens (CLARA_ANSWER_TOKENS). The CLARA_BUDGET_… caps stop the spending earlier."
        )
    for judge in found.unpriced:
        price = safe(f'CLARA_PRICES="{judge}"=INPUT/OUTPUT in dollars per million tokens')
        print_lines(f"No known price: {safe(judge)}. Set {price} (0/0 for your own machine).")


def _dollars(micro_usd: int | None) -> str:
    return "no known price" if micro_usd is None else f"${micro_usd / 1_000_000:.2f}"


def read_config(file: Path, *, as_json: bool) -> tuple[configs.EvalConfig, bytes]:
    """Read and check a config; print its problems and exit with 1 if it is not usable."""
    content = read_bytes(file)
    try:
        return configs.parse_eval_config(content), content
    except configs.BadEvalConfig as bad:
        problems = bad.problems
        document = {"ok": False, "file": str(file), "problems": [one.to_json() for one in problems]}
        answer(document, as_json, lambda: print_problems(problems))
        raise Exit(1) from None


def read_bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as handle:
            return handle.read(1_048_576)  # far above the limit of a config, which the parser reports
    except OSError as bad:
        raise BadInput(f"{file} cannot be read: {bad.strerror or bad}.", remedy="Name a JSON file.") from None


def print_problems(problems: Sequence[configs.ConfigProblem]) -> None:
    for problem in problems:
        colour = "red" if problem.severity == "error" else "yellow"
        value = "" if problem.value is None else f"  ({safe(str(problem.value), 80)})"
        print_lines(
            f"[{colour}]{problem.severity:7}[/] [bold]{safe(problem.path)}[/]{value}",
            f"        {safe(problem.reason, 400)} {safe(problem.remedy, 400)}",
        )


HarnessFile = Annotated[Path, Argument(metavar="H", help="The harness: a source file, or its hidden document.")]
InLanguage = Annotated[str, Option("--language", help="solidity, javascript or python; else by the file's name.")]


def run_harness(
    file: Annotated[Path, Argument(metavar="FILE", help="The submission.")],
    harness: Annotated[Path, Option("--harness", metavar="H", help="The harness that runs it.")],
    seed: Annotated[str, Option(help="What a JavaScript or Python harness draws its inputs from.")] = harnesses.NO_SEED,
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Run a submission under a harness and print every measured feature; exit 1 unless all tests pass."""
    found = harnesses.run_file(Settings.from_env(), harness, file, seed=seed, language=language)
    answer(harnesses.run_document(found), as_json, lambda: _print_run(file, found))
    raise Exit(0 if found.outcome == "passed" else 1)


def init_harness(
    language: Annotated[str, Argument(metavar="LANGUAGE", help="python, javascript or solidity.")],
    folder: Annotated[Path, Option(help="Where the two files are written.")] = Path(),
) -> None:
    """Write a starter harness and a solution that passes it."""
    files = harnesses.starter_files(language)
    for name, content in files.items():
        write_new(folder / name, content)
    harness, solution = (folder / name for name in files)
    screen.print_text(f"Wrote {harness} and {solution}. Try: clara-eval harness check {harness} --reference {solution}")


def hash_harness(
    file: HarnessFile,
    salt: Annotated[str, Option(help="32 bytes as 0x…; random if left out.")] = "",
    out: Annotated[Path | None, Option(help="Write the document to keep and to reveal into this file.")] = None,
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Print the privateSetHash of a hidden harness; keep the document, you have to reveal it later."""
    document = harnesses.hidden_harness(file, salt, language)
    if out is not None:
        write_new(out, document.content, is_secret=True)
    if as_json:
        fields = {"privateSetHash": document.private_set_hash, "salt": document.salt}
        fields |= {"language": document.harness.language, "document": document.content.decode()}
        emit_json({**fields, "file": str(out) if out else None})
        return
    echo(document.private_set_hash)
    if out is None and not harnesses.is_document(file):
        screen.console().print(f"Keep the salt, or the hash cannot be revealed: {document.salt}", markup=False)


def check_engines(*, as_json: bool) -> NoReturn:
    """Prepare every engine and run a minimal program on it; exit 1 if an installed one fails."""
    found = harnesses.engines(Settings.from_env())
    if as_json:
        emit_json({"engines": {name: {**one, "remedy": one["remedy"] or None} for name, one in found.items()}})
    else:
        for name, one in found.items():
            echo(" ".join(word for word in (f"{name:<12} {one['state']}", one["reason"], one["remedy"]) if word))
    raise Exit(1 if any(one["state"] == "failed" for one in found.values()) else 0)


def check_harness(
    file: HarnessFile,
    reference: Annotated[Path, Option("--reference", metavar="FILE", help="A solution that must pass.")],
    hidden: Annotated[bool, Option("--hidden", help="The harness is hidden until the deadline.")] = False,
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Run a harness twice on a reference solution; exit 1 unless every test passes with equal numbers.

    Warns if a submission that does nothing would get a number, and if the input of a metric is public.
    """
    found = harnesses.check_file(Settings.from_env(), file, reference, hidden=hidden, language=language)
    if as_json:
        report = {"ok": not found.problems, "problems": list(found.problems), "warnings": list(found.warnings)}
        emit_json({**report, **harnesses.run_document(found.executed)})
    else:
        _print_run(reference, found.executed)
        print_lines(*(f"[red]problem[/]  {safe(problem, 400)}" for problem in found.problems))
        print_lines(*(f"[yellow]warning[/]  {safe(warning, 400)}" for warning in found.warnings))
    raise Exit(1 if found.problems else 0)


def _print_run(file: Path, executed: harnesses.Executed) -> None:
    colour = "green" if executed.outcome == "passed" else "red"
    print_lines(f"{safe(str(file))}: [{colour}]{executed.outcome.value}[/]  {safe(executed.detail, 300)}")
    for name, value in executed.features.items():
        screen.print_text(f"  {name:28} {show_value(value)}")
    print_lines(*(f"[dim]  {safe(line, 300)}[/]" for line in executed.logs))


def reveal_harness(
    address: AddressArgument,
    file: HarnessFile,
    salt: Annotated[str, Option(help="The salt, where H is the source.")] = "",
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Reveal a hidden harness to CLARA_API_URL or the local store, signed by CLARA_WALLET_KEY."""
    if not harnesses.is_document(file) and not salt:
        raise BadInput(f"{file} has no salt.", remedy="Give the document that was hashed, or --salt.")
    target, document = to_address(address), harnesses.hidden_harness(file, salt, language)
    asyncio.run(harnesses.reveal_document(Settings.from_env(), target, document))
    record = {"challengeAddress": target, "privateSetHash": document.private_set_hash}
    answer(record, as_json, lambda: screen.print_text(f"Revealed {document.private_set_hash} for {target}."))
