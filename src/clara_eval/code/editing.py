"""Text changed at places that a syntax tree names: a source and edits come in, the edited text goes out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Edit: TypeAlias = tuple[int, int, str]
"""From this byte, to this byte, the text that stands there instead."""


def edited(source: bytes, edits: Iterable[Edit]) -> str:
    """The source with non-overlapping edits applied; of two that overlap the outer, earlier one counts."""
    kept: list[bytes] = []
    position = 0
    for start, end, text in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
        if start >= position:
            kept += [source[position:start], text.encode("utf-8", "replace")]
            position = end
    return b"".join((*kept, source[position:])).decode("utf-8", "replace")
