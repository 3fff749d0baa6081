"""Convert values to JSON with camelCase keys, and back."""

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
_JSON_SCALARS = frozenset({str, int, float, bool, type(None)})
DECIMAL = {"decimal": True}  # Metadata of a dataclass field whose integer is written as a decimal string


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@cache
def _json_fields(kind: type[DataclassInstance]) -> tuple[tuple[str, str, bool], ...]:
    """List each field's Python name, its JSON name, and whether it is written as a decimal string."""
    return tuple((field.name, camel(field.name), bool(field.metadata.get("decimal"))) for field in fields(kind))


@overload
def to_camel_json(value: DataclassInstance) -> dict[str, object]: ...
@overload
def to_camel_json(value: object) -> object: ...
def to_camel_json(value: object) -> object:
    """Convert dataclasses to objects with camelCase keys; the keys of a mapping are data and stay."""
    kind = type(value)
    if kind in _JSON_SCALARS:
        return value
    if is_dataclass(kind):
        named = ((key, is_decimal, getattr(value, name)) for name, key, is_decimal in _json_fields(kind))
        return {key: str(item) if is_decimal else to_camel_json(item) for key, is_decimal, item in named}
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
    """Read a dataclass from JSON; ignore unknown fields, which a newer version wrote before a rollback."""
    known = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in json.loads(text).items() if name in known})


class JsonCodec(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        # Pydantic applies the alias generator only inside an enclosing type, so the dataclass is wrapped in a tuple.
        config = ConfigDict(alias_generator=camel, extra="forbid")
        self._adapter: TypeAdapter[tuple[T]] = TypeAdapter(tuple[kind], config=config)  # type: ignore[valid-type, arg-type]

    def text(self, value: T) -> str:
        return plain_json(to_camel_json(value))

    def read(self, body: object) -> T:
        """Read a value; ValueError if the JSON does not have the shape of the type."""
        return self._adapter.validate_python((body,))[0]

    def read_text(self, text: str) -> T:
        return self._adapter.validate_json(f"[{text}]")[0]
