"""Read JSON from strangers strictly: one document, one meaning."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from clara_eval.core.errors import BadInput

SAFE_INTEGER = 2**53 - 1


@dataclass(frozen=True, slots=True)
class JsonLimits:
    bytes: int = 65_536
    depth: int = 8


def read_strict_json(text: str | bytes, limits: JsonLimits | None = None, *, what: str = "The document") -> object:
    """Read the one value in `text`, or raise BadInput with the reason and the place."""
    limits = limits or JsonLimits()
    decoded = _decode(text, limits, what)
    if decoded.count("[") + decoded.count("{") > limits.depth:
        _check_depth(decoded, limits.depth, what)
    try:
        value = _DECODER.decode(decoded)
    except json.JSONDecodeError as bad:
        raise BadInput(
            f"{what} is not valid JSON: {bad.msg} at line {bad.lineno}, column {bad.colno}.",
            path="$",
            value=decoded[max(0, bad.pos - 20) : bad.pos + 20],
            remedy="Write one JSON document: double quotes, no comments, no trailing commas.",
        ) from None
    if "\\u" in decoded:  # UTF-8 holds none; only an escape can
        _check_surrogates(value)
    return value


def _decode(text: str | bytes, limits: JsonLimits, what: str) -> str:
    try:
        raw = text.encode("utf-8") if isinstance(text, str) else text
        decoded = raw.decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError) as bad:
        raise BadInput(
            f"{what} is not UTF-8 text ({bad.reason} at {bad.start}).", path="$", remedy="Save it as UTF-8."
        ) from None
    if len(raw) > limits.bytes:
        raise BadInput(
            f"{what} has {len(raw):,} bytes; at most {limits.bytes:,} are read.", path="$", remedy="Shorten it."
        )
    if decoded.startswith("\ufeff"):
        raise BadInput(f"{what} starts with a byte order mark.", path="$", remedy="Save it as UTF-8 without BOM.")
    return decoded


def _check_depth(text: str, limit: int, what: str) -> None:
    # Counted before parsing: the parser recurses, and a stranger must not choose how deep.
    depth = 0
    inside = escaped = False
    for char in text:
        if inside:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char in "[{":
            depth += 1
            if depth > limit:
                raise BadInput(f"{what} is nested deeper than {limit} levels.", path="$", remedy="Flatten it.")
        elif char in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise BadInput(
                f"The key {key[:80]!r} appears twice in one object.", path="$", value=key, remedy="Keep one of them."
            )
        found[key] = value
    return found


def _check_surrogates(value: object) -> None:
    if isinstance(value, list):
        for item in value:
            _check_surrogates(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_surrogates(key)
            _check_surrogates(item)
    elif isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise BadInput(
            f"The text {value[:40]!a} holds half a surrogate pair.",
            path="$",
            value=ascii(value[:80]),
            remedy="Remove the \\ud800–\\udfff escape.",
        )


def _no_constant(name: str) -> object:
    raise BadInput(f"{name} is not a JSON number.", path="$", value=name, remedy="Write a finite number.")


def _integer(digits: str) -> int:
    # Length first: converting a million digits is work for nothing.
    if len(digits) > 20 or abs(int(digits)) > SAFE_INTEGER:
        raise BadInput(
            f"The integer {digits[:30]} is larger than 2^53 − 1: readers of JSON disagree about it.",
            path="$",
            value=digits[:80],
            remedy="Use a smaller number.",
        )
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BadInput(f"The number {digits[:30]} is too large.", path="$", value=digits[:80], remedy="Use less.")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_no_constant, parse_int=_integer, parse_float=_finite
)
