"""Prompts that ask a model for the features of a submission or for feature types, and their parsing.

Invariant: the tags hold a nonce from a block after the deadline, so no submitter can write the closing tag.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clara_eval.config.eval_config import EvalConfig, Feature, FeatureSchema, level_feature
from clara_eval.core.errors import BadAnswer
from clara_eval.core.hashing import plain_json
from clara_eval.core.model import LARGEST_NUMBER
from clara_eval.core.strict_json import SAFE_INTEGER, JsonLimits
from clara_eval.judge.comparison import Value, describe, is_of_type
from clara_eval.judge.port import AnswerCut, Prompt
from clara_eval.judge.reading import escaped, object_schema, prompt_view, read_object, shown, template, template_hash
from clara_eval.judge.structured_llm import StructuredLlm

CHUNK_TOKENS = 24_000
TEXT_LENGTH = 500  # characters of a `text` feature that are kept, for people
LINE_TOLERANCE = 1  # lines by which a model may miscount the text: it often leaves out an empty last line
STATEMENT_LENGTH = 6_000  # characters of the problem statement that are shown; the prompt says if there are more
DECOYS = {
    "loops": "How many loops it has.",
    "helpers": "How many small functions or side remarks it has.",
    "steps": "How many separate steps it takes.",
    "cases": "How many different cases it treats one by one.",
    "formulas": "How many formulas it holds.",
    "references": "How many other works or libraries it names.",
}
"""Counts without effect on the ranking; a block mined after the deadline selects the one to ask for."""
MOST_COUNTED = 100_000
LINE = "_line"
VIEWS = {
    "full": "It is shown as it was handed in.",
    "neutral": "We changed it on purpose: names were replaced by neutral ones; comments, the contents of strings and "
    "code that nothing calls were removed. Describe what the code does, do not hold against it what we removed, and "
    "report null for facts that only that could show.",
}


class BadCanary(BadAnswer):
    """The answer does not prove that the model read task and data, so it is not used."""


@dataclass(frozen=True, slots=True)
class Canary:
    check: int
    rows: tuple[bool, ...]  # for each line of the text, whether it is not empty
    decoy: str = ""
    words: int = 0  # words of the text: an upper bound for any count


@dataclass(frozen=True, slots=True)
class Claims:
    """A model's claims about one part: typed values, and texts for people."""

    values: dict[str, Value]
    texts: dict[str, str]
    shown: frozenset[str] = frozenset()  # features for which the model named an existing line that is not empty


@dataclass(frozen=True, slots=True)
class Question:
    prompt: Prompt
    canary: Canary
    nonce: str
    shown: str  # the part of the prompt view that this prompt shows, before escaping


@dataclass(frozen=True, slots=True)
class Subject:
    """The input of the nonce: nothing about the author, the time or other submissions."""

    block_hash: str
    challenge: str
    content_hash: str
    view: str


@dataclass(frozen=True, slots=True)
class FeatureQuestion:
    """The problem statement, which is the poster's text, with a sentence of ours that introduces it."""

    text: str
    introduction: str  # holds nothing that the poster wrote

    @classmethod
    def of(cls, statement: str, language: str | None) -> FeatureQuestion:
        whole = prompt_view(statement).text.strip()
        shown_part = whole[:STATEMENT_LENGTH].rstrip()
        cut = f"; the first {STATEMENT_LENGTH} of {len(whole)} characters" if len(whole) > STATEMENT_LENGTH else ""
        named = f"Language: {' '.join(prompt_view(language).text.split())[:60]}\n\n" if language else ""
        introduction = f"What the competition asked for, between the tags for the task{cut}:"
        return cls((named + shown_part).strip() or "Nothing was stated.", introduction)


NOTHING_ASKED = FeatureQuestion.of("", None)


def asked_features(schema: FeatureSchema) -> tuple[Feature, ...]:
    return tuple(feature for feature in schema.features if feature.source == "llm")


def extraction_questions(
    schema: FeatureSchema, text: str, subject: Subject, asked: FeatureQuestion = NOTHING_ASKED
) -> tuple[Question, ...]:
    """Make one question per part of `text`, which is a prompt view; the parts together are the text."""
    parts, features, decoy = split(text), asked_features(schema), choose_decoy(schema, subject)
    system = template("extract.system").fill(features="\n".join(describe(f) for f in (*features, decoy)))
    schema_json = plain_json(answer_schema(schema, decoy))
    max_tokens = 220 + sum(400 if feature.type == "text" else 60 for feature in features)
    files = template_hash("extract.system", "extract.user")
    questions = []
    for number, part in enumerate(parts):
        nonce, check = derive_nonce(subject, number, f"{text}\n{asked.text}")
        partial = f"It is part {number + 1} of {len(parts)}: report null for facts that this part alone does not show."
        user = template("extract.user").fill(
            nonce=nonce,
            check=str(check),
            view=VIEWS[subject.view],
            part=partial if len(parts) > 1 else "It is complete.",
            asked=asked.introduction,
            task=escaped(asked.text),
            submission=escaped(numbered(part)),
        )
        prompt = Prompt("features", system, user, schema_json, max_tokens, files)
        rows = tuple(bool(row.strip()) for row in part.split("\n"))
        canary = Canary(check, rows, decoy.name, len(part.split()))
        questions.append(Question(prompt, canary, nonce, part))
    return tuple(questions)


def choose_decoy(schema: FeatureSchema, subject: Subject) -> Feature:
    """Choose a decoy count that is no feature of the schema, by a block mined after the deadline."""
    taken = {feature.name for feature in schema.features}
    names = [name for name in DECOYS if name not in taken]
    digest = hashlib.sha256(plain_json([subject.block_hash, subject.challenge, "decoy"]).encode()).digest()
    name = names[digest[0] % len(names)] if names else "loops_counted"
    while name in taken:  # otherwise the poster's own feature would be checked as the decoy
        name += "_"
    return Feature(
        name, "integer", min=0, max=MOST_COUNTED, better="higher", description=DECOYS.get(name, DECOYS["loops"])
    )


def derive_nonce(subject: Subject, part: int, text: str) -> tuple[str, int]:
    """Derive a 96-bit nonce for the tags and a six-digit check number that the text does not contain."""
    lowered = text.casefold()
    for counter in range(1_000_000):
        body = [subject.block_hash, subject.challenge, subject.content_hash, subject.view, part, counter]
        digest = hashlib.sha256(plain_json(body).encode()).hexdigest()
        nonce, check = digest[:24], 100_000 + int(digest[24:40], 16) % 900_000
        if nonce not in lowered and str(check) not in text:
            return nonce, check
    raise AssertionError("No text of admissible size holds every check number.")


def split(text: str) -> tuple[str, ...]:
    """Split the text into parts of at most `CHUNK_TOKENS` estimated tokens, at line ends if possible."""
    if 3 * len(text) <= CHUNK_TOKENS:
        return (text,)
    parts: list[str] = []
    start, used, line_end, position = 0, 0.0, 0, 0
    for position, char in enumerate(text):
        used += token_weight(char)
        if used > CHUNK_TOKENS:
            end = line_end if line_end > start else position
            parts.append(text[start:end])
            used = sum(token_weight(char) for char in text[end : position + 1])
            start = end
        if char == "\n":
            line_end = position + 1
    return (*parts, text[start:]) if start < len(text) or not parts else tuple(parts)


def token_weight(char: str) -> float:
    """Estimate the tokens of a character; a line end includes the number of its line."""
    return 3.0 if char == "\n" else 1 / 3 if char.isascii() else 2.0


def numbered(text: str) -> str:
    """Put a number before each line, so that a model can name lines without counting them."""
    return "\n".join(f"{number}| {row}" for number, row in enumerate(text.split("\n"), 1))


def line_fields(schema: FeatureSchema) -> dict[str, str]:
    taken = {feature.name for feature in schema.features}
    fields: dict[str, str] = {}
    for feature in asked_features(schema):
        if feature.type != "text":
            field = feature.name + LINE
            while field in taken:
                field += "_"
            taken.add(field)
            fields[feature.name] = field
    return fields


def answer_schema(schema: FeatureSchema, decoy: Feature | None = None) -> dict[str, object]:
    """Make the JSON Schema of an answer, within strict modes: no ranges, and every feature nullable."""
    properties: dict[str, object] = {
        "check": {"type": "integer", "description": "The check number stated in the task."},
        "check_lines": {"type": "integer", "description": "The number before the last line of the submission."},
    }
    for feature in (*asked_features(schema), *([decoy] if decoy else [])):
        properties[feature.name] = {"anyOf": [_value_schema(feature), {"type": "null"}]}
    for name, field in line_fields(schema).items():
        line = {"type": "integer", "description": f"The number before a line that shows {name}."}
        properties[field] = {"anyOf": [line, {"type": "null"}]}
    return object_schema(**properties)


def _value_schema(feature: Feature) -> dict[str, object]:
    if feature.type == "enum":
        return {"type": "string", "enum": list(feature.values)}
    if feature.type == "text":
        return {"type": "string", "description": f"At most {TEXT_LENGTH} characters."}
    if feature.type == "boolean":
        return {"type": "boolean"}
    return {"type": feature.type, "description": f"From {feature.low:g} to {feature.high:g}."}


def read_claims(text: str, schema: FeatureSchema, canary: Canary) -> Claims:
    """Read an answer. Raises BadAnswer for a wrong type or canary; ranges are checked later."""
    asked, lines = asked_features(schema), line_fields(schema)
    fields = ["check", "check_lines", *(feature.name for feature in asked)]
    answer = read_object(text, fields, optional=[canary.decoy, *lines.values()])
    _check_canary(answer, canary)
    values: dict[str, Value] = {}
    texts: dict[str, str] = {}
    for feature in asked:
        value = answer[feature.name]
        if feature.type != "text":
            values[feature.name] = _check_type(feature, value)
        elif isinstance(value, str):
            texts[feature.name] = shown(value, TEXT_LENGTH)
        elif value is not None:
            raise BadAnswer(f"{feature.name} is not a text.")
    cited = (name for name, field in lines.items() if _is_text_line(answer.get(field), canary.rows))
    return Claims(values, texts, frozenset(cited))


def _check_canary(answer: Mapping[str, object], canary: Canary) -> None:
    if answer["check"] != canary.check or isinstance(answer["check"], bool):
        raise BadCanary("The check number is wrong: the answer does not follow the task.")
    lines = answer["check_lines"]
    if not isinstance(lines, int) or isinstance(lines, bool) or abs(lines - len(canary.rows)) > LINE_TOLERANCE:
        raise BadCanary("The number of lines is wrong: the answer does not describe the data.")
    counted = answer.get(canary.decoy)
    if isinstance(counted, (int, float)) and counted > max(canary.words, 20):
        raise BadCanary(
            f"It counts more {canary.decoy} than the text has words: the answer does not describe the data."
        )


def _is_text_line(line: object, rows: tuple[bool, ...]) -> bool:
    """Return whether the line or a neighbour is not empty: models miscount by one."""
    if not isinstance(line, int) or isinstance(line, bool) or not 0 <= line <= len(rows):
        return False
    return any(rows[max(0, line - 2) : line + 1])


def _check_type(feature: Feature, value: object) -> Value:
    is_whole = not isinstance(value, float) or (value.is_integer() and abs(value) <= SAFE_INTEGER)
    if (feature.type == "integer" and not is_whole) or not is_of_type(value, feature):
        raise BadAnswer(f"{feature.name} is not {feature.type} as the schema says.")
    return int(value) if feature.type == "integer" and value is not None else value


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
    asked = await llm.ask(typing_prompt(config, names), lambda text: read_types(text, names))
    if asked.outage is not None and not isinstance(asked.outage, AnswerCut):
        raise asked.outage  # a later run may get an answer, and the schema must not depend on an outage
    return tuple((asked.value or {}).get(name) or level_feature(name) for name in names)


def read_types(text: str, names: Sequence[str]) -> dict[str, Feature]:
    """Return the features with a valid type. Raises BadAnswer unless each name is typed exactly once."""
    items = read_object(text, ("features",), _LIMITS)["features"]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadAnswer("The features are not a list of objects.")
    if sorted(str(item.get("name")) for item in items) != sorted(names):
        raise BadAnswer("The answer does not type every name exactly once.")
    found = (_read_feature(item) for item in items)
    return {feature.name: feature for feature in found if feature is not None}


def _read_feature(item: dict[str, Any]) -> Feature | None:
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
