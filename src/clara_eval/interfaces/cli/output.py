"""How a command ends: one JSON document, or one clear message, and an exit code.

With `--json` a command prints exactly one document on standard output, an error too. There is one rule of exit codes,
`EXIT_CODES`: it stands in the help, and every error has its code by its kind (`code_of`). No traceback reaches a user,
and nothing that moves a terminal.
"""

from __future__ import annotations

import io
import json
import sys
from typing import NoReturn

from clara_eval.core.errors import (
    BadTrace,
    CannotAct,
    CannotPublish,
    ClaraError,
    Disagrees,
    NeedsReview,
    NotFound,
    NotYet,
    Temporary,
    Unscorable,
)
from clara_eval.core.untrusted import escaped, is_text
from clara_eval.interfaces.cli.words import in_shell

EXIT_CODES = {
    0: "it is so, or it is done",
    1: "the answer is no: a check fails, nothing is known, it is too early or too late, or the chain refuses it",
    2: "it could not be answered: wrong usage, settings or input, or a node or service that does not answer",
    70: "a bug in this program",
    130: "stopped by Ctrl-C",
}
_NO = (NotFound, NotYet, CannotAct, CannotPublish, NeedsReview, Unscorable, Disagrees, BadTrace)


def code_of(error: ClaraError) -> int:
    """1 where the answer is no, 2 where there is none; what may pass is no answer."""
    return 1 if isinstance(error, _NO) and not isinstance(error, Temporary) else 2


def emit_json(document: object) -> None:
    """The one document of `--json`."""
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(document, indent=2, ensure_ascii=plain, allow_nan=False)
    if not is_text(text):
        text = json.dumps(document, indent=2, allow_nan=False)  # a file name in another encoding
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tolerate_terminals() -> None:
    """A terminal that cannot show a character shows a question mark; it must not end the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")


def error_document(error: ClaraError | str) -> dict[str, object]:
    """The document of an error: what happened, what to do about it, and where in the input it is."""
    if isinstance(error, str):
        return {"ok": False, "error": {"kind": "Error", "message": error, "remedy": "", "path": ""}}
    where = {"remedy": in_shell(error.remedy), "path": getattr(error, "path", "")}
    return {"ok": False, "error": {"kind": type(error).__name__, "message": in_shell(error.message), **where}}


def fail(error: ClaraError | str, *, code: int | None = None, as_json: bool = False) -> NoReturn:
    """End with a message and nothing else; it may quote a node, a file or a config."""
    if as_json:
        emit_json(error_document(error))
    sys.stderr.write(f"clara-eval: {escaped(in_shell(str(error)), keep_lines=True)}\n")
    raise SystemExit(code if code is not None else code_of(error) if isinstance(error, ClaraError) else 2)
