"""Read a model's answer: exactly one JSON object within limits, white space or one exact ```json fence around it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache

from clara_eval.core.errors import BadAnswer, BadInput
from clara_eval.core.strict_json import JsonLimits, read_strict_json

LIMITS = JsonLimits(bytes=16_384, depth=3)
_FENCED = re.compile(r"```json\n([^`]*)\n```")


def read_object(
    text: str, fields: Collection[str], limits: JsonLimits = LIMITS, *, optional: Collection[str] = ()
) -> dict[str, object]:
    """Return the object with exactly these fields; the optional ones may be missing."""
    body = text.strip(" \t\r\n")
    fenced = _FENCED.fullmatch(body)
    try:
        value = read_strict_json(fenced.group(1) if fenced else body, limits, what="The answer")
    except BadInput as bad:
        raise BadAnswer(_ours(bad.message)) from None
    if not isinstance(value, dict):
        raise BadAnswer("The answer is not a JSON object.")
    missing, extra = sorted(set(fields) - set(value)), set(value) - {*fields, *optional}
    if missing:
        raise BadAnswer(f"The answer lacks {', '.join(missing)}.")
    if extra:
        raise BadAnswer(f"The answer has {len(extra)} fields that were not asked for.")
    return value


def makes_sense(text: str, schema_json: str) -> bool:
    """Return whether this is an object with the fields that the schema requires."""
    required = _required(schema_json)
    if not required:
        return True
    body = text.strip()
    fenced = _FENCED.fullmatch(body)
    try:
        value = json.loads(fenced.group(1) if fenced else body)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and required <= set(value)


@lru_cache(maxsize=64)
def _required(schema_json: str) -> frozenset[str]:
    return frozenset(json.loads(schema_json).get("required", ()))


def shown(text: str, limit: int) -> str:
    """Return a model's words for people: one line without control characters, at most `limit` long."""
    line = " ".join(text.split())
    if not (line.isascii() and line.isprintable()):
        line = "".join(char for char in line if unicodedata.category(char)[0] != "C")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _ours(message: str) -> str:
    # Reasons are kept and shown: what the model wrote is quoted in them only as harmless characters.
    return shown(message, 200)
