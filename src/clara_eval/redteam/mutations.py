"""Disguise a copied program in thirty named ways, by edits of its syntax tree."""

from __future__ import annotations

import builtins
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tree_sitter import Node

from clara_eval.code import read_code
from clara_eval.core.syntax import Edit, Parsed, edited, parse, walk
from clara_eval.redteam.translation import junk_function, noop, python_to_javascript, typed_javascript

FRONT_BYTES = 40_000


def _split(words: str) -> frozenset[str]:
    return frozenset(words.split())


_BUILTINS = frozenset(dir(builtins)) | _split(
    """self cls this super arguments Math Object Array String Number Boolean JSON Promise Map Set Symbol Error TypeError
    RangeError console require module exports process Buffer undefined NaN Infinity window document globalThis msg
    sender value data block timestamp number tx origin abi encode encodePacked keccak256 address uint256 length push
    pop call require assert revert transfer balance type interfaceId selector now gasleft"""
)
_DEFINITIONS = _split(
    "function_definition class_definition decorated_definition function_declaration class_declaration "
    "method_definition function_item impl_item struct_item method_declaration modifier_definition event_definition "
    "error_declaration struct_declaration contract_declaration library_declaration interface_declaration "
    "constructor_definition"
)
_BODIES = _split("block class_body contract_body declaration_list")
_STATEMENT_BLOCKS = _split("block statement_block function_body statement_list")
_FLIPS = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!=", "===": "===", "!==": "!=="}
_BINARY = _split("binary_operator binary_expression boolean_operator comparison_operator")
_SWAPS = _split("+ * == != === !== and or && ||")
_HOLDERS = _split("argument_list arguments assignment return_statement variable_declarator pair assignment_expression")
_WORDS = sorted(_split("the fee pool price value of a market that moves when traders come and go with orders in time"))


@dataclass(frozen=True, slots=True)
class Program:
    text: str
    language: str
    other: str = ""  # Another program in this language, from which code may be added


Way = Callable[[Program, random.Random], str | None]


def _parse(program: Program) -> Parsed | None:
    return parse(program.text.encode("utf-8", "replace"), program.language)


def _text(parsed: Parsed, node: Node) -> str:
    return parsed.source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _indent(parsed: Parsed, node: Node) -> tuple[int, str]:
    """Return the start of a node's line, and the text in it before the node."""
    start = parsed.source.rfind(b"\n", 0, node.start_byte) + 1
    return start, parsed.source[start : node.start_byte].decode("utf-8", "replace")


def _edit_nodes(program: Program, edits: Callable[[Parsed, Node], Iterator[Edit]]) -> str | None:
    parsed = _parse(program)
    if parsed is None:
        return None
    return edited(parsed.source, [edit for node, _ in walk(parsed.tree) for edit in edits(parsed, node)])


def _each_node(edits: Callable[[Parsed, Node], Iterator[Edit]]) -> Way:
    return lambda program, _: _edit_nodes(program, edits)


def _comment(program: Program, text: str) -> str:
    mark = "#" if program.language == "python" else "//"
    return "".join(f"{mark} {line}\n" for line in text.split("\n"))


def whitespace(program: Program, rng: random.Random) -> str:
    lines = []
    for line in program.text.split("\n"):
        bare = line.lstrip(" ")
        indent = len(line) - len(bare)
        width = indent * 2 if program.language == "python" else rng.choice((0, indent, indent * 2))
        lines.append(" " * width + bare + " " * rng.randrange(3))
        if not bare.endswith("\\") and rng.random() < 0.2:
            lines.append("")
    return "\n".join(lines)


def comments_removed(program: Program, _: random.Random) -> str | None:
    source = program.text.encode("utf-8", "replace")
    code = read_code(source, program.language)
    return edited(source, [(start, end, "") for start, end in code.structure.comments]) if code else None


def comments_added(program: Program, rng: random.Random) -> str | None:
    return _before_statements(program, lambda indent: indent + _comment(program, _random_words(rng, 8)), rng, 0.5)


def comment_in_front(program: Program, rng: random.Random) -> str:
    lines = "\n".join(_random_words(rng, 14) for _ in range(FRONT_BYTES // 80))
    return _comment(program, lines) + program.text


def foreign_comment_in_front(program: Program, _: random.Random) -> str:
    """Put 40 kB of another language first, to mislead detection of the language by the first bytes."""
    line = "def price(x):\n    return x + 1" if program.language != "python" else "function price(x) { return x + 1; }"
    return _comment(program, "\n".join([line] * (FRONT_BYTES // len(line)))) + program.text


def rename(program: Program, rng: random.Random) -> str | None:
    return _rename_all(program, lambda name: f"{rng.choice('abcdefgh')}{rng.randrange(10**6)}_{len(name)}")


def homoglyphs(program: Program, _: random.Random) -> str | None:
    """Replace letters in names by lookalikes, and add invisible characters."""
    changed = _rename_all(program, lambda name: name.translate(str.maketrans("aeopcx", "аеорсх")))
    return changed and changed.replace("\n\n", "\n\u200b\n")


def _rename_all(program: Program, new: Callable[[str], str]) -> str | None:
    names: dict[str, str] = {}

    def edits(parsed: Parsed, node: Node) -> Iterator[Edit]:
        if node.is_named and "identifier" in node.type and not node.named_child_count:
            name = _text(parsed, node)
            if name not in _BUILTINS and not name.startswith("__"):
                yield node.start_byte, node.end_byte, names.setdefault(name, new(name))

    return _edit_nodes(program, edits)


def reorder(program: Program, rng: random.Random) -> str | None:
    """Shuffle the methods of innermost classes, then the definitions of the file."""
    parsed = _parse(program)
    if parsed is None:
        return None
    bodies = [node for node, _ in walk(parsed.tree) if node.type in _BODIES and _definitions(node)]
    inside = [
        edit
        for body in bodies
        if not any(body.start_byte < other.start_byte and other.end_byte < body.end_byte for other in bodies)
        for edit in _shuffle(parsed, body, rng)
    ]
    again = _parse(replace(program, text=edited(parsed.source, inside)))
    return None if again is None else edited(again.source, _shuffle(again, again.tree.root_node, rng))


def _definitions(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type in _DEFINITIONS]


def _shuffle(parsed: Parsed, container: Node, rng: random.Random) -> list[Edit]:
    places = _definitions(container)
    moved = rng.sample(places, len(places))
    return [(place.start_byte, place.end_byte, _text(parsed, node)) for place, node in zip(places, moved, strict=True)]


def junk(share: float) -> Way:
    def added(program: Program, rng: random.Random) -> str:
        made: list[str] = []
        while sum(map(len, made)) < share * len(program.text):
            made.append(junk_function(program.language, rng))
        return program.text + "\n\n" + "\n\n".join(made)

    return added


def foreign_junk(program: Program, _: random.Random) -> str | None:
    """Append code of another program, half as long as this one."""
    part = program.other[: len(program.text) // 2].rpartition("\n")[0]
    return program.text + "\n\n" + part + "\n" if part else None


def noops(program: Program, rng: random.Random) -> str | None:
    """Insert statements without effect before half of the statements."""
    return _before_statements(program, lambda indent: indent + noop(program.language, indent, rng) + "\n", rng, 0.5)


def _before_statements(program: Program, line: Callable[[str], str], rng: random.Random, share: float) -> str | None:
    def edits(parsed: Parsed, node: Node) -> Iterator[Edit]:
        if node.type in _STATEMENT_BLOCKS and node.parent is not None:
            for child in node.named_children:
                start, indent = _indent(parsed, child)
                if not indent.strip() and child.type != "comment" and rng.random() < share:
                    yield start, start, line(indent)

    return _edit_nodes(program, edits)


def restyle(program: Program, _: random.Random) -> str | None:
    """Flip comparisons, expand augmented assignments, add parentheses, change quotes and braces."""
    text = _edit_nodes(program, _restyle_node)
    return text if text is None or program.language == "python" else re.sub(r"\)[ \t]*\{\n", ")\n{\n", text)


def _restyle_node(parsed: Parsed, node: Node) -> Iterator[Edit]:
    parts = [_text(parsed, one) for one in node.children]
    span = (node.start_byte, node.end_byte)
    if node.type in ("comparison_operator", "binary_expression") and len(parts) == 3 and parts[1] in _FLIPS:
        yield (*span, f"{parts[2]} {_FLIPS[parts[1]]} {parts[0]}")
    elif "augmented_assignment" in node.type and len(parts) == 3:
        yield (*span, f"{parts[0]} = {parts[0]} {parts[1][:-1]} ({parts[2]})")
    elif node.type == "return_statement" and len(parts) > 1 and "\n" not in parts[1]:
        yield node.children[1].start_byte, node.children[1].end_byte, f"({parts[1]})"
    elif node.type == "string" and node.end_byte - node.start_byte > 2:
        text = _text(parsed, node)
        if text[0] == "'" and text[1] != "'" and '"' not in text and "\\" not in text:
            yield (*span, f'"{text[1:-1]}"')


@_each_node
def operands_swapped(parsed: Parsed, node: Node) -> Iterator[Edit]:
    """Swap the operands of sums, products and conditions."""
    parts = [_text(parsed, one) for one in node.children]
    if node.type in _BINARY and len(parts) == 3 and parts[1] in _SWAPS and "\n" not in "".join(parts):
        yield node.start_byte, node.end_byte, f"{parts[2]} {parts[1]} {parts[0]}"


@_each_node
def strings_split(parsed: Parsed, node: Node) -> Iterator[Edit]:
    """Split strings into a concatenation of two, which Solidity does not have."""
    text = _text(parsed, node) if node.type == "string" and parsed.language != "solidity" else ""
    first, space, rest = text.partition(" ")
    plain = len(text) > 8 and text[0] in "\"'" and text[1] != text[0] and "\\" not in text
    if plain and space and node.parent is not None and node.parent.type in _HOLDERS:
        yield node.start_byte, node.end_byte, f"({first} {text[0]} + {text[0]}{rest})"


def dead_branches(program: Program, rng: random.Random) -> str | None:
    """Insert a branch that is never taken before a quarter of the statements."""

    def line(indent: str) -> str:
        name, x, y = f"d{rng.randrange(10**5)}", rng.randrange(2, 999), rng.randrange(2, 999)
        if program.language == "python":
            return f"{indent}if {x} > {x + y}:\n{indent}    {name} = print({x} * {y}, {x})\n"
        declared = "uint256 " if program.language == "solidity" else "let "
        return f"{indent}if ({x} > {x + y}) {{ {declared}{name} = ({x} * {y} + {x}) % {y}; }}\n"

    return _before_statements(program, line, rng, 0.25)


def extracted(program: Program, rng: random.Random) -> str | None:
    """Move a third of the return values into functions of their own."""
    made: list[str] = []

    def edits(parsed: Parsed, node: Node) -> Iterator[Edit]:
        if node.type != "return_statement" or node.named_child_count != 1 or rng.random() > 1 / 3:
            return
        value, name = node.named_children[0], f"part_{len(made)}"
        text = _text(parsed, value)
        if any(word in text for word in ("\n", "this", "await", "yield")):
            return
        passed = ", ".join(sorted({word for word in re.findall(r"\b[A-Za-z_]\w*\b", text) if word not in _BUILTINS}))
        if program.language == "python":
            made.append(f"def {name}({passed}):\n    return {text}\n")
        else:
            made.append(f"function {name}({passed}) {{\n  return {text};\n}}\n")
        yield value.start_byte, value.end_byte, f"{name}({passed})"

    text = None if program.language == "solidity" else _edit_nodes(program, edits)
    return None if text is None else text + "\n\n" + "\n\n".join(made)


@_each_node
def nested_else(parsed: Parsed, node: Node) -> Iterator[Edit]:
    """Write `else if` as an `else` with a nested `if`."""
    first = next((child for child in node.named_children if child.type == "elif_clause"), None)
    if first is not None:
        rest = parsed.source[first.start_byte + len("el") : node.end_byte].decode("utf-8", "replace")
        deeper = rest.replace("\n", "\n    ")
        yield first.start_byte, node.end_byte, f"else:\n{_indent(parsed, first)[1]}    {deeper}"
    inner = node.named_children[-1] if node.type == "else_clause" and node.named_child_count else None
    if inner is not None and inner.type == "if_statement":
        yield inner.start_byte, inner.start_byte, "{ "
        yield inner.end_byte, inner.end_byte, " }"


@_each_node
def loops_restyled(parsed: Parsed, node: Node) -> Iterator[Edit]:
    """Move loop conditions into the bodies, and copy what is iterated over."""
    is_python = parsed.language == "python"
    if not is_python and parsed.language not in ("javascript", "typescript", "tsx"):
        return
    condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    iterated = node.child_by_field_name("right")
    if node.type == "for_statement" and iterated is not None and is_python:
        yield iterated.start_byte, iterated.end_byte, f"list({_text(parsed, iterated)})"
    elif node.type == "for_in_statement" and iterated is not None and " of " in _text(parsed, node)[:200]:
        yield iterated.start_byte, iterated.end_byte, f"[...{_text(parsed, iterated)}]"
    if node.type != "while_statement" or condition is None or body is None:
        return
    text = _text(parsed, condition)
    if is_python:
        start, indent = _indent(parsed, body)
        if not indent.strip() and "\n" not in text:
            yield condition.start_byte, condition.end_byte, "True"
            yield start, start, f"{indent}if not ({text}):\n{indent}    break\n"
    elif body.type == "statement_block":
        yield condition.start_byte, condition.end_byte, "(true)"
        yield body.start_byte + 1, body.start_byte + 1, f" if (!{text}) {{ break; }}"


def interface_changed(program: Program, rng: random.Random) -> str | None:
    """Add an unused parameter to every function, and change visibility in Solidity."""
    is_solidity = program.language == "solidity"

    def edits(parsed: Parsed, node: Node) -> Iterator[Edit]:
        opening = next((child for child in node.children if child.type == "("), None)
        if node.type == "function_definition" and is_solidity and opening is not None:
            more = "" if _text(parsed, opening.next_sibling or opening) == ")" else ", "
            yield opening.end_byte, opening.end_byte, f"uint256 extra{rng.randrange(99)}{more}"
        if node.type in ("parameters", "formal_parameters"):
            last = node.children[-1]
            if last.type == ")" and not any(_text(parsed, child).startswith(("*", "...")) for child in node.children):
                comma = ", " if node.named_child_count else ""
                default = "=None" if program.language == "python" else ""
                yield last.start_byte, last.start_byte, f"{comma}extra{rng.randrange(99)}{default}"

    text = _edit_nodes(program, edits)
    return text.replace(" public ", " external ") if text and is_solidity else text


def truncated(program: Program, _: random.Random) -> str | None:
    """Remove the last definitions, up to a sixth of the text."""
    parsed = _parse(program)
    if parsed is None:
        return None
    places = _definitions(parsed.tree.root_node)
    inner = [child for place in places for body in place.children for child in _definitions(body)]
    edits: list[Edit] = []
    left = len(parsed.source) // 6
    for child in sorted({*places, *inner}, key=lambda one: one.start_byte, reverse=True):
        if child.end_byte - child.start_byte <= left:
            left -= child.end_byte - child.start_byte
            edits.append((child.start_byte, child.end_byte, ""))
    return edited(parsed.source, edits)


def wrapped(program: Program, _: random.Random) -> str | None:
    inside = "".join(f"    {line}\n" for line in program.text.split("\n"))
    if program.language == "python":
        return f"if True:\n{inside}"
    return f"{{\n{inside}}}\n" if program.language != "solidity" else None


def strings_changed(program: Program, rng: random.Random) -> str | None:
    source = program.text.encode("utf-8", "replace")
    code = read_code(source, program.language)
    if code is None:
        return None
    spans = [(start, end) for start, end in code.structure.strings if b" " in source[start:end]]
    return edited(source, [(start, end, f'"{_random_words(rng, 4)}"') for start, end in spans])


def joined(program: Program, _: random.Random) -> str | None:
    part = program.other[: len(program.text)].rpartition("\n")[0]
    return part + "\n\n" + program.text if part else None


def translated(program: Program, _: random.Random) -> str | None:
    if program.language == "python":
        return python_to_javascript(program.text)
    return typed_javascript(program.text) if program.language == "javascript" else None


def _random_words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(_WORDS, k=count))


def _chain(*ways: Way) -> Way:
    def chained(program: Program, rng: random.Random) -> str | None:
        for way in ways:
            text = way(program, rng)
            if text is None:
                return None
            program = replace(program, text=text)
        return program.text

    return chained


WAYS: dict[str, Way] = {
    "exact": lambda program, _: program.text,
    "whitespace": whitespace,
    "comments_removed": comments_removed,
    "comments_added": comments_added,
    "comment_in_front_40kB": comment_in_front,
    "foreign_comment_in_front_40kB": foreign_comment_in_front,
    "rename": rename,
    "reorder": reorder,
    "rename_reorder": _chain(rename, reorder),
    "junk_25": junk(0.25),
    "junk_50": junk(0.5),
    "foreign_junk_50": foreign_junk,
    "rename_junk_50": _chain(rename, junk(0.5)),
    "noops": noops,
    "restyle": restyle,
    "rename_reorder_noops": _chain(rename, reorder, noops),
    "truncated": truncated,
    "homoglyphs": homoglyphs,
    "wrapped": wrapped,
    "strings_changed": strings_changed,
    "joined": joined,
    "operands_swapped": operands_swapped,
    "strings_split": strings_split,
    "dead_branches": dead_branches,
    "extracted": extracted,
    "nested_else": nested_else,
    "loops_restyled": loops_restyled,
    "interface_changed": interface_changed,
    "rename_extracted_dead_branches": _chain(rename, extracted, dead_branches),
    "translated": translated,
}
_EASY = _split(
    "exact whitespace comments_removed comments_added comment_in_front_40kB foreign_comment_in_front_40kB rename "
    "reorder rename_reorder junk_25 junk_50"
)
AT_LEAST = {way: 0.95 if way in _EASY else 0.80 for way in WAYS} | {"translated": 0.5}
"""The share of each disguise that must be detected."""


def disguise(program: Program, way: str, seed: int = 0) -> str | None:
    """Disguise a program; None if the disguise does not fit its language or changes nothing."""
    text = WAYS[way](program, random.Random(f"{way}:{seed}:{len(program.text)}"))  # noqa: S311 - no secret
    return None if text == program.text and way != "exact" else text
