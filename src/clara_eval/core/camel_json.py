"""Our values as JSON for others: camelCase keys, lists, plain numbers and strings; amounts stay exact.

One way out for every door, so that the API, the commands, the tools and the trace name the same thing the same way.
What may pass 2^53 is a decimal string, because most programs read a JSON number as a double: such a field of a
dataclass is declared `field(metadata=DECIMAL)`.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})
DECIMAL = {"decimal": True}
"""Metadata of a dataclass field whose integer is written as a decimal string."""


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@cache
def _named(kind: type[DataclassInstance]) -> tuple[tuple[str, str, bool], ...]:
    """Each field's own name, its name in JSON, and whether it is written as a decimal string."""
    return tuple((field.name, camel(field.name), bool(field.metadata.get("decimal"))) for field in fields(kind))


@overload
def to_camel_json(value: DataclassInstance) -> dict[str, object]: ...
@overload
def to_camel_json(value: object) -> object: ...
def to_camel_json(value: object) -> object:
    """Dataclasses become objects with camelCase keys; mappings keep their keys, which are data."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if is_dataclass(kind):
        told = ((name, is_decimal, getattr(value, own)) for own, name, is_decimal in _named(kind))
        return {name: str(v) if is_decimal else to_camel_json(v) for name, is_decimal, v in told}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): to_camel_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [to_camel_json(item) for item in items]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return value
