"""Read functions, branches, nesting, comments, names and tests from a syntax tree, by a table for each language."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from clara_eval.code.language import VOCABULARY, words
from clara_eval.core.syntax import Parsed, load_language

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

# What a node means to the walk, as bits: a node type may have several roles. Plain integers, because the walk asks
# for every node of the tree and flag objects would cost more than the parse.
FUNCTION, CLOSURE, BRANCH, NEST, COMMENT, STRING, CLASS, IMPORT = (1 << bit for bit in range(8))
NAME, SHORT_CIRCUIT, CALL, ATTRIBUTE, PLAIN_STATEMENT, BINDER, BINARY = (1 << bit for bit in range(8, 15))
_ROLES = {
    "function": FUNCTION, "closure": CLOSURE, "branch": BRANCH, "nest": NEST, "comment": COMMENT, "string": STRING,
    "class": CLASS, "import": IMPORT, "name": NAME, "short_circuit": SHORT_CIRCUIT, "call": CALL,
    "attribute": ATTRIBUTE, "plain_statement": PLAIN_STATEMENT, "binder": BINDER, "binary": BINARY,
}  # fmt: skip
"""`branch`: one more path; `nest`: what is inside is deeper; `plain_statement`: a lone string is documentation."""
_CONTROL = FUNCTION | CLOSURE | NEST | BRANCH | SHORT_CIRCUIT
_AROUND = BINDER | BINARY
"""Means something only for the nodes inside it."""
_TEST_PREFIXES = {"python": ("test_",), "solidity": ("test", "invariant"), "go": ("Test", "Fuzz")}
_TEST_CALLS = (b"it", b"test")
_NO_PARAMETER = words("comment line_comment block_comment keyword_separator positional_separator self_parameter")


@cache
def roles_by_kind(name: str) -> tuple[int, ...]:
    """Role of each node kind, by the parser's kind number."""
    language, roles = load_language(name), dict[str, int]()
    for role, types in (VOCABULARY["roles"]["usual"] | VOCABULARY["roles"][name]).items():
        for node_type in types.split():
            roles[node_type] = roles.get(node_type, 0) | _ROLES[role]
    # A keyword may be spelled like a node type (`string` in Solidity, `class` in JavaScript); only operators are meant.
    return tuple(
        roles.get(language.node_kind_for_id(kind) or "", 0)
        & (-1 if language.node_kind_is_named(kind) else SHORT_CIRCUIT)
        for kind in range(language.node_kind_count)
    )


Span = tuple[int, int]


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
    comments: list[Span] = field(default_factory=list)
    """Comments and documentation strings, in order, not overlapping."""
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
    """Visit every node that means something, parents first; a stranger must not choose how deep we call.

    Tokens mean something only as operators in a binary expression; elsewhere they are not looked at.
    """
    roles, reader = roles_by_kind(parsed.language), _Reader(parsed)
    known, names, source, units, nests = len(roles), reader.found.names, parsed.source, reader.units, reader.nests
    waiting: list[Iterator[Node]] = []
    nodes, parents = iter((parsed.tree.root_node,)), [0]
    while True:
        for node in nodes:
            kind = node.kind_id
            role = roles[kind] if kind < known else 0  # the error kind has no place in the table
            if role == NAME:  # by far the most
                names.add(source[node.start_byte : node.end_byte])
            elif role & ~_AROUND:
                if role & _CONTROL:
                    reader.control(node, role, len(parents), parents[-1])
                reader.count(node, role)
            # Half of the nodes are leaves: to ask for a number is cheaper than to ask for an empty list.
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
class _Reader:
    """One pass; asks a node only about itself and its children, because asking for parents or siblings is not O(1)."""

    parsed: Parsed
    found: Structure = field(default_factory=Structure)
    units: list[tuple[int, Unit]] = field(default_factory=list)
    nests: list[int] = field(default_factory=list)
    """Functions and control blocks around the node that is visited, with their depths."""
    test_attribute_row: int = -9
    documented_row: int = -9
    """Last row of the last comment, carried on over attributes and decorators."""

    def leave(self, depth: int) -> None:
        while self.units and self.units[-1][0] >= depth:
            self.units.pop()
        while self.nests and self.nests[-1] >= depth:
            self.nests.pop()

    def control(self, node: Node, role: int, depth: int, parent: int) -> None:
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
        is_default = pattern is not None and self._text(pattern) == b"_"  # the way on, not one more branch
        if (role & BRANCH and not is_default) or (role & SHORT_CIRCUIT and parent & BINARY):
            unit = self.units[-1][1] if self.units else self.found.outside
            unit.complexity += 1

    def count(self, node: Node, role: int) -> None:
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
        """Declared parameters without the receiver, so that methods of all languages count alike."""
        held = node.child_by_field_name("parameters")
        if held is None:  # Solidity has them directly under the function, arrow functions may have one bare name
            return sum(child.type == "parameter" for child in node.named_children) + (
                node.child_by_field_name("parameter") is not None
            )
        found = 0
        for number, child in enumerate(held.named_children):
            if child.type in _NO_PARAMETER:
                continue
            if number == 0 and child.type == "identifier" and self._text(child) in {b"self", b"cls"}:
                continue
            found += max(1, len(child.children_by_field_name("name"))) if child.type == "parameter_declaration" else 1
        return found

    def _text(self, node: Node) -> bytes:
        # Never `node.text`: it reads through the parser's callback, which gives nothing more once its time is over.
        return self.parsed.source[node.start_byte : node.end_byte]


def _first(node: Node | None) -> Node | None:
    return node.named_child(0) if node is not None and node.named_child_count else None


def _is_docstring(node: Node | None) -> bool:
    if node is None or node.type != "expression_statement" or node.named_child_count != 1:
        return False
    only = _first(node)
    return only is not None and only.type == "string"
