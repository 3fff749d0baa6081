"""`clara-eval harness …`: run a submission under a poster's harness, check a harness, commit to a hidden one.

Files come in; measured features go out for people, or as one JSON document with `--json`. Exit 0 if the run (or the
check) says yes, 1 if it says no, 2 if a file cannot be read or the engine is missing. Nothing is sent anywhere.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from clara_eval.actions.check_harness import check_harness
from clara_eval.app import open_machine
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadInput
from clara_eval.harness import (
    Executed,
    Harness,
    HarnessDocument,
    HarnessSubmission,
    Machine,
    hide,
    read_harness_document,
)
from clara_eval.harness.model import LANGUAGES, NO_SEED, SUFFIXES, language_of
from clara_eval.harness.readiness import look_at
from clara_eval.interfaces.cli.config_file import write_new
from clara_eval.interfaces.cli.options import JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console, safe

MAX_FILE_BYTES = 1_048_576
HarnessFile = Annotated[Path, typer.Argument(metavar="H", help="The harness: a source file, or its hidden document.")]
InLanguage = Annotated[str, typer.Option("--language", help="solidity, javascript or python; else by the file's name.")]


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The submission.")],
    harness: Annotated[Path, typer.Option("--harness", metavar="H", help="The harness that runs it.")],
    seed: Annotated[str, typer.Option(help="What a JavaScript or Python harness draws its inputs from.")] = NO_SEED,
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Run a submission under a harness and print every measured feature; exit 1 unless all tests pass."""
    executed = _executed(replace(_harness(harness, language), seed=seed), file)
    if as_json:
        emit_json(run_document(executed))
    else:
        _print_run(file, executed)
    raise typer.Exit(0 if executed.outcome == "passed" else 1)


def hash_(
    file: HarnessFile,
    salt: Annotated[str, typer.Option(help="32 bytes as 0x…; random if left out.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the document to keep and to reveal into this file.")] = None,
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Print the privateSetHash of a hidden harness; keep the document, because it is what has to be revealed."""
    document = harness_document(file, salt, language)
    if out is not None:
        write_new(out, document.content, is_secret=True)
    if as_json:
        emit_json(
            {
                "privateSetHash": document.private_set_hash,
                "salt": document.salt,
                "language": document.harness.language,
                "document": document.content.decode(),
                "file": str(out) if out else None,
            }
        )
        return
    typer.echo(document.private_set_hash)
    if out is None and not is_document(file):
        console().print(f"Keep the salt, or the hash cannot be revealed: {document.salt}", markup=False)


def prepare(as_json: JsonFlag = False) -> None:
    """Make every engine ready and run the smallest program on it: about a quarter of a minute for Python, once.

    Exit 1 where an engine that is installed does not run.
    """
    machine = _machine()
    found = {language: look_at(machine, language) for language in LANGUAGES}
    machine.close()
    if as_json:
        told = {name: {"state": r.state, "reason": r.reason, "remedy": r.remedy or None} for name, r in found.items()}
        emit_json({"engines": told})
    else:
        for language, engine in found.items():
            typer.echo(
                " ".join(word for word in (f"{language:<12} {engine.state}", engine.reason, engine.remedy) if word)
            )
    raise typer.Exit(1 if any(engine.state == "failed" for engine in found.values()) else 0)


def check(
    file: HarnessFile,
    reference: Annotated[Path, typer.Option("--reference", metavar="FILE", help="A solution that must pass.")],
    hidden: Annotated[bool, typer.Option("--hidden", help="Nobody will see it before the deadline.")] = False,
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Run a harness on a reference solution, twice; exit 1 unless every test passes with the same numbers.

    Warns where a submission that does nothing would get a number, and where everybody knows the input of a metric.
    """
    machine = _machine()
    harness = _harness(file, language)
    found = check_harness(machine, harness, _text(reference), is_hidden=is_document(file) or hidden)
    if as_json:
        told = {"ok": not found.problems, "problems": list(found.problems), "warnings": list(found.warnings)}
        emit_json({**told, **run_document(found.executed)})
    else:
        _print_run(reference, found.executed)
        for problem in found.problems:
            console(stderr=False).print(f"[red]problem[/]  {safe(problem, 400)}", soft_wrap=True)
        for warning in found.warnings:
            console(stderr=False).print(f"[yellow]warning[/]  {safe(warning, 400)}", soft_wrap=True)
    raise typer.Exit(1 if found.problems else 0)


def run_document(executed: Executed) -> dict[str, object]:
    """The one document of a run."""
    return {
        "outcome": executed.outcome.value,
        "detail": executed.detail,
        "features": executed.features,
        executed.unit: executed.used,
        "calls": [call.to_json() for call in executed.calls],
        "logs": list(executed.logs),
        "machine": dict(executed.machine),
    }


def _executed(harness: Harness, file: Path) -> Executed:
    return _machine().run(harness, HarnessSubmission(harness.language, _text(file)))


def _machine() -> Machine:
    return open_machine(Settings.from_env())


def harness_document(file: Path, salt: str, language: str) -> HarnessDocument:
    if is_document(file):
        if salt:
            raise BadInput(f"{file} has a salt already.", remedy="Leave out --salt.")
        return read_harness_document(_bytes(file))
    return hide(_harness(file, language), salt or None)


def _harness(file: Path, language: str) -> Harness:
    if is_document(file):
        return read_harness_document(_bytes(file)).harness
    name = language or SUFFIXES.get(file.suffix.lower(), "")
    if not name:
        raise BadInput(f"{file} does not say its language.", remedy="Name it .sol or .js, or give --language.")
    return Harness(language_of(name, "The language"), _text(file))


def is_document(file: Path) -> bool:
    return file.suffix.lower() == ".json"


def _text(file: Path) -> str:
    try:
        return _bytes(file).decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text.", remedy="Save it as UTF-8.") from None


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as handle:
            return handle.read(MAX_FILE_BYTES)
    except OSError as bad:
        raise BadInput(f"{file} cannot be read: {bad.strerror or bad}.", remedy="Name a file.") from None


def _print_run(file: Path, executed: Executed) -> None:
    out = console(stderr=False)
    colour = "green" if executed.outcome == "passed" else "red"
    out.print(f"{safe(str(file))}: [{colour}]{executed.outcome.value}[/]  {safe(executed.detail, 300)}", soft_wrap=True)
    for name, value in executed.features.items():
        shown = "unknown" if value is None else str(value).lower() if isinstance(value, bool) else f"{value:,}"
        out.print(f"  {name:28} {shown}", markup=False, soft_wrap=True)
    for line in executed.logs:
        out.print(f"  {safe(line, 300)}", style="dim", soft_wrap=True)
