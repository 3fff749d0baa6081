"""Files of a command: configs read and checked, texts read, new files written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from clara_eval.config.eval_config import BadEvalConfig, ConfigProblem, EvalConfig, parse_eval_config
from clara_eval.core.errors import BadInput
from clara_eval.core.private_file import write_private
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console, safe


def read_config(file: Path, *, as_json: bool) -> EvalConfig:
    return usable_config(file, read_bytes(file), as_json=as_json)


def usable_config(file: Path, content: bytes, *, as_json: bool) -> EvalConfig:
    """Check a config; one that is not usable ends the command with its problems and exit code 1."""
    try:
        return parse_eval_config(content)
    except BadEvalConfig as bad:
        if as_json:
            emit_json({"ok": False, "file": str(file), "problems": [one.to_json() for one in bad.problems]})
        else:
            print_problems(bad.problems)
        raise typer.Exit(1) from None


def read_bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as handle:
            return handle.read(1_048_576)  # far above the config's own limit, which gives the reason
    except OSError as bad:
        raise BadInput(f"{file} cannot be read: {bad.strerror or bad}.", remedy="Name a JSON file.") from None


def read_text(path: Path) -> str:
    """Read text as it is: the chain commits to these bytes, line ends too."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        why = "it is not text in UTF-8" if isinstance(bad, UnicodeDecodeError) else bad.strerror
        raise BadInput(
            f"The file {str(path)!r} cannot be read: {why}.", value=str(path), remedy="Name a file with text in UTF-8."
        ) from None


def print_problems(problems: Sequence[ConfigProblem]) -> None:
    out = console(stderr=False)
    for problem in problems:
        colour = "red" if problem.severity == "error" else "yellow"
        value = "" if problem.value is None else f"  ({safe(str(problem.value), 80)})"
        out.print(f"[{colour}]{problem.severity:7}[/] [bold]{safe(problem.path)}[/]{value}", soft_wrap=True)
        out.print(f"        {safe(problem.reason, 400)} {safe(problem.remedy, 400)}", soft_wrap=True)


def exists_already(path: Path) -> BadInput:
    return BadInput(f"{path} exists already.", remedy="Choose another name, or remove it first.")


def write_new(path: Path, content: bytes, *, is_secret: bool = False) -> None:
    """Write a file that must not exist yet; a secret one for its owner alone."""
    try:
        if is_secret:
            write_private(path, content)
            return
        with path.open("xb") as out:
            out.write(content)
    except FileExistsError:
        raise exists_already(path) from None
    except OSError as bad:
        raise BadInput(f"{path} cannot be written: {bad.strerror or bad}.") from None
