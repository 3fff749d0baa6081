"""The shape of an eval config: models, the JSON Schema made from them, and the faults of a document.

What depends on several values (unique names, min below max, what a type allows) is checked in `reading`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError

from clara_eval.config.eval_config.catalogue import COMMON, EXECUTED, MEASURED
from clara_eval.config.eval_config.model import Better, FeatureType, IfNotRevealed, Source, SubmissionFormat
from clara_eval.config.eval_config.problems import ConfigProblem, at, shown, suggestion
from clara_eval.core.constants import LARGEST_NUMBER, HarnessLanguage

NAME = "^[a-z][a-z0-9_]{0,39}$"
RESERVED = frozenset(
    """a address agent_id assistant author b canary check check_lines confidence constructor criteria decoy elo evidence
    features flags loser nonce prototype rank reason score scores submission submitted_at submitter system tie user
    verdict winner""".split()  # noqa: SIM905 - a list would take thirty-four lines
)
"""Fields of answers, names of results, who and when, and words with a meaning to programs or chat templates."""
MAX_CRITERIA, MAX_DESCRIPTION = 4_000, 300
LEFT_OUT: Any = None
"""The default of keys that may be left out; null itself is refused."""
TYPES_WITH = {"min": ("number", "integer"), "max": ("number", "integer"), "values": ("enum",), "anchors": ("integer",)}
"""The types for which a key has a meaning."""
_KINDS = get_args(FeatureType)
_NO_NAME = "This is not a usable feature name. Lower-case letters, digits and _, starting with a letter, at most 40."
_NO_PROGRAM = "The {} is not a text. Write the program, or leave it out."


def _said(message: str | dict[str, str], **more: Any) -> Any:
    """What the schema says about a wrong value, by keyword or for all: the reason, then the remedy."""
    return {"errorMessage": message, **more}


def _unreserved(name: str) -> str:
    if name in RESERVED:
        raise PydanticCustomError("not", "reserved")
    return name


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("const", "a boolean")
    return value


def _bound(key: str, description: str) -> Any:
    return Field(
        LEFT_OUT,
        ge=-LARGEST_NUMBER,
        le=LARGEST_NUMBER,
        description=description,
        json_schema_extra=_said(f"{key} is not a number of reasonable size. Within ±1e12."),
    )


FeatureName = Annotated[
    str,
    AfterValidator(_unreserved),
    Field(
        pattern=NAME,
        description="A property of the work. Names of the catalogue have a built-in type.",
        examples=[*MEASURED, *EXECUTED, *COMMON],
        json_schema_extra={
            "not": {"enum": sorted(RESERVED)},
            "errorMessage": {
                "type": _NO_NAME,
                "pattern": _NO_NAME,
                "not": "The name is reserved. Name a property of the work, such as novelty.",
            },
        },
    ),
]
EnumValue = Annotated[
    str,
    Field(
        pattern="^[a-z0-9_-]{1,24}$",
        json_schema_extra=_said("This is not a usable enum value. Match ^[a-z0-9_-]{1,24}$."),
    ),
]
Anchor = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        json_schema_extra=_said("An anchor is a sentence of up to 200 characters. Mend it."),
    ),
]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class FeatureShape(_Document):
    """A typed feature. A name of the catalogue may leave out what the catalogue says."""

    model_config = ConfigDict(
        title="feature",
        json_schema_extra=_said(
            {"type": 'A feature is a name or an object. For example "novelty" or {"name": …}.'},
            allOf=[
                {
                    "if": {
                        "required": ["type"],
                        "properties": {"type": {"enum": [kind for kind in _KINDS if kind not in types]}},
                    },
                    "then": {"properties": {key: False}},
                }
                for key, types in {**TYPES_WITH, "better": _KINDS[:-1]}.items()
            ],
        ),
    )
    name: FeatureName
    type: FeatureType = Field(LEFT_OUT, description="`text` is for people and never reaches the judge.")
    min: float = _bound("min", "Smaller values are clamped to it.")
    max: float = _bound("max", "Larger values are clamped to it.")
    values: list[EnumValue] = Field(
        LEFT_OUT,
        min_length=2,
        max_length=12,
        description='The closed list of an enum. With better "higher", later values are better.',
        json_schema_extra=_said('An enum has 2 to 12 values. For example ["low", "medium", "high"].', uniqueItems=True),
    )
    better: Better = Field(
        LEFT_OUT, description="Which end is good; for booleans `higher` means true. Left out: the criteria decide."
    )
    weight: float = Field(
        LEFT_OUT,
        gt=0,
        le=1000,
        description="1 if left out.",
        json_schema_extra=_said(
            "The weight is not a number above 0 and at most 1000. "
            'For less important features use small weights; for "less is better" use "better": "lower".'
        ),
    )
    source: Source = Field(
        LEFT_OUT, description=f"`measured` is computed by a tool: {', '.join([*MEASURED, *EXECUTED])}."
    )
    description: str = Field(
        LEFT_OUT,
        max_length=MAX_DESCRIPTION,
        json_schema_extra=_said("The description is not a text of up to 300 characters. Cut it."),
    )
    anchors: list[Anchor] = Field(
        LEFT_OUT,
        min_length=2,
        max_length=12,
        description="For an integer: what each level from min to max means.",
        json_schema_extra=_said("Anchors are 2 to 12 sentences of up to 200 characters. Mend them."),
    )


class HarnessShape(_Document):
    """The program that runs every submission: setUp, test_… and metric_… functions."""

    model_config = ConfigDict(
        title="harness",
        json_schema_extra=_said(
            {"type": 'The harness is not an object. For example {"language": "solidity", "source": "…"}.'},
            **{
                "if": {"required": ["hidden"], "properties": {"hidden": {"const": True}}},
                "else": {"required": ["source"], "properties": {"ifNotRevealed": False}},
            },
        ),
    )
    language: HarnessLanguage = Field(
        examples=["solidity"],
        json_schema_extra=_said("This language cannot be executed. One of: solidity, javascript, python."),
    )
    source: str = Field(
        LEFT_OUT,
        pattern=r"\S",
        description="The public harness.",
        json_schema_extra=_said(_NO_PROGRAM.format("source")),
    )
    hidden: bool = Field(
        LEFT_OUT,
        description="Committed by privateSetHash, revealed after the deadline.",
        json_schema_extra=_said("hidden is true or false. Write true, or leave it out."),
    )
    if_not_revealed: IfNotRevealed = Field(LEFT_OUT, description="`public`: go on without it; `fail`: do not post.")
    reference: str = Field(
        LEFT_OUT,
        pattern=r"\S",
        description="A solution that passes: the harness is checked with it.",
        json_schema_extra=_said(_NO_PROGRAM.format("reference")),
    )


class ConfigShape(_Document):
    """What makes a submission to a challenge good."""

    model_config = ConfigDict(
        title="Clara Eval config",
        json_schema_extra=_said(
            {"type": "The eval config is not a JSON object. Write { … } with version and features."},
            **{"$schema": "https://json-schema.org/draft/2020-12/schema"},
        ),
    )
    version: Annotated[Literal[1], BeforeValidator(_no_boolean)] = Field(
        description="The version of this format.",
        examples=[1],
        json_schema_extra=_said('Only version 1 exists. Write "version": 1.'),
    )
    features: list[
        Annotated[
            Annotated[FeatureName, Tag("name")] | Annotated[FeatureShape, Tag("feature")],
            Discriminator(lambda item: "name" if isinstance(item, str) else "feature"),
        ]
    ] = Field(
        min_length=1,
        max_length=20,
        description="What is observed in each submission: names, or objects with a type.",
        examples=[["correctness", "readability"]],
        json_schema_extra=_said(
            {
                "type": "The features are not a list. Write [ … ] with 1 to 20 items.",
                "minItems": "There are no features. Give 1 to 20.",
                "maxItems": "There are too many features. Give 1 to 20.",
            }
        ),
    )
    criteria: str = Field(
        max_length=MAX_CRITERIA,
        pattern=r"\S",
        description="What makes one solution better than another, in words. No addresses, URLs or hashes.",
        examples=["The best solution is right for every input; among those, the simplest."],
        json_schema_extra=_said(
            {
                "maxLength": "The criteria are too long. At most 4,000 characters.",
                "type": "The criteria are not a text. Say in words what makes one solution better than another.",
                "pattern": "The criteria are empty: the features alone decide. "
                "Say in words what makes one solution better than another.",
            }
        ),
    )
    submission_format: SubmissionFormat = Field(LEFT_OUT, description="What agents submit.")
    language: str = Field(
        LEFT_OUT,
        pattern="^[A-Za-z0-9][A-Za-z0-9+#. _-]{0,39}$",
        description="The programming language, as a hint.",
        json_schema_extra=_said('This is not the name of a language. For example "solidity".'),
    )
    judge: Literal["rules"] = Field(LEFT_OUT, description="`rules` compares by better and weight, without any model.")
    harness: HarnessShape = Field(LEFT_OUT)


CONFIG_KEYS = tuple(field.alias or name for name, field in ConfigShape.model_fields.items())
FEATURE_KEYS = tuple(FeatureShape.model_fields)
_KEYWORDS = {
    "missing": "required",
    "extra_forbidden": "additionalProperties",
    "literal_error": "enum",
    "string_pattern_mismatch": "pattern",
    "string_too_long": "maxLength",
    "too_long": "maxItems",
    "too_short": "minItems",
}
"""The JSON Schema keyword of pydantic's errors; those that are missing end in the type, or are named as the keyword."""


class _PlainSchema(GenerateJsonSchema):
    """The schema without titles of fields and without defaults: what is left out has no value."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is pydantic's
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])


_adapter = cache(TypeAdapter)


@cache
def _schema_of(shape: Any) -> dict[str, Any]:
    return _adapter(shape).json_schema(schema_generator=_PlainSchema)


def eval_config_schema_text() -> str:
    """The exact text of `docs/eval-config.schema.json`."""
    return json.dumps(_schema_of(ConfigShape), indent=2, ensure_ascii=False) + "\n"


def faults(value: object, path: str, shape: Any = ConfigShape) -> dict[str, tuple[str, ConfigProblem]]:
    """Check `value` against one of the shapes: the first fault at each path, with its keyword.

    Features and harness inside a config have readers of their own.
    """
    found: dict[str, tuple[str, ConfigProblem]] = {}
    try:
        _adapter(shape).validate_python(value, strict=True)
    except ValidationError as bad:
        errors = bad.errors(include_url=False, include_context=False)
        errors.sort(key=lambda error: error["type"] != "extra_forbidden")  # a typo before what it hides
        for error in errors:
            if shape is ConfigShape and len(error["loc"]) > 1:
                continue
            keyword = _KEYWORDS.get(error["type"], error["type"].rpartition("_")[2])
            place = path
            for key in error["loc"]:
                place = at(place, key)
            found.setdefault(place, (keyword, ConfigProblem(place, *_explain(error, keyword, shape))))
    return found


def _explain(error: Any, keyword: str, shape: Any) -> tuple[object, str, str]:
    *steps, last = error["loc"] or ("",)
    if keyword == "additionalProperties":
        known = tuple(_part(shape, steps)["properties"])
        return shown(error["input"]), f"The key {last[:60]!r} is unknown.", suggestion(last, known)
    part = _part(shape, error["loc"])
    if keyword == "required":
        example = (part.get("examples") or ["…"])[0]
        return None, f"The key {last!r} is missing.", f'Add "{last}": {json.dumps(example)}.'
    said = part.get("errorMessage")
    said = said.get(keyword) if isinstance(said, dict) else said
    if said:
        return shown(error["input"]), *split_message(said)
    choices = [str(choice) for choice in part.get("enum", [part.get("const")])]
    hint = suggestion(error["input"], choices) if isinstance(error["input"], str) else f"One of: {', '.join(choices)}."
    return shown(error["input"]), f"{last} has no such value.", f"{hint} Or leave it out."


def _part(shape: Any, steps: Sequence[Any]) -> dict[str, Any]:
    """What the schema of `shape` says about the place behind these steps."""
    root = found = _schema_of(shape)
    for step in steps:
        found = found["items"] if isinstance(step, int) else found["properties"].get(step, {})
        while "$ref" in found:
            found = root["$defs"][found["$ref"].rpartition("/")[2]]
    return found


def split_message(said: str) -> tuple[str, str]:
    """Split a message of the schema: the first sentence is the reason, the rest the remedy."""
    reason, _, remedy = said.partition(". ")
    return f"{reason}.", remedy
