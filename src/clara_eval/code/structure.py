"""Read functions, branches, nesting, comments, names and tests from a syntax tree, by a table for each language."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from clara_eval.code.vocabulary import VOCABULARY, words
from clara_eval.core.syntax import Parsed, load_language

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

# What a node means to the walk, as bits: a node type may have several roles. Plain integers, because the walk asks
# for every node of the tree and flag objects would cost more than the parse.
FUNCTION = 1
CLOSURE = 2
BRANCH = 4  # one more path through the function: +1 cyclomatic complexity
NEST = 8  # a control block: what is inside is one level deeper
COMMENT = 16
STRING = 32
CLASS = 64
IMPORT = 128
NAME = 256
SHORT_CIRCUIT = 512  # `&&`, `||`, `??`: a branch where they stand in a binary expression
CALL = 1024
ATTRIBUTE = 2048  # decorators too
PLAIN_STATEMENT = 4096  # Python's expression statement: with only a string in it, it is documentation


_ROLES = {
    "function": FUNCTION, "closure": CLOSURE, "branch": BRANCH, "nest": NEST, "comment": COMMENT, "string": STRING,
    "class": CLASS, "import": IMPORT, "name": NAME, "short_circuit": SHORT_CIRCUIT, "call": CALL,
    "attribute": ATTRIBUTE, "plain_statement": PLAIN_STATEMENT,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grammar:
    language: str
    """Its name in the vocabulary's table of roles."""
    binders: frozenset[str] = frozenset()
    """A closure directly under one of these has a name and counts as a function."""
    test_prefixes: tuple[str, ...] = ()
    test_calls: frozenset[str] = frozenset()


_SCRIPT = Grammar(
    "javascript",
    binders=words("variable_declarator pair assignment_expression field_definition public_field_definition"),
    test_calls=words("it test"),
)
GRAMMARS = {
    "python": Grammar("python", test_prefixes=("test_",)),
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "tsx": _SCRIPT,
    "solidity": Grammar("solidity", test_prefixes=("test", "invariant")),
    "rust": Grammar("rust"),
    "go": Grammar("go", test_prefixes=("Test", "Fuzz")),
}
"""`tsx` is how TypeScript with markup is parsed; callers say `typescript`."""


@cache
def kinds_named(name: str, types: frozenset[str]) -> frozenset[int]:
    language = load_language(name)
    return frozenset(kind for kind in range(language.node_kind_count) if language.node_kind_for_id(kind) in types)


@cache
def roles_by_kind(name: str) -> tuple[int, ...]:
    """Role of each node kind, by the parser's kind number."""
    language, roles = load_language(name), dict[str, int]()
    for role, types in (VOCABULARY["roles"]["usual"] | VOCABULARY["roles"][GRAMMARS[name].language]).items():
        for node_type in types.split():
            roles[node_type] = roles.get(node_type, 0) | _ROLES[role]
    # A keyword may be spelled like a node type (`string` in Solidity, `class` in JavaScript); only operators are meant.
    return tuple(
        roles.get(language.node_kind_for_id(kind) or "", 0)
        & (-1 if language.node_kind_is_named(kind) else SHORT_CIRCUIT)
        for kind in range(language.node_kind_count)
    )


Span = tuple[int, int]
_BINARY = frozenset({"binary_expression"})
_NO_PARAMETER = frozenset({"comment", "line_comment", "block_comment", "keyword_separator", "positional_separator"})
_CONTROL = FUNCTION | CLOSURE | NEST | BRANCH | SHORT_CIRCUIT


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
    grammar, name = GRAMMARS[parsed.language], parsed.language
    binders, binary = kinds_named(name, grammar.binders), kinds_named(name, _BINARY)
    roles = roles_by_kind(name)
    reader, known = _Reader(parsed, grammar, roles, binders, binary), len(roles)
    names, source, units, nests = reader.found.names, parsed.source, reader.units, reader.nests
    waiting: list[Iterator[Node]] = []
    nodes, parents = iter((parsed.tree.root_node,)), [-1]
    while True:
        for node in nodes:
            kind = node.kind_id
            role = roles[kind] if kind < known else 0  # the error kind has no place in the table
            if role == NAME:  # by far the most
                names.add(source[node.start_byte : node.end_byte])
            elif role:
                reader.look_at(node, role, len(parents), parents[-1])
            # Half of the nodes are leaves: to ask for a number is cheaper than to ask for an empty list.
            if node.child_count and (inner := node.children if kind in binary else node.named_children):
                waiting.append(nodes)
                parents.append(kind)
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
    grammar: Grammar
    roles: tuple[int, ...]
    binders: frozenset[int]
    binary: frozenset[int]
    found: Structure = field(default_factory=Structure)
    units: list[tuple[int, Unit]] = field(default_factory=list)
    nests: list[int] = field(default_factory=list)
    """Functions and control blocks around the node that is visited, with their depths."""
    test_attribute_row: int = -9
    documented_row: int = -9
    """Last row of the last comment, carried on over attributes and decorators."""

    def look_at(self, node: Node, role: int, depth: int, parent: int) -> None:
        if role & _CONTROL:
            self.control(node, role, depth, parent)
        if role & ~_CONTROL:
            self.count(node, role)

    def leave(self, depth: int) -> None:
        while self.units and self.units[-1][0] >= depth:
            self.units.pop()
        while self.nests and self.nests[-1] >= depth:
            self.nests.pop()

    def control(self, node: Node, role: int, depth: int, parent: int) -> None:
        self.leave(depth)
        if role & FUNCTION or (role & CLOSURE and parent in self.binders):
            row = node.start_point[0]
            opened = Unit(
                parameters=self._parameters(node),
                lines=node.end_point[0] - row + 1,
                documented=row - self.documented_row <= 1 or _has_docstring(node),
            )
            self.units.append((depth, opened))
            self.found.functions.append(opened)
            named = node.child_by_field_name("name")
            name = self._text(named).decode("utf-8", "replace") if named is not None else ""
            by_name = bool(self.grammar.test_prefixes) and name.startswith(self.grammar.test_prefixes)
            self.found.tests += by_name or row - self.test_attribute_row <= 2
            self.test_attribute_row = self.documented_row = -9
        if role & NEST and not self._follows_else(node):
            self.nests.append(depth)
            self.found.max_nesting = max(self.found.max_nesting, len(self.nests))
        if (role & BRANCH and not self._is_default(node)) or (role & SHORT_CIRCUIT and parent in self.binary):
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
        if role & CALL:
            found.tests += self._is_test_call(node)
        if role & ATTRIBUTE:
            if node.start_point[0] - self.documented_row <= 1:
                self.documented_row = node.end_point[0]
            if self._text(node).strip(b"#[] ").rpartition(b"::")[2] == b"test":
                self.test_attribute_row = node.end_point[0]
        if role & COMMENT or (role & PLAIN_STATEMENT and _is_docstring(node)):
            found.comments.append((node.start_byte, node.end_byte))
            self.documented_row = node.end_point[0]

    def _is_test_call(self, node: Node) -> bool:
        called = node.child_by_field_name("function")
        if called is None or called.end_byte - called.start_byte > 16:
            return False
        return self._text(called).partition(b".")[0].decode("utf-8", "replace") in self.grammar.test_calls

    def _follows_else(self, node: Node) -> bool:
        before = self.parsed.source[max(0, node.start_byte - 32) : node.start_byte].rstrip()
        return before.endswith(b"else") and node.type.startswith("if")

    def _parameters(self, node: Node) -> int:
        """Declared parameters without the receiver, so that methods of all languages count alike."""
        held = node.child_by_field_name("parameters")
        if held is None:  # Solidity has them directly under the function, arrow functions may have one bare name
            return sum(child.type == "parameter" for child in node.named_children) + (
                node.child_by_field_name("parameter") is not None
            )
        found = 0
        for number, child in enumerate(held.named_children):
            if child.type in _NO_PARAMETER or child.type == "self_parameter":
                continue
            if number == 0 and child.type == "identifier" and self._text(child) in {b"self", b"cls"}:
                continue
            found += max(1, len(child.children_by_field_name("name"))) if child.type == "parameter_declaration" else 1
        return found

    def _is_default(self, node: Node) -> bool:
        """`_ =>` and `case _:` are the way on, not one more branch."""
        if node.type not in {"match_arm", "case_clause"}:
            return False
        pattern = _first(node)
        return pattern is not None and self._text(pattern) == b"_"

    def _text(self, node: Node) -> bytes:
        # Never `node.text`: it reads through the parser's callback, which gives nothing more once its time is over.
        return self.parsed.source[node.start_byte : node.end_byte]


def _first(node: Node) -> Node | None:
    return node.named_child(0) if node.named_child_count else None


def _is_docstring(node: Node) -> bool:
    if node.type != "expression_statement" or node.named_child_count != 1:
        return False
    only = _first(node)
    return only is not None and only.type == "string"


def _has_docstring(node: Node) -> bool:
    body = node.child_by_field_name("body")
    first = _first(body) if body is not None else None
    return first is not None and _is_docstring(first)
