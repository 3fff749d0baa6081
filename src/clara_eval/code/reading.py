"""Read a syntax tree: functions, branches, comments, names, tests, and the shape of each statement.

Invariant: time and memory are linear in the length of the text, at any depth of nesting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from clara_eval.code.language import NODES, STRINGS, VOCABULARY, words
from clara_eval.core.syntax import Parsed, node_kinds, parse

if TYPE_CHECKING:
    from tree_sitter import Node

# The roles of a node type, as bits. Plain integers, because roles are checked for every node of the tree and flag
# objects would cost more than the parse.
_ROLE_NAMES = (
    *("function", "closure", "branch", "nest", "comment", "string", "class", "import", "name", "short_circuit"),
    *("call", "attribute", "plain_statement", "binder", "binary"),
)
_ROLES = {name: 1 << bit for bit, name in enumerate(_ROLE_NAMES)}
FUNCTION, CLOSURE, BRANCH, NEST, COMMENT, STRING, CLASS, IMPORT, NAME, SHORT_CIRCUIT, *_rest = _ROLES.values()
CALL, ATTRIBUTE, PLAIN_STATEMENT, BINDER, BINARY = _rest
"""`branch` adds a path, `nest` a level; a lone string in a `plain_statement` is documentation."""
_CONTROL = FUNCTION | CLOSURE | NEST | BRANCH | SHORT_CIRCUIT
_AROUND = BINDER | BINARY  # matters only to the nodes inside it
_TEST_PREFIXES = {"python": ("test_",), "solidity": ("test", "invariant"), "go": ("Test", "Fuzz")}
_TEST_CALLS = (b"it", b"test")
_NO_PARAMETER = words("comment line_comment block_comment keyword_separator positional_separator self_parameter")
Span = tuple[int, int]
MOST_LEAVES = 40  # a larger expression is split, so that one changed constant does not hide a whole table
_LONGEST_TEXT = 80
_LONGEST_SHAPE = 600  # characters; a longer one is replaced by its hash, so that deep nesting stays linear
_SPLICE = "…"  # the label of nodes that only group others: their parts belong to the parent
_LABEL_OF = {name: label for label, names in VOCABULARY["labels"].items() for name in names.split()}  # of shapes
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
# How a node is handled.
_OPEN, _SKIP, _TOKEN, _WORD, _NUMBER, _STRING = range(6)
_KEEPS_LABEL = frozenset({"return", "throw", "if", "loop", "switch", "case", "call", "list", "un", "step"})
_Open: TypeAlias = "tuple[_Kind, Iterator[Node], str, list[str], list[int]]"
_MAX_CACHED_PARTS = 100_000  # texts, functions, comments and strings
_CACHE: dict[tuple[bytes, str], tuple[Code | None, int]] = {}  # the texts read last, each with its number of parts
_CACHE_LOCK = Lock()


@cache
def roles_by_kind(name: str) -> tuple[int, ...]:
    roles = dict[str, int]()
    for role, types in (VOCABULARY["roles"]["usual"] | VOCABULARY["roles"][name]).items():
        for node_type in types.split():
            roles[node_type] = roles.get(node_type, 0) | _ROLES[role]
    # A keyword may be spelled like a node type (`string` in Solidity): of the tokens only operators have a role.
    return tuple(roles.get(kind, 0) & (-1 if is_named else SHORT_CIRCUIT) for kind, is_named in node_kinds(name))


@dataclass(slots=True)
class Unit:
    """A function, or all code outside functions."""

    complexity: int = 1
    parameters: int = 0
    lines: int = 0
    documented: bool = False


@dataclass(slots=True)
class Structure:
    outside: Unit = field(default_factory=Unit)
    functions: list[Unit] = field(default_factory=list)
    max_nesting: int = 0
    comments: list[Span] = field(default_factory=list)  # comments and documentation strings, in order, not overlapping
    strings: list[Span] = field(default_factory=list)
    classes: int = 0
    imports: int = 0
    tests: int = 0
    names: set[bytes] = field(default_factory=set)

    @property
    def complexities(self) -> list[int]:
        units = [unit.complexity for unit in self.functions]
        return [*units, self.outside.complexity] if self.outside.complexity > 1 or not units else units


def read_structure(parsed: Parsed) -> Structure:
    """Return the structure of a program, in one pass without recursion."""
    roles, reader = roles_by_kind(parsed.language), _StructureReader(parsed)
    known, names, source, units, nests = len(roles), reader.found.names, parsed.source, reader.units, reader.nests
    waiting: list[Iterator[Node]] = []
    nodes, parents = iter((parsed.tree.root_node,)), [0]
    while True:
        for node in nodes:
            kind = node.kind_id
            role = roles[kind] if kind < known else 0  # errors are not in the table
            if role == NAME:  # by far the most
                names.add(source[node.start_byte : node.end_byte])
            elif role & ~_AROUND:
                if role & _CONTROL:
                    reader.read_control(node, role, len(parents), parents[-1])
                reader.read_other(node, role)
            # Half of the nodes are leaves, and a count is cheaper than an empty list. Tokens matter only as operators.
            if node.child_count and (inner := node.children if role & BINARY else node.named_children):
                waiting.append(nodes)
                parents.append(role)
                nodes = iter(inner)
                break
        else:
            if not waiting:
                reader.found.comments = sorted([*reader.found.comments, *parsed.blanked])
                return reader.found
            nodes = waiting.pop()
            parents.pop()
            depth = len(parents)
            if (units and units[-1][0] >= depth) or (nests and nests[-1] >= depth):
                reader.leave(depth)


@dataclass(slots=True)
class _StructureReader:
    """The state of one pass. It never asks a node for its parent or siblings, which is not O(1)."""

    parsed: Parsed
    found: Structure = field(default_factory=Structure)
    units: list[tuple[int, Unit]] = field(default_factory=list)
    nests: list[int] = field(default_factory=list)  # depths of the enclosing nodes
    test_attribute_row: int = -9
    documented_row: int = -9  # last row of the last comment, or of attributes and decorators after it

    def leave(self, depth: int) -> None:
        while self.units and self.units[-1][0] >= depth:
            self.units.pop()
        while self.nests and self.nests[-1] >= depth:
            self.nests.pop()

    def read_control(self, node: Node, role: int, depth: int, parent: int) -> None:
        self.leave(depth)
        if role & FUNCTION or (role & CLOSURE and parent & BINDER):
            row = node.start_point[0]
            opened = Unit(
                parameters=self._parameters(node),
                lines=node.end_point[0] - row + 1,
                documented=row - self.documented_row <= 1 or _is_docstring(_first(node.child_by_field_name("body"))),
            )
            self.units.append((depth, opened))
            self.found.functions.append(opened)
            named = node.child_by_field_name("name")
            name = self._text(named).decode("utf-8", "replace") if named is not None else ""
            by_name = name.startswith(_TEST_PREFIXES.get(self.parsed.language, ()))
            self.found.tests += by_name or row - self.test_attribute_row <= 2
            self.test_attribute_row = self.documented_row = -9
        before = self.parsed.source[max(0, node.start_byte - 32) : node.start_byte].rstrip()
        if role & NEST and not (before.endswith(b"else") and node.type.startswith("if")):
            self.nests.append(depth)
            self.found.max_nesting = max(self.found.max_nesting, len(self.nests))
        pattern = _first(node) if node.type in {"match_arm", "case_clause"} else None
        is_default = pattern is not None and self._text(pattern) == b"_"  # the default adds no branch
        if (role & BRANCH and not is_default) or (role & SHORT_CIRCUIT and parent & BINARY):
            (self.units[-1][1] if self.units else self.found.outside).complexity += 1

    def read_other(self, node: Node, role: int) -> None:
        found = self.found
        if role & STRING:
            found.strings.append((node.start_byte, node.end_byte))
        if role & CLASS and node.is_named:
            found.classes += 1
        if role & IMPORT:
            found.imports += 1
        if role & NAME:
            found.names.add(self._text(node))
        if role & CALL and (called := node.child_by_field_name("function")) is not None:
            is_short = called.end_byte - called.start_byte <= 16
            found.tests += is_short and self._text(called).partition(b".")[0] in _TEST_CALLS
        if role & ATTRIBUTE:
            if node.start_point[0] - self.documented_row <= 1:
                self.documented_row = node.end_point[0]
            if self._text(node).strip(b"#[] ").rpartition(b"::")[2] == b"test":
                self.test_attribute_row = node.end_point[0]
        if role & COMMENT or (role & PLAIN_STATEMENT and _is_docstring(node)):
            found.comments.append((node.start_byte, node.end_byte))
            self.documented_row = node.end_point[0]

    def _parameters(self, node: Node) -> int:
        """Count declared parameters without the receiver, so that methods of all languages count alike."""
        listed = node.child_by_field_name("parameters")
        if listed is None:  # Solidity has no list, and an arrow function may have one bare name
            return sum(child.type == "parameter" for child in node.named_children) + (
                node.child_by_field_name("parameter") is not None
            )
        found = 0
        for number, child in enumerate(listed.named_children):
            if child.type in _NO_PARAMETER:
                continue
            if number == 0 and child.type == "identifier" and self._text(child) in {b"self", b"cls"}:
                continue
            found += max(1, len(child.children_by_field_name("name"))) if child.type == "parameter_declaration" else 1
        return found

    def _text(self, node: Node) -> bytes:
        # Not `node.text`: the parser's text has no long comments.
        return self.parsed.source[node.start_byte : node.end_byte]


def _first(node: Node | None) -> Node | None:
    return node.named_child(0) if node is not None and node.named_child_count else None


def _is_docstring(node: Node | None) -> bool:
    if node is None or node.type != "expression_statement" or node.named_child_count != 1:
        return False
    only = _first(node)
    return only is not None and only.type == "string"


class Shape(NamedTuple):
    text: str
    leaves: int


class _Kind(NamedTuple):
    role: int
    label: str
    is_unit: bool
    is_block: bool
    has_operator: bool
    is_spliced: bool
    keeps_label: bool  # even around a single part


def shapes_of(parsed: Parsed) -> list[Shape]:
    """Return the shapes of all statements, in the order in which they end."""
    # Local variables and tuples instead of objects, because a submission has thousands of nodes.
    kinds, source = _kinds(parsed.language), parsed.source
    known, found, sizes, around = len(kinds), list[str](), list[int](), list[_Open]()
    frame, nodes, operator, texts, leaves = _BROKEN, iter((parsed.tree.root_node,)), "", list[str](), list[int]()
    while True:
        for node in nodes:
            number = node.kind_id
            kind = kinds[number] if number < known else _BROKEN
            role = kind[0]
            if role >= _WORD:
                texts.append(kind[1] if role == _WORD else _leaf_text(role, source, node))
                leaves.append(1)
            elif role == _TOKEN:
                # `is not` and `not in` are several tokens.
                operator = f"{operator} {kind[1]}" if operator else kind[1]
            # Tokens are visited only in nodes that have an operator.
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
                is_alone = len(its_texts) == 1 and not done[6]
                text = its_texts[0] if is_alone else _shape_text(done, its_operator, its_texts)
                (found if is_own else texts).append(text)
                (sizes if is_own else leaves).append(total)


def _leaf_text(role: int, source: bytes, node: Node) -> str:
    start = node.start_byte
    text = source[start : min(node.end_byte, start + _LONGEST_TEXT)]
    return _number(text) if role == _NUMBER else _string(text)


def _shape_text(kind: _Kind, operator: str, texts: list[str]) -> str:
    if not texts:  # too large for one shape: its parts are shapes of their own
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
    # A string of one word is a key, which can be renamed like any other name; a sentence is content.
    return "s" if text.isidentifier() or not text else '"' + " ".join(text.split()) + '"'


@cache
def _kinds(language: str) -> tuple[_Kind, ...]:
    return tuple(_kind(name, is_named=is_named) for name, is_named in node_kinds(language))


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


@dataclass(frozen=True, slots=True)
class Code:
    """The metrics of a text that is read as code. Cached and shared: do not change it."""

    errors: int
    structure: Structure  # without its names
    distinct_names: int


def read_code(source: bytes, language: str) -> Code | None:
    """Return the metrics of a text, or None if it is too broken, too large or too slow to parse."""
    cached = _CACHE.get(_cache_key(source, language))
    return cached[0] if cached else _read_and_cache(source, language, parse(source, language))


def shapes_in(source: bytes, language: str, parsed: Parsed | None = None) -> list[Shape]:
    """Return the shapes of all statements, none if the text cannot be parsed; caches its metrics too."""
    parsed = parsed or parse(source, language)
    _read_and_cache(source, language, parsed)
    return shapes_of(parsed) if parsed else []


def _read_and_cache(source: bytes, language: str, parsed: Parsed | None) -> Code | None:
    key, code, parts = _cache_key(source, language), None, 1
    if parsed is not None:
        found = read_structure(parsed)
        code = Code(parsed.errors, replace(found, names=set()), len(found.names))
        parts += len(found.functions) + len(found.comments) + len(found.strings)
    with _CACHE_LOCK:
        _CACHE.pop(key, None)
        _CACHE[key] = code, parts
        excess = sum(size for _, size in _CACHE.values()) - _MAX_CACHED_PARTS
        while excess > 0:
            excess -= _CACHE.pop(next(iter(_CACHE)))[1]
    return code


def _cache_key(source: bytes, language: str) -> tuple[bytes, str]:
    return blake2b(source, digest_size=16).digest(), language
