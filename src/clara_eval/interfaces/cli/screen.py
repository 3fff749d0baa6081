"""Print to the terminal: results on standard output, progress and questions on standard error."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.text import Text
from typer import confirm

from clara_eval.core.address import short
from clara_eval.core.errors import BadInput
from clara_eval.core.untrusted import escaped


@lru_cache(maxsize=2)
def console(*, stderr: bool = True) -> Console:
    """Return the console of standard error (progress, questions) or of standard output (results)."""
    screen = Console(stderr=stderr, highlight=False)
    # A pipe has no width: use COLUMNS, or else 100 columns.
    width = shutil.get_terminal_size((100, 24)).columns
    return screen if screen.is_terminal else Console(stderr=stderr, highlight=False, width=width)


def agree_to_cost(*, yes: bool) -> None:
    """Ask whether to accept the cost; without a terminal only --yes does."""
    if yes:
        return
    if not sys.stdin.isatty():
        reason = "Nothing was asked: there is no terminal to confirm the cost."
        raise BadInput(reason, remedy="Add --yes to accept it.")
    confirm("Send these requests?", abort=True, err=True)


def safe(text: str, limit: int = 200) -> str:
    """Escape untrusted text, without markup, on one line, cut at `limit`."""
    return escape(escaped(text[:limit]) + ("…" if len(text) > limit else ""))


def short_hex(text: str) -> str:
    """Escape a sentence and shorten its addresses and hashes."""
    return re.sub(r"0x[0-9a-fA-F]{40,}", lambda found: short(found.group()), escaped(text))


def print_lines(*lines: str) -> None:
    """Print lines with markup on standard output, without wrapping, so that they can be copied."""
    for line in lines:
        console(stderr=False).print(line, soft_wrap=True)


def print_text(text: str) -> None:
    console(stderr=False).print(text, markup=False, soft_wrap=True)


def print_wrapped(text: str, lead: str = "", style: str = "", *, screen: Console | None = None) -> None:
    """Print `lead` and a wrapped text, with its further lines indented below the first."""
    screen = screen or console(stderr=False)
    for number, line in enumerate(Text(text).wrap(screen, max(20, screen.width - len(lead)))):
        screen.print(Text.assemble(" " * len(lead) if number else (lead, style), line.plain.rstrip()))


def print_labelled(label: str, text: str | None, *, stderr: bool = False) -> None:
    """Print `label      text` on one line, without wrapping; print nothing if `text` is None."""
    if text is not None:
        console(stderr=stderr).print(Text.assemble((f"{label:<10}", "bold"), " ", escaped(text)), soft_wrap=True)


def print_heading(text: str) -> None:
    console(stderr=False).print()
    console(stderr=False).print(Text(text, style="bold"))


def print_next(commands: Sequence[str]) -> None:
    for number, words in enumerate(commands):
        print_labelled("" if number else "Next", f"{program()} {words}")


def print_warnings(sentences: Sequence[str]) -> None:
    print_lines(*(f"[yellow]warning[/] {safe(sentence, 800)}" for sentence in sentences))


def program() -> str:
    """Return how to call the program from here, whether or not it is on the PATH."""
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "clara-eval" and not shutil.which(called.name) else "clara-eval"


def from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
