"""Untrusted text as a model may see it: NFKC, nothing invisible, markup escaped. A function of the bytes alone."""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass

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
