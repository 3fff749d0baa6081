"""What a careful model would answer about submissions that say their own quality: for tests of everything around it.

Fulfils `fake_endpoint.Words`. It reads the check number and the data's lines as the extraction prompt asks, takes every
feature from a line `name: value` of the submission, and judges two vectors by their sums. Same question, same answer.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.fake_endpoint import Seen, sample

from clara_eval.redteam.simulators import without_numbers

_CHECK = re.compile(r"The value of check is (\d+)")
_DATA = re.compile(r"<submission-([^>]+)>\n(.*)\n</submission-\1>", re.DOTALL)
_VECTORS = re.compile(r"SOLUTION [A-D] FEATURES:\n(\{.*?\})(?:\n|$)")


def scripted_words(seen: Seen) -> str:
    """The answer to an extraction or a comparison; anything else gets some value that fits its schema."""
    user = str(seen.body["messages"][-1]["content"])
    vectors = _VECTORS.findall(user)
    if len(vectors) == 2:
        return json.dumps(_verdict(*(json.loads(vector) for vector in vectors)))
    if len(vectors) == 4:
        return json.dumps(_order([json.loads(vector) for vector in vectors]))
    data = _DATA.search(user)
    if data is not None:
        return json.dumps(_facts(seen.schema, user, data[2]))
    return json.dumps(sample(seen.schema, 0))


def _verdict(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    left, right = _worth(first), _worth(second)
    winner = "tie" if left == right else "A" if left > right else "B"
    return {"winner": winner, "confidence": 0.9, "reason": "by the sum of the facts"}


def _order(vectors: list[dict[str, Any]]) -> dict[str, Any]:
    places = sorted(range(4), key=lambda place: -_worth(vectors[place]))
    return {"order": ["ABCD"[place] for place in places], "reason": "by the sum of the facts"}


def _worth(vector: dict[str, Any]) -> float:
    return sum(float(value) for value in vector.values() if isinstance(value, int | float))


def _facts(schema: dict[str, Any], user: str, data: str) -> dict[str, Any]:
    check = _CHECK.search(user)
    data = without_numbers(data)
    names = schema.get("properties", {})
    lines: int | str = data.count("\n") + 1
    if sizes := names.get("check_lines", {}).get("enum"):  # programs before rules 10 asked for its size
        lines = sizes[len(str(lines)) - 1]
    known = {"check": int(check[1]) if check else 0, "check_lines": lines}
    said = dict(re.findall(r"^(\w+): (\d+)$", data, re.MULTILINE))
    known |= {f"{name}_line": 1 for name in said}
    return {name: known.get(name, int(said[name]) if name in said else None) for name in names}
