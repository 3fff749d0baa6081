"""The shape of an eval config: models, their JSON Schema, and the faults of a document.

Rules about several values (unique names, min below max, what a type allows) are checked in `reading`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError, ValidationError

from clara_eval.config.eval_config.catalogue import COMMON, EXECUTED, MEASURED
from clara_eval.config.eval_config.model import Better, FeatureType, IfNotRevealed, Source, SubmissionFormat
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput
from clara_eval.core.model import LARGEST_NUMBER, HarnessLanguage

NAME = "^[a-z][a-z0-9_]{0,39}$"
RESERVED = frozenset(
    """a address agent_id assistant author b canary check check_lines confidence constructor criteria decoy elo evidence
    features flags loser nonce prototype rank reason score scores submission submitted_at submitter system tie user
    verdict winner""".split()  # noqa: SIM905 - a list would take thirty-four lines
)  # Words with a meaning in answers, results, programs or chat templates, or about the submitter.
MAX_CRITERIA, MAX_DESCRIPTION = 4_000, 300
LEFT_OUT: Any = None  # the default of optional keys; null itself is refused
TYPES_WITH = {"min": ("number", "integer"), "max": ("number", "integer"), "values": ("enum",), "anchors": ("integer",)}
"""The types for which a key has a meaning."""
MAX_LISTED = 20  # errors that one message lists
_KINDS = get_args(FeatureType)
_NO_NAME = "This is not a usable feature name. Lower-case letters, digits and _, starting with a letter, at most 40."


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    path: str  # for example `$.features[2].min`
    value: object
    reason: str
    remedy: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} {self.remedy}".strip()

    def to_json(self) -> dict[str, object]:
        return to_camel_json(self)


class BadEvalConfig(BadInput):
    """A config with at least one error; the message lists the errors, `problems` also has warnings."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        errors = [problem for problem in self.problems if problem.severity == "error"]
        first = errors[0]
        more = f"\n… and {len(errors) - MAX_LISTED} more errors." if len(errors) > MAX_LISTED else ""
        super().__init__(
            f"The eval config is not usable. {first.path}: {first.reason}",
            path=first.path,
            value=first.value,
            remedy=first.remedy + "".join(f"\n{problem}" for problem in errors[1:MAX_LISTED]) + more,
        )


@dataclass(slots=True)
class ProblemReport:
    problems: list[ConfigProblem] = field(default_factory=list)
    is_lenient: bool = False  # for posted challenges: `forbid` adds to `waived` and stops nothing
    waived: list[ConfigProblem] = field(default_factory=list)

    def error(self, path: str, value: object, reason: str, remedy: str) -> None:
        self.problems.append(ConfigProblem(path, shorten(value), reason, remedy))

    def warn(self, path: str, value: object, reason: str, remedy: str) -> None:
        self.problems.append(ConfigProblem(path, shorten(value), reason, remedy, "warning"))

    def forbid(self, path: str, value: object, reason: str, remedy: str) -> None:
        """Report what a poster must correct before posting, but an evaluation accepts."""
        (self.waived if self.is_lenient else self.problems).append(ConfigProblem(path, shorten(value), reason, remedy))

    @property
    def failed(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)


def shorten(value: object, limit: int = 120) -> object:
    """Return a value that is short enough for a message."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[:limit] + "…"


def at(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) else f"{path}[{json.dumps(key[:60])}]"


def suggestion(word: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """Return `Did you mean "x"?`, or the list of known words."""
    names = list(known)
    folded = {re.sub("[_-]", "", name.lower()): name for name in names}
    close = difflib.get_close_matches(re.sub("[_-]", "", word.lower()), folded, n=1, cutoff=similarity)
    return f'Did you mean "{folded[close[0]]}"?' if close else f"Known: {', '.join(names)}."


def _checked(message: Any, default: Any = ..., *, extra: Any = None, **rules: Any) -> Any:
    """Return a field; `message` is the reason and the remedy of an error, for all rules or by keyword."""
    return Field(default, json_schema_extra={"errorMessage": message, **(extra or {})}, **rules)


def _unreserved(name: str) -> str:
    if name in RESERVED:
        raise PydanticCustomError("not", "reserved")
    return name


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("const", "a boolean")
    return value


def _bound(key: str, description: str) -> Any:
    message = f"{key} is not a number of reasonable size. Within ±1e12."
    return _checked(message, LEFT_OUT, ge=-LARGEST_NUMBER, le=LARGEST_NUMBER, description=description)


def _program(key: str, description: str) -> Any:
    message = f"The {key} is not a text. Write the program, or leave it out."
    return _checked(message, LEFT_OUT, pattern=r"\S", description=description)


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
    str, _checked("This is not a usable enum value. Match ^[a-z0-9_-]{1,24}$.", pattern="^[a-z0-9_-]{1,24}$")
]
Anchor = Annotated[
    str, _checked("An anchor is a sentence of up to 200 characters. Mend it.", min_length=1, max_length=200)
]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class FeatureShape(_Document):
    """A typed feature. A name of the catalogue may leave out what the catalogue says."""

    model_config = ConfigDict(
        title="feature",
        json_schema_extra={
            "errorMessage": {"type": 'A feature is a name or an object. For example "novelty" or {"name": …}.'},
            "allOf": [
                {
                    "if": {
                        "required": ["type"],
                        "properties": {"type": {"enum": [kind for kind in _KINDS if kind not in types]}},
                    },
                    "then": {"properties": {key: False}},
                }
                for key, types in {**TYPES_WITH, "better": _KINDS[:-1]}.items()
            ],
        },
    )
    name: FeatureName
    type: FeatureType = Field(LEFT_OUT, description="`text` is for people and never reaches the judge.")
    min: float = _bound("min", "Smaller values are clamped to it.")
    max: float = _bound("max", "Larger values are clamped to it.")
    values: list[EnumValue] = _checked(
        'An enum has 2 to 12 values. For example ["low", "medium", "high"].',
        LEFT_OUT,
        min_length=2,
        max_length=12,
        description='The closed list of an enum. With better "higher", later values are better.',
        extra={"uniqueItems": True},
    )
    better: Better = Field(
        LEFT_OUT, description="Which end is good; for booleans `higher` means true. Left out: the criteria decide."
    )
    weight: float = _checked(
        "The weight is not a number above 0 and at most 1000. "
        'For less important features use small weights; for "less is better" use "better": "lower".',
        LEFT_OUT,
        gt=0,
        le=1000,
        description="1 if left out.",
    )
    source: Source = Field(
        LEFT_OUT, description=f"`measured` is computed by a tool: {', '.join([*MEASURED, *EXECUTED])}."
    )
    description: str = _checked(
        "The description is not a text of up to 300 characters. Cut it.", LEFT_OUT, max_length=MAX_DESCRIPTION
    )
    anchors: list[Anchor] = _checked(
        "Anchors are 2 to 12 sentences of up to 200 characters. Mend them.",
        LEFT_OUT,
        min_length=2,
        max_length=12,
        description="For an integer: what each level from min to max means.",
    )


class HarnessShape(_Document):
    """The program that runs every submission: setUp, test_… and metric_… functions."""

    model_config = ConfigDict(
        title="harness",
        json_schema_extra={
            "errorMessage": {
                "type": 'The harness is not an object. For example {"language": "solidity", "source": "…"}.'
            },
            "if": {"required": ["hidden"], "properties": {"hidden": {"const": True}}},
            "else": {"required": ["source"], "properties": {"ifNotRevealed": False}},
        },
    )
    language: HarnessLanguage = _checked(
        "This language cannot be executed. One of: solidity, javascript, python.", examples=["solidity"]
    )
    source: str = _program("source", "The public harness.")
    hidden: bool = _checked(
        "hidden is true or false. Write true, or leave it out.",
        LEFT_OUT,
        description="Committed by privateSetHash, revealed after the deadline.",
    )
    if_not_revealed: IfNotRevealed = Field(LEFT_OUT, description="`public`: go on without it; `fail`: do not post.")
    reference: str = _program("reference", "A solution that passes: the harness is checked with it.")


class ConfigShape(_Document):
    """What makes a submission to a challenge good."""

    model_config = ConfigDict(
        title="Clara Eval config",
        json_schema_extra={
            "errorMessage": {"type": "The eval config is not a JSON object. Write { … } with version and features."},
            "$schema": "https://json-schema.org/draft/2020-12/schema",
        },
    )
    version: Annotated[Literal[1], BeforeValidator(_no_boolean)] = _checked(
        'Only version 1 exists. Write "version": 1.', description="The version of this format.", examples=[1]
    )
    features: list[
        Annotated[
            Annotated[FeatureName, Tag("name")] | Annotated[FeatureShape, Tag("feature")],
            Discriminator(lambda item: "name" if isinstance(item, str) else "feature"),
        ]
    ] = _checked(
        {
            "type": "The features are not a list. Write [ … ] with 1 to 20 items.",
            "minItems": "There are no features. Give 1 to 20.",
            "maxItems": "There are too many features. Give 1 to 20.",
        },
        min_length=1,
        max_length=20,
        description="What is observed in each submission: names, or objects with a type.",
        examples=[["correctness", "readability"]],
    )
    criteria: str = _checked(
        {
            "maxLength": "The criteria are too long. At most 4,000 characters.",
            "type": "The criteria are not a text. Say in words what makes one solution better than another.",
            "pattern": "The criteria are empty: the features alone decide. "
            "Say in words what makes one solution better than another.",
        },
        max_length=MAX_CRITERIA,
        pattern=r"\S",
        description="What makes one solution better than another, in words. No addresses, URLs or hashes.",
        examples=["The best solution is right for every input; among those, the simplest."],
    )
    submission_format: SubmissionFormat = Field(LEFT_OUT, description="What agents submit.")
    language: str = _checked(
        'This is not the name of a language. For example "solidity".',
        LEFT_OUT,
        pattern="^[A-Za-z0-9][A-Za-z0-9+#. _-]{0,39}$",
        description="The programming language, as a hint.",
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
}  # JSON Schema keywords of pydantic's errors; other errors end with the keyword, as `string_type`.


class _PlainSchema(GenerateJsonSchema):
    """Generates the schema without titles of fields and without defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is pydantic's
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])


_adapter = cache(TypeAdapter)


@cache
def _schema_of(shape: Any) -> dict[str, Any]:
    return _adapter(shape).json_schema(schema_generator=_PlainSchema)


def eval_config_schema_text() -> str:
    """Return the exact text of `docs/eval-config.schema.json`."""
    return json.dumps(_schema_of(ConfigShape), indent=2, ensure_ascii=False) + "\n"


def find_faults(value: object, path: str, shape: Any = ConfigShape) -> dict[str, tuple[str, ConfigProblem]]:
    """Check `value` against a shape, and return the first fault at each path, with its keyword.

    Faults inside features and the harness of a config are left out: these are checked on their own.
    """
    found: dict[str, tuple[str, ConfigProblem]] = {}
    try:
        _adapter(shape).validate_python(value, strict=True)
    except ValidationError as bad:
        errors = bad.errors(include_url=False, include_context=False)
        errors.sort(key=lambda error: error["type"] != "extra_forbidden")  # a misspelt key before a missing one
        for error in errors:
            if shape is ConfigShape and len(error["loc"]) > 1:
                continue
            keyword = _KEYWORDS.get(error["type"], error["type"].rpartition("_")[2])
            place = reduce(at, error["loc"], path)
            found.setdefault(place, (keyword, ConfigProblem(place, *_explain(error, keyword, shape))))
    return found


def _explain(error: Any, keyword: str, shape: Any) -> tuple[object, str, str]:
    given, (*steps, last) = shorten(error["input"]), error["loc"] or ("",)
    if keyword == "additionalProperties":
        return given, f"The key {last[:60]!r} is unknown.", suggestion(last, _schema_at(shape, steps)["properties"])
    part = _schema_at(shape, error["loc"])
    if keyword == "required":
        example = json.dumps((part.get("examples") or ["…"])[0])
        return None, f"The key {last!r} is missing.", f'Add "{last}": {example}.'
    message = part.get("errorMessage")
    message = message.get(keyword) if isinstance(message, dict) else message
    if message:
        return given, *split_message(message)
    choices = [str(choice) for choice in part.get("enum", [part.get("const")])]
    hint = suggestion(error["input"], choices) if isinstance(error["input"], str) else f"One of: {', '.join(choices)}."
    return given, f"{last} has no such value.", f"{hint} Or leave it out."


def _schema_at(shape: Any, steps: Sequence[Any]) -> dict[str, Any]:
    """Return the part of the schema of `shape` that these steps lead to."""
    root = found = _schema_of(shape)
    for step in steps:
        found = found["items"] if isinstance(step, int) else found["properties"].get(step, {})
        while "$ref" in found:
            found = root["$defs"][found["$ref"].rpartition("/")[2]]
    return found


def split_message(message: str) -> tuple[str, str]:
    """Split a message of the schema: the first sentence is the reason, the rest the remedy."""
    reason, _, remedy = message.partition(". ")
    return f"{reason}.", remedy
