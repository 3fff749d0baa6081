"""Strangers' words on a page: what hides or turns text is spelled out before it becomes HTML.

Comes in: whatever a template is about to write. Goes out: the same, with control, bidirectional and invisible
characters written as their numbers; line ends stay. The one environment of the templates does so with every value, in
text, attributes and macros.
"""

from __future__ import annotations

from typing import overload

from markupsafe import Markup

from clara_eval.core.untrusted import escaped


@overload
def visible(value: str) -> str: ...
@overload
def visible(value: object) -> object: ...
def visible(value: object) -> object:
    """What can be seen of a value; numbers and missing values as they are, finished markup as markup."""
    match value:
        case Markup():
            return Markup(_spelled(str(value)))  # noqa: S704 - it was markup before; spelling out adds no character of it
        case str():
            return _spelled(value)
        case _ if hasattr(value, "__html__") or isinstance(value, bool | int | float | None):
            return value
        case _:
            return _spelled(str(value))


def _spelled(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").expandtabs(4)
    return escaped(lines.encode("utf-8", errors="replace").decode(), keep_lines=True)
