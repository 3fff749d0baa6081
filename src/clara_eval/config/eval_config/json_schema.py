"""The eval config as JSON Schema 2020-12: one file that editors, other programs and our own parser go by.

`schema.json` says the shape, and in `errorMessage` (as editors and ajv know it) what is wrong and what to do about it.
In comes a document or a part of one; out go its faults with path, value, reason and remedy. A schema cannot say
everything: that names are unique, that min is below max, that a measured name has a tool, and what the lint finds are
the parser's part; all that the schema refuses, the parser refuses too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from clara_eval.config.eval_config.catalogue import COMMON, EXECUTED, MEASURED
from clara_eval.config.eval_config.problems import ConfigProblem, at, shown, suggestion


@cache
def eval_config_schema() -> dict[str, object]:
    """The schema, with the names of the catalogue. The value is shared: read it, do not change it."""
    schema: dict[str, Any] = json.loads(resources.files(__package__).joinpath("schema.json").read_text("utf-8"))
    schema["$defs"]["name"]["examples"] = [*MEASURED, *EXECUTED, *COMMON]
    measured = f"`measured` is computed by a tool: {', '.join([*MEASURED, *EXECUTED])}."
    schema["$defs"]["feature"]["properties"]["source"]["description"] = measured
    return schema


def eval_config_schema_text() -> str:
    """The exact text of `docs/eval-config.schema.json`."""
    return json.dumps(eval_config_schema(), indent=2, ensure_ascii=False) + "\n"


def part(*keys: str) -> Any:
    """What the schema says below these keys."""
    found: Any = eval_config_schema()
    for key in keys:
        found = found[key]
    return found


def faults(value: object, path: str, *keys: str) -> dict[str, tuple[str, ConfigProblem]]:
    """What is wrong with the value by that part of the schema: the first fault at each path, with its keyword.

    What a type forbids is the parser's part, because a type may come from the catalogue; so are items that are equal.
    """
    found: dict[str, tuple[str, ConfigProblem]] = {}
    for error in _validator(*keys).iter_errors(value):
        if error.validator not in {None, "uniqueItems"}:
            for problem in _problems(error, path):
                found.setdefault(problem.path, (str(error.validator), problem))
    return found


def _whole_text(_: object, pattern: str, instance: object, __: object) -> Iterator[ValidationError]:
    # `$` of Python also matches before a last line break, as no other reader of the schema has it.
    if isinstance(instance, str) and not re.search(pattern.replace("$", r"\Z"), instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator = extend(Draft202012Validator, {"pattern": _whole_text})  # type: ignore[no-untyped-call]  # jsonschema is untyped here


@cache
def _validator(*keys: str) -> Any:
    return _Validator({**part(*keys), "$defs": part("$defs")})


def _problems(error: ValidationError, path: str) -> Iterator[ConfigProblem]:
    for key in error.absolute_path:
        path = at(path, key)
    instance: Any = error.instance
    schema: Any = error.schema
    if error.validator == "additionalProperties":
        known = tuple(schema["properties"])
        for key in instance.keys() - set(known):
            reason = f"The key {key[:60]!r} is unknown."
            yield ConfigProblem(at(path, key), shown(instance[key]), reason, suggestion(key, known))
    elif error.validator == "required":
        for key in [key for key in schema["required"] if key not in instance]:
            yield ConfigProblem(at(path, key), None, *_missing(key, schema))
    else:
        yield ConfigProblem(path, shown(instance), *_told(error, schema))


def _missing(key: str, schema: Any) -> tuple[str, str]:
    if said := schema.get("errorMessage", {}).get("required"):
        return split_message(said)
    described = schema["properties"][key]
    examples = described.get("examples") or part("$defs", "name", "examples")
    return f"The key {key!r} is missing.", f'Add "{key}": {json.dumps(examples[0])}.'


def _told(error: ValidationError, schema: Any) -> tuple[str, str]:
    said = schema.get("errorMessage")
    said = said.get(error.validator) if isinstance(said, dict) else said
    if said:
        return split_message(said)
    choices = [str(choice) for choice in schema["enum"]]
    value = error.instance
    hint = suggestion(value, choices) if isinstance(value, str) else f"One of: {', '.join(choices)}."
    return f"{error.absolute_path[-1]} has no such value.", f"{hint} Or leave it out."


def split_message(said: str) -> tuple[str, str]:
    """The first sentence is the reason, the rest the remedy."""
    reason, _, remedy = said.partition(". ")
    return f"{reason}.", remedy
