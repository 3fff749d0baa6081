"""The version of this package, and of the rules by which it evaluates."""

from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENCODING, ENDMARKER, INDENT, NEWLINE, NL, STRING, TokenInfo, tokenize

__version__ = "0.2.0"
RULES = 11
"""Raised by every change after which the same evidence gives other entries: a trace is checked by its own rules."""
_DECIDING = ("code", "config", "core", "evaluation", "harness", "judge", "ranking", "submissions")
"""Packages that decide a result."""


@cache
def code_version(root: Path = Path(__file__).parents[1]) -> str:
    """The version, with a hash of the code that decides results: builds of one version may differ."""
    found = sha256()
    for folder in _DECIDING:
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                content = file.read_bytes()
                deciding = _tokens(content) if file.suffix == ".py" else content
                found.update(file.relative_to(root).as_posix().encode() + b"\0" + deciding)
    return f"{__version__} rules {RULES} {found.hexdigest()[:12]}"


def _tokens(source: bytes) -> bytes:
    """The code without comments, docstrings and lines; by tokens, because `ast` fails in several threads at once."""
    found, statement = list[str](), list[TokenInfo]()
    for token in tokenize(BytesIO(source).readline):
        if token.type == NEWLINE:
            if any(one.type != STRING for one in statement):
                found += [*(one.string for one in statement), ""]
            statement = []
        elif token.type in {INDENT, DEDENT}:
            found.append(str(token.type))
        elif token.type not in {COMMENT, NL, ENCODING, ENDMARKER}:
            statement.append(token)
    return "\0".join(found).encode()
