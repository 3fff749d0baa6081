"""Prompt files, filled in one pass and named by their hash, and untrusted text as a model may see it.

Invariant: a filled-in value is never searched for placeholders.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources

from clara_eval.core.errors import ConfigError
from clara_eval.core.hashing import sha256_hex

_KEPT = frozenset("\n\t")
_SELECTORS = frozenset([*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0x180B, 0x1810), 0x034F])
_KINDS = {"Cc": "control", "Cf": "format", "Co": "private", "Cn": "unassigned", "Cs": "surrogate"}
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True)
class PromptView:
    text: str
    removed: tuple[tuple[str, int], ...]
    """What was taken out, by kind, with counts; line ends as such are not counted."""


def prompt_view(text: str) -> PromptView:
    """Return untrusted text as NFKC without anything invisible: a function of the text alone."""
    removed: Counter[str] = Counter()
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = lines.replace("\u2028", "\n").replace("\u2029", "\n")
    # Stripped on both sides of NFKC: what is removed may have kept letters from combining, and NFKC may make marks.
    clean = _strip(unicodedata.normalize("NFKC", _strip(lines, removed)), removed)
    while (again := _strip(unicodedata.normalize("NFKC", clean), removed)) != clean:
        clean = again
    return PromptView(clean, tuple(sorted(removed.items())))


def _strip(text: str, removed: Counter[str]) -> str:
    if text.isascii() and text.isprintable():
        return text
    kinds = {char: kind for char in set(text) if (kind := _kind(char)) is not None}
    if not kinds:
        return text
    for char, count in Counter(text).items():
        if char in kinds:
            removed[kinds[char]] += count
    return text.translate({ord(char): None for char in kinds})


def _kind(char: str) -> str | None:
    if char in _KEPT:
        return None
    if ord(char) in _SELECTORS:
        return "selector"
    return _KINDS.get(unicodedata.category(char))


def escaped(text: str) -> str:
    return text.translate(_ENTITIES)


def unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


NAMES = tuple(f"{stage}.{part}" for stage in ("extract", "compare", "order", "typing") for part in ("system", "user"))
_HOLE = re.compile(r"\{\{([a-z_]+)\}\}")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    name: str
    text: str
    sha256: str
    pieces: tuple[str, ...]
    """Text, name, text, name, …, text."""

    def fill(self, **values: str) -> str:
        self._check(values)
        return "".join(values[piece] if number % 2 else piece for number, piece in enumerate(self.pieces))

    def pattern(self, **values: str) -> str:
        """Return a regular expression for this text, filled with the given expressions."""
        self._check(values)
        pieces = enumerate(self.pieces)
        return "".join(values[piece] if number % 2 else re.escape(piece) for number, piece in pieces)

    def _check(self, values: Collection[str]) -> None:
        holes = set(self.pieces[1::2])
        if holes != set(values):
            wrong = ", ".join(f"{{{{{name}}}}}" for name in sorted(holes ^ set(values)))
            raise ConfigError(
                f"The prompt file prompts/{self.name}.md does not fit its values: {wrong}.",
                remedy="It holds each of these exactly: "
                + ", ".join(f"{{{{{name}}}}}" for name in sorted(values))
                + ".",
            )


@cache
def template(name: str) -> PromptTemplate:
    text = resources.files("clara_eval").joinpath("judge", "prompts", f"{name}.md").read_text("utf-8")
    return PromptTemplate(name, text, sha256_hex(text.encode()), tuple(_HOLE.split(text)))


def template_hash(*names: str) -> str:
    return sha256_hex("".join(template(name).sha256 for name in names).encode())


def prompt_files() -> dict[str, dict[str, str]]:
    """Return every prompt file with its text and hash, for the trace."""
    return {name: {"sha256": template(name).sha256, "text": template(name).text} for name in NAMES}
