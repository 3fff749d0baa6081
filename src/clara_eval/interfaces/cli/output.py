"""What commands share: options, files, and how they end: one JSON document or one clear message, and an exit code."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from clara_eval.core import errors
from clara_eval.core.errors import BadInput, ClaraError
from clara_eval.core.private_file import write_private
from clara_eval.core.untrusted import escaped, is_text

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
YesToCost = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")]
AddressArgument = Annotated[str, typer.Argument(help="The challenge's address.")]
ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="The eval config, a JSON file.")]
FromOption = Annotated[str, typer.Option("--from", help="Your address, when no wallet key is set.")]
Judges = Annotated[str, typer.Option(help="Judges instead of CLARA_JUDGES, a comma list.")]
HarnessOption = Annotated[
    Path | None, typer.Option("--harness", metavar="H", help="A harness to run: a source, or a hidden document.")
]
Problem = Annotated[str, typer.Option(help="The task, or @FILE to read it from.")]
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
}
"""How a shell names the actions of `interfaces.words`."""
EXIT_CODES = {0: "success", 1: "checked and refused", 2: "could not run", 70: "a bug", 130: "interrupted"}
_NO = (errors.NotFound, errors.NotYet, errors.CannotAct, errors.CannotPublish, errors.NeedsReview, errors.Unscorable,
       errors.Disagrees, errors.BadTrace)  # fmt: skip


def code_of(error: ClaraError) -> int:
    """1 if the answer is no, 2 if there is none; what may pass is no answer."""
    return 1 if isinstance(error, _NO) and not isinstance(error, errors.Temporary) else 2


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


def answer(document: object, as_json: bool, in_words: Callable[[], None]) -> None:
    if as_json:
        emit_json(document)
    else:
        in_words()


def tolerate_terminals() -> None:
    """Show a question mark for what a terminal cannot show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")


def error_document(error: ClaraError | str) -> dict[str, object]:
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


def read_text(path: Path) -> str:
    """Read text as it is: the chain commits to these bytes, line ends too."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        why = "it is not text in UTF-8" if isinstance(bad, UnicodeDecodeError) else bad.strerror
        raise BadInput(
            f"The file {str(path)!r} cannot be read: {why}.", value=str(path), remedy="Name a file with text in UTF-8."
        ) from None


def text_or_file(text: str) -> str:
    return read_text(Path(text[1:])) if text.startswith("@") else text


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
