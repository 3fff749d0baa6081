"""Refuse Solidity whose types, constants, contracts or modifiers unfold to more than a bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from clara_eval.core.syntax import parse, walk

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_PARTS = 4_096
MOST_COPIES = 256
DEEPEST = 40
"""No array is looked into further: what has so many dimensions is refused."""
_CONTAINERS = frozenset({"struct_declaration", "contract_declaration"})
_CONSTANTS = frozenset({"state_variable_declaration", "constant_variable_declaration"})
_FUNCTIONS = frozenset({"function_definition", "constructor_definition", "fallback_receive_definition"})


def too_much(source: str) -> str | None:
    """Why this text must not reach the compiler; None if it may. What cannot be parsed has no shape."""
    parsed = parse(source.encode("utf-8", "replace"), "solidity")
    if parsed is None:
        return None
    nodes = [node for node, _ in walk(parsed.tree)]
    if (parts := _largest(nodes)) > MOST_PARTS:
        return f"Its types, constants or contracts unfold to more than {MOST_PARTS:,} parts ({_about(parts)})."
    if (copies := _most_copied(nodes)) > MOST_COPIES:
        return f"Its modifiers repeat a function more than {MOST_COPIES:,} times ({_about(copies)})."
    return None


def _about(count: int) -> str:
    return f"{count:,}" if count < 10**12 else "more than a million millions"


def _largest(nodes: list[Node]) -> int:
    uses: dict[str, list[list[tuple[str, int]]]] = defaultdict(list)
    for node in nodes:
        if (name := _declared(node)) is not None:
            uses[name].append(list(_used(node)))
    sizes: dict[str, int] = {}
    for name in uses:
        _size(name, uses, sizes)
    loose: list[int] = [1 << _array_depth(node) for node in nodes if node.type == "type_name"]
    return max([*sizes.values(), *loose, 0])


def _size(name: str, uses: dict[str, list[list[tuple[str, int]]]], sizes: dict[str, int]) -> None:
    """Note the unfolded size of a name: of several declarations the largest; a name inside itself counts once."""
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


def _declared(node: Node) -> str | None:
    is_constant = node.type in _CONSTANTS and any(child.type == "constant" for child in node.children)
    if not is_constant and node.type not in _CONTAINERS:
        return None
    name = next((child for child in node.children if child.type == "identifier"), None)
    return _text(name) if name is not None else None


def _used(node: Node) -> Iterator[tuple[str, int]]:
    """Names that a declaration holds, and how often: an array's element counts twice for each dimension."""
    if node.type == "struct_declaration":
        for member in _below(node, "struct_member"):
            kinds = [child for child in member.children if child.type == "type_name"]
            for kind in kinds:
                names = list(_below(kind, "user_defined_type"))
                yield (_text(names[-1]).rpartition(".")[2] if names else "", 2 ** _array_depth(kind))
    elif node.type == "contract_declaration":
        for new in _below(node, "new_expression"):
            yield from ((_text(one).rpartition(".")[2], 1) for one in _below(new, "user_defined_type"))
    else:
        for value in (child for child in node.children if child.type == "expression"):
            yield from ((_text(one), 1) for one in _below(value, "identifier"))


def _array_depth(kind: Node) -> int:
    depth = 0
    while depth < DEEPEST and kind.type == "type_name" and any(child.type == "[" for child in kind.children):
        depth, kind = depth + 1, kind.children[0]
    return depth


def _most_copied(nodes: list[Node]) -> int:
    repeats: dict[str, int] = {}
    for node in nodes:
        if node.type == "modifier_definition" and (name := node.child_by_field_name("name")) is not None:
            times = sum(_text(one) == "_" for one in _below(node, "identifier"))
            repeats[_text(name)] = max(times, repeats.get(_text(name), 1))
    most = 1
    for node in nodes:
        if node.type in _FUNCTIONS:
            copies = 1
            for used in (child for child in node.children if child.type == "modifier_invocation"):
                names = list(_below(used, "identifier"))
                copies *= repeats.get(_last_of_path(used, names), 1)
            most = max(most, copies)
    return most


def _last_of_path(used: Node, names: list[Node]) -> str:
    """`Base.m(1)` is `m`."""
    own = [_text(one) for one in names if one.parent == used]
    return own[-1] if own else ""


def _below(node: Node, kind: str) -> Iterator[Node]:
    waiting = list(reversed(node.children))
    while waiting:
        one = waiting.pop()
        if one.type == kind:
            yield one
        waiting += reversed(one.children)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
