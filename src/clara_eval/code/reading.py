"""Parse each text once for its shapes and its structure, and hold the structure of recent texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from threading import Lock

from clara_eval.code.shapes import Shape, shapes_of
from clara_eval.code.structure import Structure, read_structure
from clara_eval.core.syntax import Parsed, parse

_MOST_PARTS = 100_000
"""Functions, comments and strings that are held of late, and texts."""


@dataclass(frozen=True, slots=True)
class Code:
    """What a text says as code. Shared by all who ask: nobody changes it."""

    errors: int
    structure: Structure
    """Without its names."""
    distinct_names: int


class RecentCode:
    """The texts read last, safe to share between threads; all of them have at most `most` parts."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[tuple[bytes, str], tuple[Code | None, int]] = {}
        self._parts = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._held)

    def find(self, key: tuple[bytes, str]) -> tuple[Code | None, int] | None:
        return self._held.get(key)

    def put(self, key: tuple[bytes, str], code: Code | None, parts: int) -> None:
        with self._lock:
            self._parts += parts - self._held.pop(key, (None, 0))[1]
            self._held[key] = code, parts
            while self._parts > self._most:
                self._parts -= self._held.pop(next(iter(self._held)))[1]


_READ = RecentCode(_MOST_PARTS)


def read_code(source: bytes, language: str) -> Code | None:
    """What the text says, or None where it is too broken, too large or too slow to be measured."""
    known = _READ.find(_key(source, language))
    return known[0] if known else _read(source, language, parse(source, language))


def is_held(source: bytes, language: str) -> bool:
    """Whether it was read of late, so that nothing has to be parsed."""
    return _READ.find(_key(source, language)) is not None


def shapes_in(source: bytes, language: str) -> list[Shape]:
    """The shapes of all statements; none where the text cannot be parsed. Its structure is read with them."""
    parsed = parse(source, language)
    _read(source, language, parsed)
    return shapes_of(parsed) if parsed else []


def _read(source: bytes, language: str, parsed: Parsed | None) -> Code | None:
    found = read_structure(parsed) if parsed else None
    code = None
    if parsed and found:
        code = Code(parsed.errors, replace(found, names=set()), len(found.names))
    parts = len(found.functions) + len(found.comments) + len(found.strings) if found else 0
    _READ.put(_key(source, language), code, 1 + parts)
    return code


def _key(source: bytes, language: str) -> tuple[bytes, str]:
    return blake2b(source, digest_size=16).digest(), language
