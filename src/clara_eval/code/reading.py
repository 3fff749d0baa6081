"""Write each statement in words common to all languages, and hold the structure of recent texts: each is parsed once.

Invariant: time and memory are linear in the text, however deep it is nested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from clara_eval.code.language import NODES, STRINGS, VOCABULARY, words
from clara_eval.code.structure import Structure, read_structure
from clara_eval.core.syntax import Parsed, load_language, parse

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_LEAVES = 40
"""A larger expression is taken in pieces, so that one changed constant does not hide a whole table."""
_LONGEST_TEXT = 80
_LONGEST_SHAPE = 600
"""A longer shape goes on as its hash: a hundred thousand minus signs are one leaf, and must not be copied at each."""


class Shape(NamedTuple):
    text: str
    leaves: int


_SPLICE = "…"
"""The label of nodes that only hold others: their parts belong to the node around them."""
_LABEL_OF = {name: label for label, names in VOCABULARY["labels"].items() for name in names.split()}
"""The label of a node's shape, common to all languages."""
_LABEL_OF |= dict.fromkeys(NODES["spliced"], _SPLICE)
_SKIPPED, _BLOCKS, _PARTS, _NUMBERS = (NODES[kind] for kind in ("skipped", "blocks", "parts", "numbers"))
_CONSTANTS = {
    "true": "true", "false": "false", "yul_boolean": "true", "boolean_literal": "bool",
    "none": "null", "null": "null", "nil": "null", "undefined": "null",
}  # fmt: skip
_NAMES = words("self this super yul_path yul_evm_builtin crate blank_identifier iota type_name")
_SAME_OPERATOR = {
    "===": "==", "!==": "!=", "<>": "!=", "&&": "and", "||": "or", "!": "not", "is": "==", "is not": "!=",
    ":=": "=", "??": "or", ">>>": ">>",
}  # fmt: skip
_FLIPPED = {">": "<", ">=": "<="}
_COMMUTES = frozenset({"+", "*", "==", "!=", "and", "or", "&", "|", "^"})
_OPERATED = frozenset({"bin", "un", "assign", "step"})
_HOLE = re.compile(r"\$?\{[^{}]*\}|%[-0-9.]*[sdrifxg]")
_QUOTES = re.compile(r"^[A-Za-z]{0,3}(?P<q>[\"'`]{1,3}|/)|[\"'`/]+$")

# What is done with a node, by the parser's kind number.
_OPEN, _SKIP, _TOKEN, _WORD, _NUMBER, _STRING = range(6)


class _Kind(NamedTuple):
    role: int
    label: str
    is_unit: bool
    is_block: bool
    has_operator: bool
    is_spliced: bool
    keeps_label: bool
    """Also around a single part."""


def shapes_of(parsed: Parsed) -> list[Shape]:
    """The shapes of all statements, in the order in which they end.

    What is open is held in plain names and lists, because a submission has thousands of nodes: the node's kind, its
    children to come, its operator, and what has been read inside it, the texts in one list, their leaves in another.
    """
    kinds, source = _kinds(parsed.language), parsed.source
    known, found, sizes, around = len(kinds), list[str](), list[int](), list[_Open]()
    frame, nodes, operator, texts, leaves = _BROKEN, iter((parsed.tree.root_node,)), "", list[str](), list[int]()
    while True:
        for node in nodes:
            number = node.kind_id
            kind = kinds[number] if number < known else _BROKEN
            role = kind[0]
            if role >= _WORD:
                texts.append(kind[1] if role == _WORD else _leaf(role, source, node))
                leaves.append(1)
            elif role == _TOKEN:
                # `is not` and `not in` come as several tokens.
                operator = f"{operator} {kind[1]}" if operator else kind[1]
            # Tokens count only where they may be operators: elsewhere they are not even looked at.
            elif role == _OPEN and (inner := node.children if kind[4] else node.named_children):
                around.append((frame, nodes, operator, texts, leaves))
                frame, nodes, operator, texts, leaves = kind, iter(inner), "", [], []
                break
        else:
            if not around:
                return list(map(Shape, found, sizes))
            done, its_operator, its_texts, its_leaves = frame, operator, texts, leaves
            frame, nodes, operator, texts, leaves = around.pop()
            total, is_own = sum(its_leaves), done[2] or frame[3]
            if done[3] or total > MOST_LEAVES:
                found += its_texts
                sizes += its_leaves
                its_texts, its_leaves, total = [], [], int(not done[3])
            if done[5] and not is_own:
                texts += its_texts
                leaves += its_leaves
            elif total:
                text = its_texts[0] if len(its_texts) == 1 and not done[6] else _joined(done, its_operator, its_texts)
                (found if is_own else texts).append(text)
                (sizes if is_own else leaves).append(total)


def _leaf(role: int, source: bytes, node: Node) -> str:
    start = node.start_byte
    text = source[start : min(node.end_byte, start + _LONGEST_TEXT)]
    return _number(text) if role == _NUMBER else _string(text)


def _joined(kind: _Kind, operator: str, texts: list[str]) -> str:
    if not texts:  # too large to be one shape: its parts are shapes of their own already
        return f"{kind[1]}()"
    label = kind[1]
    if not kind[4]:
        text = f"{label}({','.join(texts)})"
    elif label in ("bin", "un"):
        text = _operation(operator, texts)
    else:
        text = _assignment(label, operator, texts)
    if len(text) > _LONGEST_SHAPE:
        text = blake2b(text.encode(), digest_size=12).hexdigest()
    return text


def _operation(operator: str, texts: list[str]) -> str:
    operator = _SAME_OPERATOR.get(operator, operator)
    if operator in _FLIPPED and len(texts) == 2:
        operator, texts = _FLIPPED[operator], texts[::-1]
    if operator in _COMMUTES:
        texts = sorted(texts)
    return f"{operator}({','.join(texts)})"


def _assignment(label: str, operator: str, texts: list[str]) -> str:
    if label == "step":
        return f"=({texts[0]},{_operation(operator[:1], [texts[0], '1'])})"
    if len(operator) > 1 and operator.endswith("=") and operator not in (":=", "=="):
        return f"=({texts[0]},{_operation(operator[:-1], [texts[0], texts[-1]])})"
    return f"=({','.join(texts)})"


@lru_cache(maxsize=4_096)
def _number(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace").replace("_", "").lower()
    try:
        return str(int(text, 0))
    except ValueError:
        return text


@lru_cache(maxsize=4_096)
def _string(raw: bytes) -> str:
    text = _HOLE.sub("{}", _QUOTES.sub("", raw.decode("utf-8", "replace")))
    # A string of one word is a key, and renamed like any other name; a sentence is content.
    return "s" if text.isidentifier() or not text else '"' + " ".join(text.split()) + '"'


_KEEPS_LABEL = frozenset({"return", "throw", "if", "loop", "switch", "case", "call", "list", "un", "step"})
_Open: TypeAlias = "tuple[_Kind, Iterator[Node], str, list[str], list[int]]"


@cache
def _kinds(language: str) -> tuple[_Kind, ...]:
    known = load_language(language)
    return tuple(
        _kind(known.node_kind_for_id(number) or "", is_named=known.node_kind_is_named(number))
        for number in range(known.node_kind_count)
    )


def _kind(name: str, *, is_named: bool) -> _Kind:
    role, label = _role(name) if is_named else (_TOKEN, name)
    return _Kind(
        role,
        label,
        is_unit=name.endswith(("_statement", "_definition", "_declaration", "_item")) or name in _PARTS,
        is_block=name in _BLOCKS,
        has_operator=role == _OPEN and label in _OPERATED,
        is_spliced=label == _SPLICE,
        keeps_label=label in _KEEPS_LABEL,
    )


def _role(name: str) -> tuple[int, str]:
    for role, names in ((_SKIP, _SKIPPED), (_STRING, STRINGS), (_NUMBER, _NUMBERS)):
        if name in names:
            return role, ""
    is_name = (name.endswith("identifier") and name != "scoped_identifier") or name in _NAMES
    if name in _CONSTANTS or is_name:
        return _WORD, _CONSTANTS.get(name, "n")
    return _OPEN, _LABEL_OF.get(name, name)


_BROKEN = _kind("", is_named=True)._replace(is_block=True)
_MOST_PARTS = 100_000
"""Functions, comments and strings that are held of late, and texts."""


@dataclass(frozen=True, slots=True)
class Code:
    """What a text says as code. Shared by all who ask: nobody changes it."""

    errors: int
    structure: Structure
    """Without its names."""
    distinct_names: int


class RecentCode:
    """The texts read last, safe to share between threads; all of them have at most `most` parts."""

    def __init__(self, most: int) -> None:
        self.held: dict[tuple[bytes, str], tuple[Code | None, int]] = {}
        self._most, self._parts, self._lock = most, 0, Lock()

    def put(self, key: tuple[bytes, str], code: Code | None, parts: int) -> None:
        with self._lock:
            self._parts += parts - self.held.pop(key, (None, 0))[1]
            self.held[key] = code, parts
            while self._parts > self._most:
                self._parts -= self.held.pop(next(iter(self.held)))[1]


_READ = RecentCode(_MOST_PARTS)


def read_code(source: bytes, language: str) -> Code | None:
    """What the text says, or None where it is too broken, too large or too slow to be measured."""
    known = _READ.held.get(_key(source, language))
    return known[0] if known else _read(source, language, parse(source, language))


def is_held(source: bytes, language: str) -> bool:
    """Whether it was read of late, so that nothing has to be parsed."""
    return _READ.held.get(_key(source, language)) is not None


def shapes_in(source: bytes, language: str) -> list[Shape]:
    """The shapes of all statements; none where the text cannot be parsed. Its structure is read with them."""
    parsed = parse(source, language)
    _read(source, language, parsed)
    return shapes_of(parsed) if parsed else []


def _read(source: bytes, language: str, parsed: Parsed | None) -> Code | None:
    code, parts = None, 1
    if parsed is not None:
        found = read_structure(parsed)
        code = Code(parsed.errors, replace(found, names=set()), len(found.names))
        parts += len(found.functions) + len(found.comments) + len(found.strings)
    _READ.put(_key(source, language), code, parts)
    return code


def _key(source: bytes, language: str) -> tuple[bytes, str]:
    return blake2b(source, digest_size=16).digest(), language
