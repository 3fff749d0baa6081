"""Empty every function of a source, or let it return one cheap answer: a submission without work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clara_eval.core.syntax import Edit, edited, parse, walk
from clara_eval.harness import Language

if TYPE_CHECKING:
    from tree_sitter import Node

_FUNCTIONS: dict[Language, frozenset[str]] = {
    "solidity": frozenset({"function_definition", "modifier_definition", "fallback_receive_definition"}),
    "javascript": frozenset(
        {
            *("arrow_function", "function_expression", "function_declaration", "method_definition"),
            *("generator_function", "generator_function_declaration"),
        }
    ),
    "python": frozenset({"function_definition", "lambda"}),
}
NOTHING = ""
ANSWERS: dict[Language, dict[str, str]] = {
    "solidity": {"are all empty": NOTHING},
    "javascript": {
        "are all empty": NOTHING,
        "all give true": "true",
        "all give 0": "0",
        "all give []": "[]",
        "all give an object that agrees with everything": "new Proxy(function () {}, { get: () => () => true })",
    },
    "python": {
        "are all empty": NOTHING,
        "all give True": "True",
        "all give 0": "0",
        "all give []": "[]",
        "all give an object that agrees with everything": (
            "type('Yes', (), {'__contains__': lambda *_: True, '__eq__': lambda *_: True, '__len__': lambda _: 1, "
            "'__getattr__': lambda *_: lambda *_: True})()"
        ),
        "all end an iteration": "next(iter(()))",
    },
}
"""What a submission without work answers, by words for people: nothing, or an expression."""
_BUILDERS = frozenset({b"constructor", b"__init__", b"__new__"})


def hollow(source: str, language: Language, answer: str = NOTHING) -> str | None:
    parsed = parse(source.encode("utf-8", "replace"), language)
    if parsed is None or parsed.errors:
        return None
    functions = (node for node, _ in walk(parsed.tree) if node.type in _FUNCTIONS[language])
    edits = [edit for node in functions if (edit := _emptied(node, language, answer)) is not None]
    return edited(parsed.source, edits)


def _emptied(function: Node, language: Language, answer: str) -> Edit | None:
    body, name = function.child_by_field_name("body"), function.child_by_field_name("name")
    if body is None or (name is not None and name.text in _BUILDERS):
        return None
    return body.start_byte, body.end_byte, _body(function, body, language, answer)


def _body(function: Node, body: Node, language: Language, answer: str) -> str:
    if language == "python":
        return (answer or "None") if function.type == "lambda" else f"return {answer}"
    if function.type == "modifier_definition":
        return "{ _; }"
    if body.type not in {"function_body", "statement_block"}:
        return f"({answer or 'undefined'})"
    return f"{{ return {answer}; }}" if answer else "{}"
