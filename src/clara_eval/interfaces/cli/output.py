"""How a command ends: one JSON document, or one clear message, and an exit code."""

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

NAMES = {
    "browse": "`clara-eval challenge list`",
    "detail": "`clara-eval challenge show {address}`",
    "status": "`clara-eval challenge watch {address}`",
    "claim": "`clara-eval challenge claim {address}`",
    "check": "`clara-eval config validate FILE`",
    "trace": "`clara-eval trace {address}`",
    "allow_duplicate": "--allow-duplicate",
    "confirm": "--send",
    "unsigned": "`--json` prints the unsigned transactions.",
    "to_confirm": "Nothing was sent: this was a dry run. Run it again with --send to send it.",
}
"""How a shell names the actions of `interfaces.words`."""
EXIT_CODES = {
    0: "it is so, or it is done",
    1: "the answer is no: a check fails, nothing is known, it is too early or too late, or the chain refuses it",
    2: "it could not be answered: wrong usage, settings or input, or a node or service that does not answer",
    70: "a bug in this program",
    130: "stopped by Ctrl-C",
}
_NO = (NotFound, NotYet, CannotAct, CannotPublish, NeedsReview, Unscorable, Disagrees, BadTrace)


def code_of(error: ClaraError) -> int:
    """1 if the answer is no, 2 if there is none; what may pass is no answer."""
    return 1 if isinstance(error, _NO) and not isinstance(error, Temporary) else 2


def emit_json(document: object) -> None:
    """Print the one document of `--json`: a pydantic model, or plain JSON values."""
    if (dump := getattr(document, "model_dump", None)) is not None:
        document = dump(mode="json")
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(document, indent=2, ensure_ascii=plain, allow_nan=False)
    if not is_text(text):
        text = json.dumps(document, indent=2, allow_nan=False)  # a file name in another encoding
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tolerate_terminals() -> None:
    """Show a question mark for what a terminal cannot show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")


def error_document(error: ClaraError | str) -> dict[str, object]:
    """What happened, what to do about it, and where in the input it is."""
    if isinstance(error, str):
        return {"ok": False, "error": {"kind": "Error", "message": error, "remedy": "", "path": ""}}
    where = {"remedy": _remedy(error), "path": getattr(error, "path", "")}
    return {"ok": False, "error": {"kind": type(error).__name__, "message": error.message, **where}}


def _remedy(error: ClaraError) -> str:
    if not error.see:
        return error.remedy
    from clara_eval.interfaces.words import remedy_of  # noqa: PLC0415 - loads the actions, which `--help` does without

    return remedy_of(error, NAMES)


def fail(error: ClaraError | str, *, code: int | None = None, as_json: bool = False) -> NoReturn:
    """End with a message, which may quote a node, a file or a config."""
    if as_json:
        emit_json(error_document(error))
    text = error if isinstance(error, str) else f"{error.message} {_remedy(error)}".strip()
    sys.stderr.write(f"clara-eval: {escaped(text, keep_lines=True)}\n")
    raise SystemExit(code if code is not None else code_of(error) if isinstance(error, ClaraError) else 2)
