"""Parse untrusted JSON strictly: bounded size and depth, no duplicate keys, no unsafe numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from clara_eval.core.errors import BadInput, BadSubmission

SAFE_INTEGER = 2**53 - 1
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(r"[][{}]")


@dataclass(frozen=True, slots=True)
class JsonLimits:
    bytes: int = 65_536
    depth: int = 8


DEEPEST = 64  # Maximum nesting depth of a submission


def read_strict_json(text: str | bytes, limits: JsonLimits | None = None, *, what: str = "The document") -> object:
    """Parse one JSON document, or raise BadInput with the reason and the position."""
    limits = limits or JsonLimits()
    try:
        raw = text.encode("utf-8") if isinstance(text, str) else text
        decoded = raw.decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError) as bad:
        raise _refusal(f"{what} is not UTF-8 text ({bad.reason} at {bad.start}).", "Save it as UTF-8.") from None
    if len(raw) > limits.bytes:
        raise _refusal(f"{what} has {len(raw):,} bytes; at most {limits.bytes:,} are read.", "Shorten it.")
    if decoded.startswith("\ufeff"):
        raise _refusal(f"{what} starts with a byte order mark.", "Save it as UTF-8 without BOM.")
    # Checked before parsing: the parser recurses, and input must not control the depth of recursion.
    if decoded.count("{") + decoded.count("[") > limits.depth and _max_depth(decoded) > limits.depth:
        raise _refusal(f"{what} is nested deeper than {limits.depth} levels.", "Flatten it.")
    try:
        value = _DECODER.decode(decoded)
    except json.JSONDecodeError as bad:
        raise _refusal(
            f"{what} is not valid JSON: {bad.msg} at line {bad.lineno}, column {bad.colno}.",
            "Write one JSON document: double quotes, no comments, no trailing commas.",
            decoded[max(0, bad.pos - 20) : bad.pos + 20],
        ) from None
    if "\\u" in decoded and not is_encodable(value):  # valid UTF-8 has no lone surrogate, but an escape may
        raise _refusal(f"{what} holds half a surrogate pair.", "Remove the \\ud800–\\udfff escape.")
    return value


def _max_depth(text: str) -> int:
    marks = _BRACKET.findall(_STRING.sub("", text))
    return max(accumulate(1 if mark in "[{" else -1 for mark in marks), default=0)


def json_shape(text: str) -> tuple[int, int]:
    """Return depth and number of keys of a JSON text (RFC 8259); BadSubmission if invalid or too deep."""
    depth, keys = _max_depth(text), 0
    if depth > DEEPEST:
        raise BadSubmission(f"It is nested deeper than {DEEPEST} levels.", code="not_json")

    def count(pairs: list[tuple[str, object]]) -> None:
        nonlocal keys
        keys += len(pairs)

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no value")

    try:
        json.loads(text, object_pairs_hook=count, parse_int=float, parse_constant=refuse)
    except ValueError as bad:
        raise BadSubmission(f"It is not JSON: {bad}.", code="not_json") from None
    return depth, keys


def object_or_none(text: str | bytes) -> dict[str, object] | None:
    """Parse a JSON object without limits; None if the text is anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_encodable(value: object) -> bool:
    """Return whether no text in the value has a lone surrogate, which cannot be encoded as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(message: str, remedy: str, value: object = None) -> BadInput:
    return BadInput(message, path="$", value=value, remedy=remedy)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _refusal(f"The key {key[:80]!r} appears twice in one object.", "Keep one of them.", key)
        found[key] = value
    return found


def _refuse_constant(name: str) -> object:
    raise _refusal(f"{name} is not a JSON number.", "Write a finite number.", name)


def _parse_int(digits: str) -> int:
    # Length first: converting a million digits is slow.
    if len(digits) > 20 or abs(int(digits)) > SAFE_INTEGER:
        message = f"The integer {digits[:30]} is larger than 2^53 − 1: JSON parsers may round it."
        raise _refusal(message, "Use a smaller number.", digits[:80])
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _refusal(f"The number {digits[:30]} is too large.", "Use less.", digits[:80])
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_int=_parse_int, parse_float=_parse_float
)


def json_rows(source: str, text: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the line number and the object of each line that is not empty."""
    for number, line in enumerate(text.splitlines(), start=1):
        where, remedy = f"Line {number} of {source}", "Write one JSON object per line."
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as bad:
            raise BadInput(f"{where} is not JSON: {bad}.", path=where, remedy=remedy) from None
        if not isinstance(row, dict):
            raise BadInput(f"{where} is not a JSON object.", path=where, remedy=remedy)
        yield number, row
