"""Write values as JSON with camelCase keys, and read them back as they were."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from pydantic import ConfigDict, TypeAdapter

from clara_eval.core.hashing import plain_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
S = TypeVar("S", bound="DataclassInstance")
_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})
DECIMAL = {"decimal": True}  # Metadata of a dataclass field whose integer is written as a decimal string


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@cache
def _named(kind: type[DataclassInstance]) -> tuple[tuple[str, str, bool], ...]:
    """List each field's own name, its name in JSON, and whether it is written as a decimal string."""
    return tuple((field.name, camel(field.name), bool(field.metadata.get("decimal"))) for field in fields(kind))


@overload
def to_camel_json(value: DataclassInstance) -> dict[str, object]: ...
@overload
def to_camel_json(value: object) -> object: ...
def to_camel_json(value: object) -> object:
    """Convert dataclasses to objects with camelCase keys; mappings keep their keys, which are data."""
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


def read_stored(kind: type[S], text: str) -> S:
    """Read a dataclass from JSON without the fields that a newer version added: after a rollback they are there."""
    known = {one.name for one in fields(kind)}
    return kind(**{name: value for name, value in json.loads(text).items() if name in known})


_CAMEL = ConfigDict(alias_generator=camel, extra="forbid")


class JsonCodec(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        # A dataclass alone would keep its own names: pydantic applies the casing only below a type around it.
        self._boxed: TypeAdapter[tuple[T]] = TypeAdapter(tuple[kind], config=_CAMEL)  # type: ignore[valid-type, arg-type]

    def text(self, value: T) -> str:
        return plain_json(to_camel_json(value))

    def read(self, body: object) -> T:
        """Read a value; ValueError if the JSON has another shape."""
        return self._boxed.validate_python((body,))[0]

    def read_text(self, text: str) -> T:
        return self._boxed.validate_json(f"[{text}]")[0]
