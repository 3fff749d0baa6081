"""Write the types of a compiled submission for its harness, and put its code in as bytes.

Invariant: of the submission's words only names that the harness uses are compiled with the harness.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NotRequired

from typing_extensions import TypedDict

from clara_eval.core.hashing import sha256_hex

NAME = "Submission"
MARK = sha256_hex(b"clara-eval: here goes the code of the submission").removeprefix("0x")
"""What the constructor of the stand-in pushes, and nothing else does: it is found by this."""
_PLAIN = re.compile(r"(?:u?int\d*|bytes\d*|address|bool|string)((?:\[\d*\])*)")
_DYNAMIC = frozenset({"bytes", "string"})


class AbiType(TypedDict):
    name: str
    type: str
    internalType: NotRequired[str]
    components: NotRequired[list[AbiType]]


class AbiMember(TypedDict):
    type: str
    name: NotRequired[str]
    inputs: NotRequired[list[AbiType]]
    outputs: NotRequired[list[AbiType]]
    stateMutability: NotRequired[str]


def stand_in(abi: Sequence[AbiMember], harness: str) -> str:
    """The file that the harness imports; it compiles to code that `linked` replaces."""
    named = set(re.findall(r"[A-Za-z_$][\w$]*", harness))
    types = _Types()
    parts = list(_members(abi, named, types))
    body = "\n".join([*types.written, *parts])
    return f"// SPDX-License-Identifier: MIT\npragma solidity >=0.8.0;\ncontract {NAME} {{\n{body}\n}}\n"


def _members(abi: Sequence[AbiMember], named: set[str], types: _Types) -> Iterator[str]:
    implied: AbiMember = {"type": "constructor"}
    built = next((one for one in abi if one["type"] == "constructor"), implied)
    payable = " payable" if built.get("stateMutability") == "payable" else ""
    mark = f"assembly {{ log1(0, 0, 0x{MARK}) }}"
    yield f"constructor({types.listed(built.get('inputs', []), 'memory') or ''}){payable} {{ {mark} }}"
    for one in abi:
        if one["type"] in {"receive", "fallback"} and one.get("stateMutability") == "payable":
            yield f"{one['type']}() external payable {{}}"
        elif one.get("name") in named - {NAME} and one["type"] in {"function", "error"}:
            yield from (member for member in [_member(one, types)] if member is not None)


def _member(one: AbiMember, types: _Types) -> str | None:
    is_error = one["type"] == "error"
    given = types.listed(one.get("inputs", []), "" if is_error else "calldata")
    if is_error or given is None:
        return f"error {one['name']}({given});" if given is not None else None
    back = types.listed(one.get("outputs", []), "memory")
    if back is None:
        return None
    kind = "" if one.get("stateMutability") == "nonpayable" else one.get("stateMutability", "")
    returns = f"returns ({back})" if back else ""
    return f"function {one['name']}({given}) external {kind} {returns} {{}}"


class _Types:
    """Types of an ABI in Solidity; structs are declared inside the stand-in."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self._structs: dict[str, str] = {}

    def listed(self, found: Sequence[AbiType], place: str) -> str | None:
        """Parameters; None where one has a type that cannot be written down, for example a function."""
        parts: list[str] = []
        for one in found:
            name = self._one(one)
            if name is None:
                return None
            is_reference = one["type"].endswith("]") or one["type"] in _DYNAMIC or one["type"] == "tuple"
            parts.append(f"{name} {place}" if is_reference and place else name)
        return ", ".join(parts)

    def _one(self, one: AbiType) -> str | None:
        if one["type"].startswith("tuple"):
            struct = self._struct(one)
            return struct and struct + one["type"].removeprefix("tuple")
        if one.get("internalType") == "address payable":
            return "address payable"
        return one["type"] if _PLAIN.fullmatch(one["type"]) else None

    def _struct(self, one: AbiType) -> str | None:
        fields = [(self._one(field), field["name"]) for field in one.get("components", [])]
        if any(kind is None for kind, _ in fields):
            return None
        body = " ".join(f"{kind} {name};" for kind, name in fields)
        own = re.fullmatch(rf"struct {NAME}\.([\w$]+)[\[\]\d]*", one.get("internalType", ""))
        key = f"{own[1] if own else ''} {body}"
        if key not in self._structs:
            self._structs[key] = own[1] if own else f"Struct{len(self._structs)}_"
            self.written.append(f"struct {self._structs[key]} {{ {body} }}")
        return self._structs[key]


def linked(assembly: Mapping[str, object], code: str) -> dict[str, object]:
    """The harness's assembly with this creation code wherever that of the stand-in was."""
    items, data = assembly.get(".code"), assembly.get(".data")
    if isinstance(items, list) and any(_is_mark(item) for item in items):
        return {".code": [{"begin": -1, "end": -1, "name": "VERBATIM", "source": -1, "value": code}]}
    if not isinstance(data, Mapping):
        return dict(assembly)
    parts = {key: linked(one, code) if isinstance(one, Mapping) else one for key, one in data.items()}
    return {**assembly, ".data": parts}


def _is_mark(item: Mapping[str, object]) -> bool:
    return item.get("name") == "PUSH" and str(item.get("value")).lower() == MARK
