"""A syntax tree as plain objects that can be marked as dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clara_eval.core.syntax import Parsed

MOST_ITEMS = 400_000
"""A text with more is not read this way: a quarter of a megabyte of ordinary code has a hundred thousand."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STRINGS = words(
    "string string_literal template_string interpreted_string_literal raw_string_literal char_literal rune_literal "
    "regex unicode_string_literal hex_string_literal yul_string_literal concatenated_string"
)
COMMENTS = words("comment line_comment block_comment html_comment hash_bang_line shebang jsx_text")


class Item:
    """One node: its kind, its place in the source, its role in the node around it, and what is inside it."""

    __slots__ = ("children", "end", "field", "instead", "is_dropped", "is_named", "kind", "parent", "start")

    def __init__(
        self, kind: str, field: str | None, start: int, end: int, parent: Item | None, *, is_named: bool
    ) -> None:
        self.kind, self.field, self.start, self.end, self.parent = kind, field, start, end, parent
        self.is_named, self.is_dropped, self.instead = is_named, False, ""
        self.children: list[Item] = []

    @property
    def named(self) -> list[Item]:
        """The children that are no tokens and no comments, but for dropped ones."""
        return [c for c in self.children if c.is_named and not c.is_dropped and c.kind not in COMMENTS]

    def at(self, field: str) -> Item | None:
        """The first child in this role."""
        return next((child for child in self.children if child.field == field and not child.is_dropped), None)

    def drop(self, instead: str = "") -> None:
        self.is_dropped, self.instead = True, instead


def read_items(parsed: Parsed) -> Item | None:
    """The tree of items, or None if there are too many."""
    cursor, count = parsed.tree.walk(), 0
    root: Item | None = None
    around: Item | None = None
    while True:
        node = cursor.node
        assert node is not None
        item = Item(node.type, cursor.field_name, node.start_byte, node.end_byte, around, is_named=node.is_named)
        count += 1
        if count > MOST_ITEMS:
            return None
        if around is None:
            root = item
        else:
            around.children.append(item)
        if cursor.goto_first_child():
            around = item
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return root
            around = around.parent if around is not None else None


def inside(top: Item) -> Iterator[Item]:
    """The item and everything in it that is not dropped, parents first."""
    waiting = [top]
    while waiting:
        item = waiting.pop()
        if not item.is_dropped:
            yield item
            if not item.is_dropped:  # whoever looks at it may have dropped it
                waiting.extend(reversed(item.children))


def bare(item: Item) -> Item:
    """The item without brackets and wrappers that hold nothing else."""
    while item.kind in _WRAPPERS and len(item.named) == 1:
        item = item.named[0]
    return item


_WRAPPERS = words("parenthesized_expression expression statement call_argument expression_statement")
