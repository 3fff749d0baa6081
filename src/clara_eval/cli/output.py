"""How the commands speak: results on standard output, everything else on standard error.

With `--json` a command prints exactly one document. A `ClaraError` becomes one clear message and exit code 2; no
traceback reaches a user. Text that strangers wrote is escaped before it is shown.
"""

from __future__ import annotations

import io
import json
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from rich.console import Console

T = TypeVar("T")


def emit_json(document: Any) -> None:
    """The one document of `--json`."""
    from clara_eval.use_cases.untrusted import is_text

    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(document, indent=2, ensure_ascii=plain, allow_nan=False)
    if not is_text(text):
        text = json.dumps(document, indent=2, allow_nan=False)  # a file name that is no text
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@lru_cache(maxsize=2)
def console(*, stderr: bool = True) -> Console:
    from rich.console import Console

    screen = Console(stderr=stderr, highlight=False)
    # A pipe has no width of its own; tables are made for a hundred columns.
    return screen if screen.is_terminal else Console(stderr=stderr, highlight=False, width=100)


def tolerate_terminals() -> None:
    """A terminal that cannot show a character shows a question mark; it must not end the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")


def fail(message: str, *, code: int = 2) -> NoReturn:
    """End with a message and nothing else; it may quote a node, a file or a config."""
    from clara_eval.use_cases.untrusted import escaped

    sys.stderr.write(f"clara-eval: {escaped(message, keep_lines=True)}\n")
    raise SystemExit(code)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; asyncio is loaded only now, because --help does not need it."""
    import asyncio

    return asyncio.run(work)


def safe(text: str, limit: int = 200) -> str:
    """A stranger's text on one line: control characters escaped, markup neutralised, length capped."""
    from rich.markup import escape

    from clara_eval.use_cases.untrusted import escaped

    return escape(escaped(text[:limit]) + ("…" if len(text) > limit else ""))
