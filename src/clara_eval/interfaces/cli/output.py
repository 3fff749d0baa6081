"""Shared by all commands: options, files, JSON output, error messages and exit codes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

from typer import Argument, Option

from clara_eval.core import errors
from clara_eval.core.errors import BadInput, ClaraError
from clara_eval.core.private_file import write_private
from clara_eval.core.strict_json import is_encodable
from clara_eval.core.untrusted import escaped

JsonFlag = Annotated[bool, Option("--json", help="Print one JSON document.")]
YesToCost = Annotated[bool, Option("--yes", "-y", help="Do not ask before spending.")]
AddressArgument = Annotated[str, Argument(help="The challenge's address.")]
ConfigFile = Annotated[Path, Argument(metavar="FILE", help="The eval config, a JSON file.")]
FromOption = Annotated[str, Option("--from", help="Your address, when no wallet key is set.")]
Judges = Annotated[str, Option(help="Judges instead of CLARA_JUDGES, a comma list.")]
HarnessOption = Annotated[
    Path | None, Option("--harness", metavar="H", help="A harness to run: a source, or a hidden document.")
]
Problem = Annotated[str, Option(help="The task, or @FILE to read it from.")]
NAMES = {
    "browse": "`clara-eval challenge list`",
    "detail": "`clara-eval challenge show {address}`",
    "status": "`clara-eval status {address} --watch`",
    "claim": "`clara-eval challenge claim {address}`",
    "check": "`clara-eval config validate FILE`",
    "trace": "`clara-eval trace {address}`",
    "allow_duplicate": "--allow-duplicate",
    "confirm": "--send",
    "register": "--register",
    "objection": "--about and --reason",
    "unsigned": "`--json` prints the unsigned transactions.",
    "not_sent": "Dry run, nothing sent.",
    "to_confirm": "Add --send to send it.",
}  # The command line's names for the actions in `interfaces.words`.
EXIT_CODES = {0: "success", 1: "checked and refused", 2: "could not run", 70: "a bug", 130: "interrupted"}
_REFUSED = (errors.NotFound, errors.NotYet, errors.CannotAct, errors.CannotPublish, errors.NeedsReview,
            errors.Unscorable, errors.Disagrees, errors.BadTrace)  # fmt: skip


def code_of(error: ClaraError) -> int:
    """Return exit code 1 if the request was checked and refused, 2 if it could not run or may pass later."""
    return 1 if isinstance(error, _REFUSED) and not isinstance(error, errors.Temporary) else 2


def emit_json(document: object) -> None:
    """Print the document of `--json`, a pydantic model or plain JSON values."""
    if (dump := getattr(document, "model_dump", None)) is not None:
        document = dump(mode="json")
    is_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(document, indent=2, ensure_ascii=is_ascii, allow_nan=False)
    if not is_encodable(text):
        text = json.dumps(document, indent=2, allow_nan=False)  # for a file name in another encoding
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(document: object, as_json: bool, in_words: Callable[[], None]) -> None:
    if as_json:
        emit_json(document)
    else:
        in_words()


def replace_unprintable() -> None:
    """Print a question mark for characters that the terminal cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")


def fail(error: ClaraError | str, *, code: int | None = None, as_json: bool = False) -> NoReturn:
    """Print an error and exit; the message is escaped, because it may quote a node, a file or a config."""
    report = {"kind": "Error", "message": str(error), "remedy": "", "path": ""}
    if isinstance(error, ClaraError):
        code, path = code_of(error) if code is None else code, getattr(error, "path", "")
        report = {"kind": type(error).__name__, "message": error.message, "remedy": error.remedy, "path": path}
        if error.see:
            from clara_eval.interfaces.words import remedy_of  # noqa: PLC0415 - loads the actions: not for `--help`

            report["remedy"] = remedy_of(error, NAMES)
    if as_json:
        emit_json({"ok": False, "error": report})
    text = f"{report['message']} {report['remedy']}".strip()
    sys.stderr.write(f"clara-eval: {escaped(text, keep_lines=True)}\n")
    raise SystemExit(2 if code is None else code)


def read_text(path: Path) -> str:
    """Read text without changing line ends: the chain commits to the exact bytes."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        why = "it is not text in UTF-8" if isinstance(bad, UnicodeDecodeError) else bad.strerror
        raise BadInput(
            f"The file {str(path)!r} cannot be read: {why}.", value=str(path), remedy="Name a file with text in UTF-8."
        ) from None


def text_or_file(text: str) -> str:
    return read_text(Path(text[1:])) if text.startswith("@") else text


def already_exists(path: Path) -> BadInput:
    return BadInput(f"{path} exists already.", remedy="Choose another name, or remove it first.")


def write_new(path: Path, content: bytes, *, is_secret: bool = False) -> None:
    """Write a new file, private to its owner if `is_secret`; raise BadInput if it exists."""
    try:
        if is_secret:
            write_private(path, content)
            return
        with path.open("xb") as out:
            out.write(content)
    except FileExistsError:
        raise already_exists(path) from None
    except OSError as bad:
        raise BadInput(f"{path} cannot be written: {bad.strerror or bad}.") from None
