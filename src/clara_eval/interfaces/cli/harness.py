"""`harness …`: run a submission under a harness, check a harness, hide it, and reveal it after the deadline."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from clara_eval.actions import harness as harnesses
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli.output import AddressArgument, JsonFlag, answer, emit_json, write_new
from clara_eval.interfaces.cli.screen import console, print_lines, print_text, safe
from clara_eval.interfaces.words import fact

HarnessFile = Annotated[Path, typer.Argument(metavar="H", help="The harness: a source file, or its hidden document.")]
InLanguage = Annotated[str, typer.Option("--language", help="solidity, javascript or python; else by the file's name.")]


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The submission.")],
    harness: Annotated[Path, typer.Option("--harness", metavar="H", help="The harness that runs it.")],
    seed: Annotated[
        str, typer.Option(help="What a JavaScript or Python harness draws its inputs from.")
    ] = harnesses.NO_SEED,
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Run a submission under a harness and print every measured feature; exit 1 unless all tests pass."""
    found = harnesses.run_file(Settings.from_env(), harness, file, seed=seed, language=language)
    answer(harnesses.run_document(found), as_json, lambda: _print_run(file, found))
    raise typer.Exit(0 if found.outcome == "passed" else 1)


def init(
    language: Annotated[str, typer.Argument(metavar="LANGUAGE", help="python, javascript or solidity.")],
    folder: Annotated[Path, typer.Option(help="Where the two files are written.")] = Path(),
) -> None:
    """Write a first harness and a solution that passes it, to change into yours."""
    files = harnesses.starter_files(language)
    for name, content in files.items():
        write_new(folder / name, content)
    harness, solution = (folder / name for name in files)
    print_text(f"Wrote {harness} and {solution}. Try: clara-eval harness check {harness} --reference {solution}")


def hash_(
    file: HarnessFile,
    salt: Annotated[str, typer.Option(help="32 bytes as 0x…; random if left out.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the document to keep and to reveal into this file.")] = None,
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Print the privateSetHash of a hidden harness; keep the document, because it is what has to be revealed."""
    document = harnesses.hidden_harness(file, salt, language)
    if out is not None:
        write_new(out, document.content, is_secret=True)
    if as_json:
        told = {"privateSetHash": document.private_set_hash, "salt": document.salt}
        told |= {"language": document.harness.language, "document": document.content.decode()}
        emit_json({**told, "file": str(out) if out else None})
        return
    typer.echo(document.private_set_hash)
    if out is None and not harnesses.is_document(file):
        console().print(f"Keep the salt, or the hash cannot be revealed: {document.salt}", markup=False)


def check_engines(*, as_json: bool) -> NoReturn:
    """Make every engine ready, and run the smallest program on it; exit 1 if an installed one does not run."""
    found = harnesses.engines(Settings.from_env())
    if as_json:
        emit_json({"engines": {name: {**one, "remedy": one["remedy"] or None} for name, one in found.items()}})
    else:
        for name, one in found.items():
            typer.echo(" ".join(word for word in (f"{name:<12} {one['state']}", one["reason"], one["remedy"]) if word))
    raise typer.Exit(1 if any(one["state"] == "failed" for one in found.values()) else 0)


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
    found = harnesses.check_file(Settings.from_env(), file, reference, hidden=hidden, language=language)
    if as_json:
        told = {"ok": not found.problems, "problems": list(found.problems), "warnings": list(found.warnings)}
        emit_json({**told, **harnesses.run_document(found.executed)})
    else:
        _print_run(reference, found.executed)
        print_lines(*(f"[red]problem[/]  {safe(problem, 400)}" for problem in found.problems))
        print_lines(*(f"[yellow]warning[/]  {safe(warning, 400)}" for warning in found.warnings))
    raise typer.Exit(1 if found.problems else 0)


def _print_run(file: Path, executed: harnesses.Executed) -> None:
    colour = "green" if executed.outcome == "passed" else "red"
    print_lines(f"{safe(str(file))}: [{colour}]{executed.outcome.value}[/]  {safe(executed.detail, 300)}")
    for name, value in executed.features.items():
        print_text(f"  {name:28} {fact(value)}")
    print_lines(*(f"[dim]  {safe(line, 300)}[/]" for line in executed.logs))


def reveal(
    address: AddressArgument,
    file: HarnessFile,
    salt: Annotated[str, typer.Option(help="The salt, where H is the source.")] = "",
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Reveal a hidden harness, signed by CLARA_WALLET_KEY, to the service at CLARA_API_URL or to the local store."""
    if not harnesses.is_document(file) and not salt:
        raise BadInput(f"{file} has no salt.", remedy="Give the document that was hashed, or --salt.")
    target, document = to_address(address), harnesses.hidden_harness(file, salt, language)
    asyncio.run(harnesses.reveal_document(Settings.from_env(), target, document))
    told = {"challengeAddress": target, "privateSetHash": document.private_set_hash}
    answer(told, as_json, lambda: print_text(f"Revealed {document.private_set_hash} for {target}."))
