"""Prepare Solidity for the compiler: refuse text that expands too far, write stand-ins."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from clara_eval.core.hashing import sha256_hex
from clara_eval.core.syntax import parse, walk

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_PARTS = 4_096
MOST_COPIES = 256
LARGEST_FUNCTION, LARGEST_TEXT = 10_000, 60_000  # nodes, with modifiers' copies; the compiler takes up to 1 and 8 s
EXPANSION_LIMITS: dict[str, object] = {
    "parts": MOST_PARTS, "copies": MOST_COPIES, "function": LARGEST_FUNCTION, "text": LARGEST_TEXT,
}  # fmt: skip
DEEPEST = 40  # array dimensions that are counted; a type with as many is refused
_CONTAINERS = frozenset({"struct_declaration", "contract_declaration"})
_CONSTANTS = frozenset({"state_variable_declaration", "constant_variable_declaration"})
_FUNCTIONS = frozenset({"function_definition", "constructor_definition", "fallback_receive_definition"})
NAME = "Submission"
MARK = sha256_hex(b"clara-eval: here goes the code of the submission").removeprefix("0x")
"""A value that only the constructor of the stand-in pushes, by which `link` finds its code."""
_PLAIN = re.compile(r"(?:u?int\d*|bytes\d*|address|bool|string)((?:\[\d*\])*)")
_DYNAMIC = frozenset({"bytes", "string"})
AbiPart: TypeAlias = Mapping[str, Any]  # a member of a contract, or an argument, as in the ABI


def expansion_problem(source: str) -> str | None:
    """Return why this text must not reach the compiler; None if it may, or cannot be parsed."""
    parsed = parse(source.encode("utf-8", "replace"), "solidity")
    if parsed is None:
        return None
    nodes = [node for node, _ in walk(parsed.tree)]
    loose: list[int] = [1 << _array_depth(node) for node in nodes if node.type == "type_name"]
    if (parts := max([*_expanded_sizes(nodes), *loose, 0])) > MOST_PARTS:
        return f"Its types, constants or contracts unfold to more than {MOST_PARTS:,} parts ({_about(parts)})."
    functions = list(_function_copies(nodes))
    if (copies := max((times for times, _ in functions), default=1)) > MOST_COPIES:
        return f"Its modifiers repeat a function more than {MOST_COPIES:,} times ({_about(copies)})."
    sizes = [times * size for times, size in functions]
    if (largest := max(sizes, default=0)) > LARGEST_FUNCTION:
        return f"A function of it, with its modifiers, has more than {LARGEST_FUNCTION:,} parts ({_about(largest)})."
    if (total := max(sum(sizes), parsed.tree.root_node.descendant_count)) > LARGEST_TEXT:
        return f"It has, with its modifiers, more than {LARGEST_TEXT:,} parts ({_about(total)})."
    return None


def _about(count: int) -> str:
    return f"{count:,}" if count < 10**12 else "more than a million millions"


def _expanded_sizes(nodes: list[Node]) -> Iterable[int]:
    """Return the expanded size of every name; of several declarations the largest, recursion once."""
    uses: dict[str, list[list[tuple[str, int]]]] = defaultdict(list)
    for node in nodes:
        if (name := _declared_name(node)) is not None:
            uses[name].append(list(_used_names(node)))
    sizes: dict[str, int] = {}
    for name in uses:
        waiting, begun = [name], set(sizes)
        while waiting:
            last = waiting[-1]
            if last not in begun:
                begun.add(last)
                waiting += {one for declared in uses[last] for one, _ in declared if one in uses and one not in begun}
                continue
            waiting.pop()
            if last not in sizes:
                sums = (sum(sizes.get(one, 1) * times for one, times in declared) for declared in uses[last])
                sizes[last] = 1 + max(sums, default=0)
    return sizes.values()


def _declared_name(node: Node) -> str | None:
    is_constant = node.type in _CONSTANTS and any(child.type == "constant" for child in node.children)
    if not is_constant and node.type not in _CONTAINERS:
        return None
    name = next((child for child in node.children if child.type == "identifier"), None)
    return _text(name) if name is not None else None


def _used_names(node: Node) -> Iterator[tuple[str, int]]:
    """Yield the names in a declaration, with counts; each dimension of an array doubles the count."""
    if node.type == "struct_declaration":
        for member in _find_all(node, "struct_member"):
            for kind in (child for child in member.children if child.type == "type_name"):
                names = list(_find_all(kind, "user_defined_type"))
                yield (_text(names[-1]).rpartition(".")[2] if names else "", 2 ** _array_depth(kind))
    elif node.type == "contract_declaration":
        for new in _find_all(node, "new_expression"):
            yield from ((_text(one).rpartition(".")[2], 1) for one in _find_all(new, "user_defined_type"))
    else:
        for value in (child for child in node.children if child.type == "expression"):
            yield from ((_text(one), 1) for one in _find_all(value, "identifier"))


def _array_depth(kind: Node) -> int:
    depth = 0
    while depth < DEEPEST and kind.type == "type_name" and any(child.type == "[" for child in kind.children):
        depth, kind = depth + 1, kind.children[0]
    return depth


def _function_copies(nodes: list[Node]) -> Iterator[tuple[int, int]]:
    """Yield how often its modifiers repeat each function, and its size with them."""
    repeats, bodies = dict[str, int](), dict[str, int]()
    for node in nodes:
        if node.type == "modifier_definition" and (name := node.child_by_field_name("name")) is not None:
            times = sum(_text(one) == "_" for one in _find_all(node, "identifier"))
            repeats[_text(name)] = max(times, repeats.get(_text(name), 1))
            bodies[_text(name)] = max(node.descendant_count, bodies.get(_text(name), 0))
    for node in nodes:
        if node.type in _FUNCTIONS:
            copies, size = 1, node.descendant_count
            for used in (child for child in node.children if child.type == "modifier_invocation"):
                path = [_text(one) for one in _find_all(used, "identifier") if one.parent == used]  # `Base.m(1)` is `m`
                copies *= repeats.get(path[-1] if path else "", 1)
                size += bodies.get(path[-1] if path else "", 0)
            yield copies, size


def _find_all(node: Node, kind: str) -> Iterator[Node]:
    waiting = list(reversed(node.children))
    while waiting:
        one = waiting.pop()
        if one.type == kind:
            yield one
        waiting += reversed(one.children)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def stand_in(abi: Sequence[AbiPart], harness: str) -> str:
    """Write the file that the harness imports; `link` replaces its compiled code."""
    named, types = set(re.findall(r"[A-Za-z_$][\w$]*", harness)) - {NAME}, _Types()
    built: AbiPart = next((one for one in abi if one["type"] == "constructor"), {})
    payable = " payable" if built.get("stateMutability") == "payable" else ""
    given = types.parameters(built.get("inputs", []), "memory") or ""
    parts: list[str | None] = [f"constructor({given}){payable} {{ assembly {{ log1(0, 0, 0x{MARK}) }} }}"]
    for one in abi:
        if one["type"] in {"receive", "fallback"} and one.get("stateMutability") == "payable":
            parts.append(f"{one['type']}() external payable {{}}")
        elif one.get("name") in named and one["type"] in {"function", "error"}:
            parts.append(_member(one, types))
    body = "\n".join([*types.written, *(part for part in parts if part is not None)])
    return f"// SPDX-License-Identifier: MIT\npragma solidity >=0.8.0;\ncontract {NAME} {{\n{body}\n}}\n"


def _member(one: AbiPart, types: _Types) -> str | None:
    """Write a function or an error; None if it has a type that cannot be written."""
    is_error = one["type"] == "error"
    given = types.parameters(one.get("inputs", []), "" if is_error else "calldata")
    if is_error or given is None:
        return f"error {one['name']}({given});" if given is not None else None
    back = types.parameters(one.get("outputs", []), "memory")
    kind = "" if one.get("stateMutability") == "nonpayable" else one.get("stateMutability", "")
    returns = f"returns ({back})" if back else ""
    return f"function {one['name']}({given}) external {kind} {returns} {{}}" if back is not None else None


class _Types:
    """Writes types of an ABI in Solidity; structs are declared inside the stand-in."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self._structs: dict[str, str] = {}

    def parameters(self, found: Sequence[AbiPart], place: str) -> str | None:
        """Write a list of parameters; None if a type cannot be written, for example a function."""
        parts: list[str] = []
        for one in found:
            name = self._type_name(one)
            if name is None:
                return None
            is_reference = one["type"].endswith("]") or one["type"] in _DYNAMIC or one["type"] == "tuple"
            parts.append(f"{name} {place}" if is_reference and place else name)
        return ", ".join(parts)

    def _type_name(self, one: AbiPart) -> str | None:
        kind: str = one["type"]
        if kind.startswith("tuple"):
            struct = self._struct(one)
            return struct and struct + kind.removeprefix("tuple")
        if one.get("internalType") == "address payable":
            return "address payable"
        return kind if _PLAIN.fullmatch(kind) else None

    def _struct(self, one: AbiPart) -> str | None:
        fields = [(self._type_name(field), field["name"]) for field in one.get("components", [])]
        if any(kind is None for kind, _ in fields):
            return None
        body = " ".join(f"{kind} {name};" for kind, name in fields)
        own = re.fullmatch(rf"struct {NAME}\.([\w$]+)[\[\]\d]*", one.get("internalType", ""))
        key = f"{own[1] if own else ''} {body}"
        if key not in self._structs:
            self._structs[key] = own[1] if own else f"Struct{len(self._structs)}_"
            self.written.append(f"struct {self._structs[key]} {{ {body} }}")
        return self._structs[key]


def link(assembly: Mapping[str, object], code: str) -> dict[str, object]:
    """Replace the stand-in's code in the harness's assembly with this creation code."""
    items, data = assembly.get(".code"), assembly.get(".data")
    if isinstance(items, list) and any(
        item.get("name") == "PUSH" and str(item.get("value")).lower() == MARK for item in items
    ):
        return {".code": [{"begin": -1, "end": -1, "name": "VERBATIM", "source": -1, "value": code}]}
    if not isinstance(data, Mapping):
        return dict(assembly)
    parts = {key: link(one, code) if isinstance(one, Mapping) else one for key, one in data.items()}
    return {**assembly, ".data": parts}
