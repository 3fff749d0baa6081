"""The shape of a stranger's JSON: how deep it is nested and how many keys it has."""

from __future__ import annotations

import json
import re
from typing import NamedTuple, NoReturn

from clara_eval.core.errors import BadSubmission

DEEPEST = 64
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)


class JsonShape(NamedTuple):
    depth: int
    keys: int


def json_shape(text: str) -> JsonShape:
    """The shape of a JSON text; raises BadSubmission if it is not JSON (RFC 8259)."""
    depth = deepest = 0
    for sign in re.findall(r"[\[{}\]]", _STRING.sub('""', text)):
        depth += 1 if sign in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        raise BadSubmission(f"It is nested deeper than {DEEPEST} levels.", code="not_json")
    keys = 0

    def count(pairs: list[tuple[str, object]]) -> None:
        nonlocal keys
        keys += len(pairs)

    try:
        json.loads(text, object_pairs_hook=count, parse_int=float, parse_constant=_refuse)
    except ValueError as bad:
        raise BadSubmission(f"It is not JSON: {bad}.", code="not_json") from None
    return JsonShape(deepest, keys)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value")
