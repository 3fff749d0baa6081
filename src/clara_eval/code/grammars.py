"""Name the node types of each language that are functions, branches, blocks, comments and strings.

Invariant: a language that is not here is not measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from clara_eval.core.syntax import load_language

if TYPE_CHECKING:
    from tree_sitter import Language


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


@dataclass(frozen=True, slots=True)
class Grammar:
    functions: str
    branches: str
    nests: str
    comments: str = "comment"
    strings: str = "string"
    closures: str = ""
    classes: str = ""
    imports: str = ""
    names: str = "identifier"
    binders: frozenset[str] = frozenset()
    """A closure directly under one of these has a name and counts as a function."""
    test_prefixes: tuple[str, ...] = ()
    test_calls: frozenset[str] = frozenset()
    attributes: str = ""
    plain_statements: str = ""
    short_circuits: str = "&& || ??"
    calls: str = ""
    roles: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        words = (
            (self.functions, FUNCTION),
            (self.closures, CLOSURE),
            (self.branches, BRANCH),
            (self.nests, NEST),
            (self.comments, COMMENT),
            (self.strings, STRING),
            (self.classes, CLASS),
            (self.imports, IMPORT),
            (self.names, NAME),
            (self.short_circuits, SHORT_CIRCUIT),
            (self.calls, CALL),
            (self.attributes, ATTRIBUTE),
            (self.plain_statements, PLAIN_STATEMENT),
        )
        for names, role in words:
            for name in names.split():
                self.roles[name] = self.roles.get(name, 0) | role


_PYTHON = Grammar(
    functions="function_definition",
    closures="lambda",
    branches="if_statement elif_clause for_statement while_statement except_clause conditional_expression "
    "boolean_operator case_clause if_clause for_in_clause",
    nests="if_statement for_statement while_statement try_statement with_statement match_statement",
    classes="class_definition",
    imports="import_statement import_from_statement future_import_statement",
    test_prefixes=("test_",),
    plain_statements="expression_statement",
    attributes="decorator",
    short_circuits="",
)
_SCRIPT_LOOPS = "for_statement for_in_statement while_statement do_statement"
_SCRIPT_BRANCHES = f"if_statement {_SCRIPT_LOOPS} catch_clause ternary_expression switch_case"
_SCRIPT_NESTS = f"if_statement {_SCRIPT_LOOPS} try_statement switch_statement with_statement"
_SCRIPT_NAMES = (
    "identifier property_identifier private_property_identifier shorthand_property_identifier "
    "shorthand_property_identifier_pattern type_identifier"
)
_SCRIPT = Grammar(
    functions="function_declaration generator_function_declaration method_definition",
    closures="arrow_function function_expression generator_function",
    branches=_SCRIPT_BRANCHES,
    nests=_SCRIPT_NESTS,
    comments="comment html_comment",
    strings="string template_string regex",
    classes="class_declaration class abstract_class_declaration interface_declaration",
    imports="import_statement",
    names=_SCRIPT_NAMES,
    binders=frozenset(
        {"variable_declarator", "pair", "assignment_expression", "field_definition", "public_field_definition"}
    ),
    test_calls=frozenset({"it", "test"}),
    calls="call_expression",
)
_SOLIDITY = Grammar(
    functions="function_definition constructor_definition modifier_definition fallback_receive_definition "
    "yul_function_definition",
    branches="if_statement for_statement while_statement do_while_statement catch_clause ternary_expression "
    "yul_if_statement yul_for_statement yul_switch_statement",
    nests="if_statement for_statement while_statement do_while_statement try_statement yul_if_statement "
    "yul_for_statement yul_switch_statement",
    strings="string string_literal hex_string_literal unicode_string_literal yul_string_literal",
    classes="contract_declaration interface_declaration library_declaration",
    imports="import_directive",
    test_prefixes=("test", "invariant"),
)
_RUST = Grammar(
    functions="function_item",
    closures="closure_expression",
    branches="if_expression for_expression while_expression loop_expression match_arm try_expression",
    nests="if_expression for_expression while_expression loop_expression match_expression",
    comments="line_comment block_comment",
    strings="string_literal raw_string_literal char_literal",
    classes="struct_item enum_item trait_item",
    imports="use_declaration extern_crate_declaration",
    names="identifier field_identifier type_identifier shorthand_field_identifier",
    attributes="attribute_item",
)
_GO = Grammar(
    functions="function_declaration method_declaration",
    closures="func_literal",
    branches="if_statement for_statement expression_case type_case communication_case",
    nests="if_statement for_statement expression_switch_statement type_switch_statement select_statement",
    strings="interpreted_string_literal raw_string_literal rune_literal",
    classes="struct_type interface_type",
    imports="import_spec",
    names="identifier field_identifier type_identifier package_identifier",
    test_prefixes=("Test", "Fuzz"),
)

GRAMMARS: dict[str, Grammar] = {
    "python": _PYTHON,
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "tsx": _SCRIPT,
    "solidity": _SOLIDITY,
    "rust": _RUST,
    "go": _GO,
}
"""`tsx` is how TypeScript with markup is parsed; callers say `typescript`."""


@cache
def kinds_named(name: str, types: frozenset[str]) -> frozenset[int]:
    """The parser's kind numbers of these node types."""
    language = load_language(name)
    return frozenset(kind for kind in range(language.node_kind_count) if language.node_kind_for_id(kind) in types)


@cache
def roles_by_kind(name: str) -> tuple[int, ...]:
    """Role of each node kind, by the parser's kind number."""
    language, roles = load_language(name), GRAMMARS[name].roles
    return tuple(_role(language, roles, kind) for kind in range(language.node_kind_count))


def _role(language: Language, roles: dict[str, int], kind: int) -> int:
    role = roles.get(language.node_kind_for_id(kind) or "", 0)
    # A keyword may be spelled like a node type (`string` in Solidity, `class` in JavaScript); only operators are meant.
    return role if language.node_kind_is_named(kind) else role & SHORT_CIRCUIT
