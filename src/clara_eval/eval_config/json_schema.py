"""The eval config as JSON Schema 2020-12, for editors and for other people's programs.

Built from the same constants the parser uses. A schema cannot say everything: that names are unique, that min is below
max, that a measured name has a tool, and what the lint finds are the parser's part; all that the schema refuses, the
parser refuses too.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from clara_eval.eval_config.catalogue import COMMON, EXECUTED, MEASURED
from clara_eval.eval_config.feature_reading import (
    ENUM_VALUE,
    MAX_ANCHOR,
    MAX_DESCRIPTION,
    MAX_VALUES,
    MAX_WEIGHT,
    MIN_VALUES,
    NAME,
    RESERVED,
    TYPES,
)
from clara_eval.eval_config.harness_reading import HARNESS_LANGUAGES, IF_NOT_REVEALED
from clara_eval.eval_config.model import LARGEST_NUMBER, Better, Source
from clara_eval.eval_config.reading import FORMATS, LANGUAGE, MAX_CRITERIA, MAX_FEATURES, VERSION


def eval_config_schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Clara Eval config",
        "description": "What makes a submission to a challenge good.",
        "type": "object",
        "additionalProperties": False,
        "required": ["version", "features", "criteria"],
        "properties": {
            "version": {"const": VERSION, "description": "The version of this format."},
            "features": {
                "description": "What is observed in each submission: names, or objects with a type.",
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_FEATURES,
                "items": {"anyOf": [{"$ref": "#/$defs/name"}, {"$ref": "#/$defs/feature"}]},
            },
            "criteria": {
                "description": "What makes one solution better than another, in words. No addresses, URLs or hashes.",
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_CRITERIA,
                "pattern": r"\S",
            },
            "submissionFormat": {"description": "What agents submit.", "enum": list(FORMATS)},
            "language": {"description": "The programming language, as a hint.", "type": "string", "pattern": LANGUAGE},
            "judge": {
                "description": "`rules` compares by better and weight, without any model.",
                "enum": ["rules"],
            },
            "harness": _harness(),
        },
        "$defs": {"name": _name(), "feature": _feature()},
    }


def eval_config_schema_text() -> str:
    """The exact text of `docs/eval-config.schema.json`."""
    return json.dumps(eval_config_schema(), indent=2, ensure_ascii=False) + "\n"


def _harness() -> dict[str, Any]:
    program = {"type": "string", "pattern": r"\S"}
    return {
        "description": "The program that runs every submission: setUp, test_… and metric_… functions.",
        "type": "object",
        "additionalProperties": False,
        "required": ["language"],
        "properties": {
            "language": {"enum": list(HARNESS_LANGUAGES)},
            "source": {"description": "The public harness.", **program},
            "hidden": {"description": "Committed by privateSetHash, revealed after the deadline.", "type": "boolean"},
            "ifNotRevealed": {
                "description": "`public`: go on without it; `fail`: do not post.",
                "enum": list(IF_NOT_REVEALED),
            },
            "reference": {"description": "A solution that passes: the harness is checked with it.", **program},
        },
        "if": {"required": ["hidden"], "properties": {"hidden": {"const": True}}},
        "else": {"required": ["source"], "properties": {"ifNotRevealed": False}},
    }


def _name() -> dict[str, Any]:
    return {
        "description": "A property of the work. Names of the catalogue have a built-in type.",
        "type": "string",
        "pattern": NAME,
        "not": {"enum": sorted(RESERVED)},
        "examples": [*MEASURED, *EXECUTED, *COMMON],
    }


def _feature() -> dict[str, Any]:
    bound = {"type": "number", "minimum": -LARGEST_NUMBER, "maximum": LARGEST_NUMBER}
    return {
        "description": "A typed feature. A name of the catalogue may leave out what the catalogue says.",
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            "name": {"$ref": "#/$defs/name"},
            "type": {
                "description": "`text` is for people and never reaches the judge.",
                "enum": list(TYPES),
            },
            "min": {"description": "Smaller values are clamped to it.", **bound},
            "max": {"description": "Larger values are clamped to it.", **bound},
            "values": {
                "description": 'The closed list of an enum. With better "higher", later values are better.',
                "type": "array",
                "minItems": MIN_VALUES,
                "maxItems": MAX_VALUES,
                "uniqueItems": True,
                "items": {"type": "string", "pattern": ENUM_VALUE},
            },
            "better": {
                "description": "Which end is good; for booleans `higher` means true. Left out: the criteria decide.",
                "enum": list(get_args(Better)),
            },
            "weight": {"description": "1 if left out.", "type": "number", "exclusiveMinimum": 0, "maximum": MAX_WEIGHT},
            "source": {
                "description": f"`measured` is computed by a tool: {', '.join([*MEASURED, *EXECUTED])}.",
                "enum": list(get_args(Source)),
            },
            "description": {"type": "string", "maxLength": MAX_DESCRIPTION},
            "anchors": {
                "description": "For an integer: what each level from min to max means.",
                "type": "array",
                "minItems": MIN_VALUES,
                "maxItems": MAX_VALUES,
                "items": {"type": "string", "minLength": 1, "maxLength": MAX_ANCHOR},
            },
        },
        "allOf": [
            _if_type(["boolean", "text", "enum"], forbidden=["min", "max", "anchors"]),
            _if_type(["boolean", "text", "number", "integer"], forbidden=["values"]),
            _if_type(["number"], forbidden=["anchors"]),
            _if_type(["text"], forbidden=["better"]),
        ],
    }


def _if_type(types: list[str], *, forbidden: list[str]) -> dict[str, Any]:
    return {
        "if": {"required": ["type"], "properties": {"type": {"enum": types}}},
        "then": {"properties": dict.fromkeys(forbidden, False)},
    }
