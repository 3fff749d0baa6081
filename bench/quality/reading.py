"""Ask a reader about the labelled submissions with the prompts of the product."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from bench.quality.answers import KeptAnswers
from bench.quality.truth import Submission, read_json, schema_of

from clara_eval.code.neutral import wanted_names
from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.errors import BadAnswer, BadInput
from clara_eval.core.hashing import sha256_hex
from clara_eval.evaluation.features.measured import neutral_view
from clara_eval.judge.extraction import (
    NOTHING_ASKED,
    FeatureQuestion,
    Question,
    Subject,
    asked_features,
    extraction_questions,
    line_fields,
    read_claims,
)
from clara_eval.judge.reading import prompt_view, read_object

BLOCK = "0x" + "11" * 32
CHALLENGE = "bench"


def question(
    one: Submission,
    schema: FeatureSchema,
    *,
    view: str = "full",
    stated: bool = True,
    text: str | None = None,
) -> Question | None:
    """Return the prompt of the product about a submission; None if it has no such view."""
    shown = one.text if text is None else text
    if view == "neutral":
        bare = neutral_view(shown, one.language, wanted_names(one.statement, "", ""))
        if bare is None:
            return None
        shown = bare
    subject = Subject(BLOCK, CHALLENGE, sha256_hex(one.text.encode()), view)
    asked = FeatureQuestion.of(one.statement, one.language) if stated else NOTHING_ASKED
    return extraction_questions(schema, prompt_view(shown).text, subject, asked)[0]


def evidence_first(question: Question, schema: FeatureSchema) -> Question:
    """Change the question so that the line of each feature comes before its value."""
    asked = json.loads(question.prompt.schema_json)
    properties, lines = asked["properties"], line_fields(schema)
    names = sorted(name for name in properties if name not in lines.values())
    order = [field for name in names for field in ([lines[name]] if name in lines else []) + [name]]
    asked["properties"] = {name: properties[name] for name in order}
    asked["required"] = order
    return replace(question, prompt=replace(question.prompt, schema_json=json.dumps(asked)))


BUCKETS = ((10, "under_10"), (100, "10_to_99"), (1000, "100_to_999"), (10**12, "1000_or_more"))
_NUMBER = re.compile(r"^\d+\| ", re.MULTILINE)


def before(question: Question) -> Question:
    """Change the question to the wording from before lines were numbered (decision 46)."""
    prompt = question.prompt
    system, user, asked = prompt.system, _NUMBER.sub("", prompt.user), json.loads(prompt.schema_json)
    for today, earlier in read_json("earlier.json").items():
        assert today in system + user, today
        system, user = system.replace(today, earlier), user.replace(today, earlier)
    asked["properties"]["check_lines"] = {"type": "string", "enum": [name for _, name in BUCKETS]}
    return replace(question, prompt=replace(prompt, system=system, user=user, schema_json=json.dumps(asked)))


def with_line_count(text: str, lines: int) -> str:
    """Replace a right range of lines in an answer to `before` by the number that is checked now."""
    possible = [lines / 1.5, lines, lines * 1.5]
    names = {next(name for limit, name in BUCKETS if count < limit) for count in possible}
    for name in names:
        text = re.sub(rf'("check_lines": *)"{name}"', rf"\g<1>{lines}", text)
    return text


async def read_one(
    reader: KeptAnswers, part: str, variant: str, one: Submission, asked: Question, schema: FeatureSchema
) -> dict[str, Any]:
    """Ask once; record the reported values, and the reason if our checks reject the answer."""
    paid = await reader.ask(asked.prompt)
    answer, reason = paid.answer, ""
    if variant == "before":
        answer = replace(answer, text=with_line_count(answer.text, len(asked.canary.rows)))
    said: dict[str, Any] = {}
    try:
        said = read_object(answer.text, ())
    except BadAnswer:
        said = _loose(answer.text)
    try:
        read_claims(answer.text, schema, asked.canary)
    except (BadAnswer, BadInput) as bad:
        reason = bad.message
    names = [feature.name for feature in asked_features(schema)]
    return {
        "part": part,
        "variant": variant,
        "item": one.name,
        "said": {name: said.get(name) for name in names},
        "lines": {name: said.get(field) for name, field in line_fields(schema).items()},
        "refused": reason,
    }


def _loose(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def one_feature(schema: FeatureSchema, name: str) -> FeatureSchema:
    return replace(schema, features=(schema.feature(name),))


def schema_for(one: Submission) -> FeatureSchema:
    return schema_of(one.kind)
