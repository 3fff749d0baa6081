"""Neutralise code: replace names, empty comments and strings, drop unreached code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from clara_eval.code.dead_code import COMMENTS, DeadCode, Item, inside
from clara_eval.code.language import LIBRARY, STRINGS
from clara_eval.code.reach import drop_unreached
from clara_eval.code.reading import read_structure
from clara_eval.core.syntax import Parsed, edited, parse

_NUMBER = re.compile(r"[0-9.][0-9a-fA-FxXoOnNjJeEuUiIf_.]{0,79}")
_WORD = re.compile(r"\w", re.UNICODE)
_CODE_WORDS = re.compile(r"`{3}.*?`{3}|`[^`\n]{1,200}`", re.DOTALL)
_LIKE_CODE = re.compile(
    r"\b(?:[A-Za-z]\w*_\w+|[a-z]+[0-9]*[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*)\b|\b([A-Za-z_]\w*)(?=\()"
    r"|\b(?:function|method|class|contract|library|interface|module|called|named)[ \t]{1,3}([A-Za-z_]\w*)"
)
_IDENTIFIER = re.compile(r"[A-Za-z_$]\w*")
_MOST_HOLDERS = 8  # between a member and its class; Rust nests blocks in blocks
MOST_WANTED = 2_000  # names taken from a task and its harness; more are ignored


@lru_cache(maxsize=64)
def wanted_names(statement: str, harness: str = "", language: str = "") -> frozenset[str]:
    """Return the names that a task asks for: code in its statement and all names in its harness."""
    found = [name for part in _CODE_WORDS.findall(statement) for name in _IDENTIFIER.findall(part)]
    found += [match[1] or match[2] or match[0] for match in _LIKE_CODE.finditer(statement)]
    parsed = parse(harness.encode("utf-8", "replace"), language) if language in LIBRARY else None
    if parsed is not None:
        found += sorted(name.decode("utf-8", "replace") for name in read_structure(parsed).names)
    return frozenset(found[:MOST_WANTED])


@lru_cache(maxsize=32)
def neutral_code(source: bytes, language: str, wanted: frozenset[str] = frozenset()) -> str | None:
    """Return the program with neutral names, or None if it has no syntax tree."""
    code = DeadCode.of(parse(source, language), wanted)
    if code is None:
        return None
    tests = drop_unreached(code, wanted)
    code.drop_unread(wanted)
    return _Writer(code, wanted, tests).write()


def live_text(text: str, parsed: Parsed | None) -> str:
    """Blank the statements that do nothing; without a syntax tree return the text unchanged."""
    code = DeadCode.of(parsed, frozenset(), shares_tokens=True)
    if code is None:
        return text
    live = edited(code.source, ((one.start, one.end, " ") for one in code.dropped()))
    code.free()
    return live


class _Writer:
    def __init__(self, code: DeadCode, wanted: frozenset[str], tests: frozenset[str]) -> None:
        self._code, self._tests = code, tests
        self._kept, self._library = code.library | wanted, code.library - wanted
        self._new_names: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def write(self) -> str:
        for item in inside(self._code.root):
            parent = item.parent
            if item.field != "name" or parent is None or item.children:
                continue
            name, is_member = self._code.text(item), self._is_member(parent)
            if name in self._library and not is_member and not name.startswith("_"):
                self._kept -= {name}
            if parent.kind.startswith(("function", "method", "modifier", "generator")):
                self._new_name(name, "test_" if name in self._tests else "f")
            elif parent.kind.startswith(("class", "contract", "library", "interface", "struct", "enum", "abstract")):
                self._new_name(name, "C")
        text = "".join(self._pieces())
        return "\n".join(line.rstrip() for line in text.split("\n") if line.strip(" \t\r;")) + "\n"

    @staticmethod
    def _is_member(definition: Item) -> bool:
        parent = definition.parent
        for _ in range(_MOST_HOLDERS):
            if parent is not None and parent.kind in ("block", "class_body", "decorated_definition", "contract_body"):
                parent = parent.parent
        return parent is not None and parent.kind.startswith(("class", "contract", "library", "interface", "impl"))

    def _new_name(self, name: str, prefix: str) -> str:
        if name in self._kept:
            return name
        if name not in self._new_names:
            number = self._counts.get(prefix, 0) + 1
            while f"{prefix}{number}" in self._kept:
                number += 1
            self._counts[prefix] = number
            self._new_names[name] = f"{prefix}{number}"
        return self._new_names[name]

    def _pieces(self) -> Iterator[str]:
        position, is_python = 0, self._code.language == "python"
        stack = [self._code.root]
        while stack:
            item = stack.pop()
            if item.start < position:
                continue
            if is_python and item.kind == "block" and item.children and not item.is_dropped and not item.named:
                item.drop("pass")  # all of its statements were dropped
            if item.children and not item.is_dropped and item.kind not in STRINGS and item.kind not in COMMENTS:
                stack.extend(reversed(item.children))
                continue
            # Only the whitespace between two tokens is kept: the parser may have skipped other text.
            between = self._code.source[position : item.start].decode("utf-8", "replace")
            yield between if between.isspace() else "".join(char for char in between if char in " \t\n")
            yield self._leaf_text(item)
            position = item.end
        yield "\n"

    def _leaf_text(self, item: Item) -> str:
        if item.is_dropped:
            return item.instead
        if item.kind in COMMENTS:
            return ""
        text = self._code.text(item)
        if item.kind in STRINGS:
            return f'"{self._new_name(text, "s")}"' if text.strip("\"'`") else '""'
        is_keyword = not item.is_named and text.strip() == item.kind.strip()
        if is_keyword or not _WORD.search(text) or _NUMBER.fullmatch(text):
            return text
        return self._new_name(text, "v") if "\n" not in text else ""
