"""The terminal: a console for results, one for progress, and strangers' text made harmless."""

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
    """Standard error, for progress and questions; with `stderr=False` standard output, for results."""
    screen = Console(stderr=stderr, highlight=False)
    # A pipe has no width of its own; tables are made for a hundred columns unless COLUMNS says otherwise.
    width = shutil.get_terminal_size((100, 24)).columns
    return screen if screen.is_terminal else Console(stderr=stderr, highlight=False, width=width)


def agree_to_cost(*, yes: bool) -> None:
    """Ask whether to go on at that cost; without a terminal only --yes goes on."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput("Nothing was asked: nobody said yes.", remedy="Add --yes to accept the cost.")
    confirm("Ask?", abort=True, err=True)


def safe(text: str, limit: int = 200) -> str:
    """A stranger's text on one line: escaped, without markup, cut."""
    return escape(escaped(text[:limit]) + ("…" if len(text) > limit else ""))


def short_hex(text: str) -> str:
    """Escape a sentence and shorten its addresses and hashes."""
    return re.sub(r"0x[0-9a-fA-F]{40,}", lambda found: short(found.group()), escaped(text))


def print_lines(*lines: str) -> None:
    """Print lines with markup on standard output; each can be copied whole."""
    for line in lines:
        console(stderr=False).print(line, soft_wrap=True)


def print_text(text: str) -> None:
    console(stderr=False).print(text, markup=False, soft_wrap=True)


def print_wrapped(text: str, lead: str = "", style: str = "", *, screen: Console | None = None) -> None:
    """Print a text behind `lead`, and its further lines below it."""
    screen = screen or console(stderr=False)
    for number, line in enumerate(Text(text).wrap(screen, max(20, screen.width - len(lead)))):
        screen.print(Text.assemble(" " * len(lead) if number else (lead, style), line.plain.rstrip()))


def print_labelled(label: str, text: str | None, *, stderr: bool = False) -> None:
    """Print `label      text` on one line, which can be copied whole; nothing without a text."""
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
    """The program as it can be called from here, on the path or not."""
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "clara-eval" and not shutil.which(called.name) else "clara-eval"


def from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
