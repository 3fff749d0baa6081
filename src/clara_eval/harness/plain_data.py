"""Translate plain values between `marshal` and the tagged JSON of a harness, without `marshal.loads`."""

from __future__ import annotations

import marshal
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

DEPTH = 32
MOST_DIGITS = 900
"""Of 15 bits: an integer that Python still writes in decimal."""
VERSION = 2
"""Of marshal: the last one whose bytes depend on nothing but the value."""
_SEQUENCES = {"(": "tuple", "[": "list", "<": "set", ">": "frozenset"}
_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_TOO_DEEP = "The value is nested too deeply."


class NotPlain(Exception):
    """What was answered cannot be handed to a harness; the text says why."""


def to_guest(number: int, on: int, args: Sequence[object], named: Mapping[str, object] | None = None) -> bytes:
    """One message: an operation by its number, the object, and arguments as tagged JSON."""
    has_references = False

    def plain(found: Any) -> object:
        nonlocal has_references
        if not isinstance(found, dict):
            return found
        tag, held = found["$"], found["v"]
        if tag in _CONTAINERS:
            return _CONTAINERS[tag]([plain(item) for item in held])
        if tag == "map":
            return {plain(key): plain(item) for key, item in held}
        if tag == "number":
            return float(held)
        if tag == "bytes":
            return bytes.fromhex(held)
        has_references = True
        return (..., held)

    values = tuple(map(plain, args))
    words = {key: plain(item) for key, item in (named or {}).items()}
    message: Any = (number, on, values, words, has_references)
    return marshal.dumps(message, VERSION)


def from_guest(raw: bytes) -> list[Any]:
    """The parts of an answer, each as tagged JSON; raises NotPlain."""
    reader = _Reader(raw)
    try:
        found = reader.value(-1)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise NotPlain("It gave no answer that can be read.") from None
    if reader.at != len(raw) or not isinstance(found, dict) or found["$"] != "tuple":
        raise NotPlain("It gave no answer that can be read.")
    parts: list[Any] = found["v"]
    return parts


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def value(self, depth: int) -> Any:
        code = chr(self.raw[self.at])
        self.at += 1
        if depth > DEPTH:
            raise NotPlain(_TOO_DEEP)
        if code in "NTF":
            return {"N": None, "T": True, "F": False}[code]
        if code == "i":
            return self.number("<i", 4)
        if code == "l":
            return self.integer()
        if code == "g":
            found = self.number("<d", 8)
            return found if math.isfinite(found) else {"$": "number", "v": repr(found)}
        if code == "u":
            return self.bytes().decode("utf-8", "surrogatepass")
        if code == "s":
            return {"$": "bytes", "v": self.bytes().hex()}
        if code == "{":
            return {"$": "map", "v": self.pairs(depth)}
        if code in _SEQUENCES:
            return self.sequence(code, depth)
        raise NotPlain("It gave a value of a kind that cannot be handed to a harness.")

    def number(self, form: str, length: int) -> Any:
        self.at += length
        return struct.unpack_from(form, self.raw, self.at - length)[0]

    def bytes(self) -> bytes:
        length = self.number("<i", 4)
        found = self.raw[self.at : self.at + length]
        self.at += length
        if length < 0 or len(found) != length:
            raise NotPlain("It gave no answer that can be read.")
        return found

    def integer(self) -> int:
        count = self.number("<i", 4)
        if abs(count) > MOST_DIGITS:
            raise NotPlain("It gave a number that is too large.")
        digits: list[int] = [self.number("<H", 2) for _ in range(abs(count))]
        found = sum(digit << 15 * place for place, digit in enumerate(digits))
        return found if count >= 0 else -found

    def sequence(self, code: str, depth: int) -> Any:
        count = self.number("<i", 4)
        if code == "(" and count == 2 and self.raw[self.at : self.at + 1] == b".":
            self.at += 1
            number = self.value(depth)
            if not isinstance(number, int) or number < 0:
                raise NotPlain("It gave no answer that can be read.")
            return {"$": "ref", "v": number}
        return {"$": _SEQUENCES[code], "v": [self.value(depth + 1) for _ in range(count)]}

    def pairs(self, depth: int) -> list[list[Any]]:
        found = []
        while self.raw[self.at : self.at + 1] != b"0":
            found.append([self.value(depth + 1), self.value(depth + 1)])
        self.at += 1
        return found
