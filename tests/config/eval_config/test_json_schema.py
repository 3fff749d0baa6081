"""The published schema and the parser agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.support.configs import CRITERIA, errors

from clara_eval.config.eval_config import (
    FeatureSchema,
    collect_problems,
    compile_schema,
    parse_eval_config,
)
from clara_eval.config.eval_config.catalogue import KINDS, template_text
from clara_eval.config.eval_config.shape import RESERVED, eval_config_schema_text, split_message

SCHEMA = Draft202012Validator(json.loads(eval_config_schema_text()))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_starter_configs_are_without_fault(name: str) -> None:
    """Each template is valid by parser and schema, and gives no warning."""
    assert collect_problems(template_text(name)) == []
    assert SCHEMA.is_valid(json.loads(template_text(name)))


def test_the_published_schema_is_current() -> None:
    """docs/eval-config.schema.json is what the code says (scripts/write_eval_config_schema.py writes it), and a valid schema."""
    published = Path(__file__).parents[3] / "docs" / "eval-config.schema.json"
    assert published.read_text(encoding="utf-8") == eval_config_schema_text()
    Draft202012Validator.check_schema(json.loads(eval_config_schema_text()))


NAMES = st.from_regex(r"\A[a-z][a-z0-9_]{0,39}\Z").filter(lambda name: name not in RESERVED)
WORDS = st.text(alphabet="abcdefghij ,;()", max_size=60)
WEIGHTS = st.floats(min_value=0.001, max_value=1000) | st.integers(min_value=1, max_value=1000)


@st.composite
def good_features(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["number", "integer", "boolean", "enum", "text"]))
    feature: dict[str, Any] = {"name": draw(NAMES), "type": kind, "description": draw(WORDS)}
    if draw(st.booleans()):
        feature["weight"] = draw(WEIGHTS)
    if kind != "text" and draw(st.booleans()):
        feature["better"] = draw(st.sampled_from(["higher", "lower"]))
    if kind in {"number", "integer"}:
        low = draw(st.integers(min_value=-1000, max_value=1000))
        feature |= {"min": low, "max": low + draw(st.integers(min_value=1, max_value=50))}
    if kind == "enum":
        value = st.from_regex(r"\A[a-z0-9_-]{1,24}\Z")
        feature["values"] = draw(st.lists(value, min_size=2, max_size=12, unique=True))
    return feature


@st.composite
def good_configs(draw: st.DrawFn) -> dict[str, Any]:
    features = draw(
        st.lists(
            good_features() | NAMES,
            min_size=1,
            max_size=6,
            unique_by=lambda item: item if isinstance(item, str) else item["name"],
        )
    )
    config: dict[str, Any] = {"version": 1, "features": [*features, "x_always_present"], "criteria": CRITERIA}
    for key, values in (("submissionFormat", ["code", "text", "url", "json"]), ("language", ["go", "C#"])):
        if draw(st.booleans()):
            config[key] = draw(st.sampled_from(values))
    return config


@settings(max_examples=60)
@given(good_configs())
def test_good_configs_are_accepted_by_parser_and_schema(document: dict[str, Any]) -> None:
    """A config within the rules parses, validates, compiles, and survives the trace's JSON form."""
    names = [item if isinstance(item, str) else item["name"] for item in document["features"]]
    assert SCHEMA.is_valid(document)
    commands = [problem for problem in errors(json.dumps(document)) if "command" in problem.reason]
    assert errors(json.dumps(document)) == commands
    if commands or len(set(names)) < len(names):
        return
    config = parse_eval_config(json.dumps(document))
    schema, _ = compile_schema(config)
    assert schema.names == tuple(names)
    assert FeatureSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert json.loads(config.canonical) == document


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(good_configs(), st.data())
def test_what_the_schema_refuses_the_parser_refuses(document: dict[str, Any], data: st.DataObject) -> None:
    """Any value anywhere in a config: if the schema says no, the parser says no, and neither crashes."""
    mutated = json.loads(json.dumps(document))
    holder = mutated
    typed_features = [item for item in mutated["features"] if isinstance(item, dict)]
    inside: bool = data.draw(st.booleans())
    if typed_features and inside:
        holder = data.draw(st.sampled_from(typed_features))
    key = data.draw(st.sampled_from([*holder, "min", "values", "anchors", "extra"]))
    holder[key] = data.draw(JSON_VALUES)
    if not SCHEMA.is_valid(mutated):
        assert errors(json.dumps(mutated))


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_noise_is_refused_without_a_crash(noise: bytes | str) -> None:
    """Random bytes and texts are errors."""
    assert errors(noise)


def messages(schema: object) -> Iterator[str]:
    """Every sentence that the schema says about a value it refuses, wherever it stands."""
    if isinstance(schema, dict):
        said = schema.get("errorMessage", {})
        yield from [said] if isinstance(said, str) else said.values()
        for inner in schema.values():
            yield from messages(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from messages(inner)


def test_every_message_of_the_schema_is_a_reason_and_a_remedy() -> None:
    """Each splits into a sentence that says what is wrong and one or more that say what to write instead."""
    found = list(messages(json.loads(eval_config_schema_text())))
    assert len(found) > 5
    for said in found:
        reason, remedy = split_message(said)
        assert reason.endswith("."), said
        assert remedy.endswith("."), said
        assert remedy[0].isupper(), said
        assert f"{reason} {remedy}" == said
