"""A second view of code with neutral names, without comments, strings and code that nothing calls."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clara_eval.code import READ_AS_CODE, language_name, neutral_code, read_code

# Possessive throughout: a long line that is no fence after all is read once, not once for each place to split it.
_FENCE = re.compile(r"^ {0,3}(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^\n`]*+$")


def known_language(language: str | None) -> str | None:
    """Return the language that people mean (`Solidity ^0.8`, `ts`), or None if it cannot be parsed."""
    for word in re.findall(r"[A-Za-z0-9_-]+", language or "")[:4]:
        name = language_name(word)
        if name in READ_AS_CODE:
            return name
    return None


def neutral_view(text: str, language: str | None, wanted: frozenset[str] = frozenset()) -> str | None:
    """Return the code in neutral words, or None without a syntax tree; of Markdown, its code."""
    name = known_language(language)
    if name is None:
        return None
    source = text.encode("utf-8", "replace")
    whole = read_code(source, name)
    blocks = fenced_code(text, name) if whole is None or whole.errors else None
    if blocks is not None and (inside := read_code(blocks.encode(), name)) and (whole is None or inside.errors == 0):
        source = blocks.encode()
    return neutral_code(source, name, wanted)


def without(source: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    """Blank out the spans of the source and keep its line breaks."""
    blanked = bytearray(source)
    for start, end in spans:
        blanked[start:end] = re.sub(rb"[^\n]", b" ", bytes(blanked[start:end]))
    return bytes(blanked)


def fenced_code(text: str, language: str) -> str | None:
    """Join the fenced blocks of Markdown in this language (or without one); None if there are none."""
    blocks: list[str] = []
    fence, wanted = "", False
    for line in text.split("\n"):
        mark = _FENCE.match(line.rstrip("\r"))
        if not fence and mark:
            fence, wanted = mark.group(1), not mark.group(2) or known_language(mark.group(2)) == language
        elif fence and mark and mark.group(1).startswith(fence) and not mark.group(2):
            fence = ""
        elif fence and wanted:
            blocks.append(line)
    return "\n".join(blocks) + "\n" if blocks and not fence else None
