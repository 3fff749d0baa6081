"""The version of this package, and of the rules by which it evaluates."""

from functools import cache
from hashlib import sha256
from pathlib import Path

__version__ = "0.2.0"
RULES = 9
"""Raised by every change after which the same evidence gives other entries: a trace is checked by its own rules."""
_DECIDING = ("code", "config", "core", "evaluation", "harness", "judge", "ranking", "submissions")
"""Packages that decide a result."""


@cache
def code_version() -> str:
    """The version, with a hash of the code that decides results: builds of one version may differ."""
    root, found = Path(__file__).parents[1], sha256()
    for folder in _DECIDING:
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                found.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return f"{__version__} rules {RULES} {found.hexdigest()[:12]}"
