"""The terminal as people see it: a console for results, one for progress, and strangers' text made harmless."""

from __future__ import annotations

from functools import lru_cache

from rich.console import Console
from rich.markup import escape

from clara_eval.use_cases.untrusted import escaped


@lru_cache(maxsize=2)
def console(*, stderr: bool = True) -> Console:
    """Standard error, for progress and questions; with `stderr=False` standard output, for results."""
    screen = Console(stderr=stderr, highlight=False)
    # A pipe has no width of its own; tables are made for a hundred columns.
    return screen if screen.is_terminal else Console(stderr=stderr, highlight=False, width=100)


def safe(text: str, limit: int = 200) -> str:
    """A stranger's text on one line: control characters escaped, markup neutralised, length capped."""
    return escape(escaped(text[:limit]) + ("…" if len(text) > limit else ""))
