"""The version of this package, and of its evaluation rules."""

from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENCODING, ENDMARKER, INDENT, NEWLINE, NL, STRING, TokenInfo, tokenize

__version__ = "0.2.0"
RULES = 12  # incremented when equal evidence gives other trace entries: a trace is checked by the rules it names
_DECIDING = ("code", "config", "core", "evaluation", "harness", "judge", "ranking", "submissions")
"""Packages whose code affects a result."""


@cache
def code_version(root: Path = Path(__file__).parents[1]) -> str:
    """Return the version with a hash of the deciding code: two builds of one version may differ."""
    digest = sha256()
    for folder in _DECIDING:
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                content = file.read_bytes()
                code = _code_tokens(content) if file.suffix == ".py" else content
                digest.update(file.relative_to(root).as_posix().encode() + b"\0" + code)
    return f"{__version__} rules {RULES} {digest.hexdigest()[:12]}"


def _code_tokens(source: bytes) -> bytes:
    """Return the code without comments, docstrings and line breaks; `ast` is not thread-safe here."""
    parts, statement = list[str](), list[TokenInfo]()
    for token in tokenize(BytesIO(source).readline):
        if token.type == NEWLINE:
            if any(part.type != STRING for part in statement):
                parts += [*(part.string for part in statement), ""]
            statement = []
        elif token.type in {INDENT, DEDENT}:
            parts.append(str(token.type))
        elif token.type not in {COMMENT, NL, ENCODING, ENDMARKER}:
            statement.append(token)
    return "\0".join(parts).encode()
