"""One kind of value as the JSON of journals and traces, and back: written and read in one place each.

In: a dataclass or a plain type. Out: `body`, camelCase JSON with decimal strings where an integer may pass 2^53, and
`read`, which refuses other fields than its own. Must hold: what is written is read back as it was.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter

from clara_eval.core.camel_json import camel, to_camel_json
from clara_eval.core.hashing import plain_json

T = TypeVar("T")
_CAMEL = ConfigDict(alias_generator=camel, extra="forbid")


class JsonCodec(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        # A dataclass alone would keep its own names: only around it does pydantic apply the casing, all the way down.
        self._boxed: TypeAdapter[tuple[T]] = TypeAdapter(tuple[kind], config=_CAMEL)  # type: ignore[valid-type, arg-type]

    def body(self, value: T) -> object:
        return to_camel_json(value)

    def text(self, value: T) -> str:
        return plain_json(self.body(value))

    def read(self, body: object) -> T:
        """The value that this JSON stands for; ValueError where it has another shape."""
        return self._boxed.validate_python((body,))[0]

    def read_text(self, text: str) -> T:
        return self._boxed.validate_json(f"[{text}]")[0]
