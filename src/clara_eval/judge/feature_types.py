"""Type bare feature names from the poster's words; a name that is typed badly becomes a level from 0 to 4."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from clara_eval.config.eval_config import EvalConfig, Feature, level_feature
from clara_eval.core.constants import LARGEST_NUMBER
from clara_eval.core.errors import BadAnswer
from clara_eval.core.hashing import plain_json
from clara_eval.core.strict_json import JsonLimits
from clara_eval.judge.port import AnswerCut, Prompt
from clara_eval.judge.reading import object_schema, read_object, shown
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.judge.templates import escaped, prompt_view, template, template_hash

_VALUE = re.compile(r"[a-z0-9_-]{1,24}")
_LIMITS = JsonLimits(bytes=32_768, depth=4)
_NULLABLE_NUMBER = {"anyOf": [{"type": "number"}, {"type": "null"}]}
_FIELDS = {
    "name": {"type": "string"},
    "type": {"type": "string", "enum": ["integer", "number", "boolean", "enum"]},
    "min": _NULLABLE_NUMBER,
    "max": _NULLABLE_NUMBER,
    "values": {"type": "array", "items": {"type": "string"}},
    "better": {"anyOf": [{"type": "string", "enum": ["higher", "lower"]}, {"type": "null"}]},
    "description": {"type": "string"},
}
TYPES_SCHEMA = object_schema(features={"type": "array", "items": object_schema(**_FIELDS)})


def typing_prompt(config: EvalConfig, names: Sequence[str]) -> Prompt:
    user = template("typing.user").fill(
        criteria=escaped(prompt_view(config.criteria).text), names="\n".join(f"- {name}" for name in names)
    )
    files = template_hash("typing.system", "typing.user")
    system = template("typing.system").fill()
    return Prompt("schema", system, user, plain_json(TYPES_SCHEMA), 200 + 200 * len(names), files)


async def type_names(llm: StructuredLlm, config: EvalConfig, names: Sequence[str]) -> tuple[Feature, ...]:
    """Return one typed feature for each name, in the given order."""
    asked = await llm.ask(typing_prompt(config, names), lambda text: read_types(text, names))
    if asked.outage is not None and not isinstance(asked.outage, AnswerCut):
        raise asked.outage  # later there may be an answer, and the schema must not depend on an outage
    typed = asked.value or {}
    return tuple(typed.get(name) or level_feature(name) for name in names)


def read_types(text: str, names: Sequence[str]) -> dict[str, Feature]:
    """Return the features that are typed well. Raises BadAnswer if the answer is not what was asked for."""
    items = read_object(text, ("features",), _LIMITS)["features"]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadAnswer("The features are not a list of objects.")
    given = [item.get("name") for item in items]
    if sorted(map(str, given)) != sorted(names):
        raise BadAnswer("The answer does not type every name exactly once.")
    found = (_feature(item) for item in items)
    return {feature.name: feature for feature in found if feature is not None}


def _feature(item: dict[str, Any]) -> Feature | None:
    if set(item) != set(_FIELDS) or item["better"] not in ("higher", "lower", None):
        return None
    if not isinstance(item["description"], str) or not isinstance(item["values"], list):
        return None
    words = {"name": item["name"], "better": item["better"], "description": shown(item["description"], 200)}
    match item["type"]:
        case "boolean":
            return Feature(type="boolean", **words)
        case "enum":
            values = tuple(item["values"])
            good = all(isinstance(value, str) and _VALUE.fullmatch(value) for value in values)
            fits = good and 2 <= len(values) <= 12 and len(set(values)) == len(values)
            return Feature(type="enum", values=values, **words) if fits else None
        case "integer" | "number":
            low, high = item["min"], item["max"]
            if not _is_bound(low) or not _is_bound(high) or not low < high:
                return None
            return Feature(type=item["type"], min=low, max=high, **words)
        case _:
            return None


def _is_bound(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER
