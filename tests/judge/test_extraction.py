"""Stage 1 prompts: the whole submission, as data, between tags nobody could foresee; answers with a right canary only."""

from __future__ import annotations

import json
import unicodedata
from html import unescape
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.errors import BadAnswer
from clara_eval.judge.extraction import (
    CHUNK_TOKENS,
    BadCanary,
    Canary,
    Subject,
    answer_schema,
    derive_nonce,
    extraction_questions,
    numbered,
    read_claims,
    split,
    token_weight,
)
from clara_eval.judge.reading import escaped, prompt_view
from clara_eval.redteam.simulators import without_numbers

SCHEMA = FeatureSchema(
    (
        Feature("correctness", "integer", min=0, max=4, better="higher", description="Right?"),
        Feature("speed", "number", min=0, max=1),
        Feature("works", "boolean"),
        Feature("family", "enum", values=("greedy", "search")),
        Feature("summary", "text"),
        Feature("lines", "integer", min=0, source="measured"),
    )
)
SUBJECT = Subject("0x" + "11" * 32, "0x" + "22" * 20, "0x" + "33" * 32, "full")
CANARY = Canary(123_456, (True,) * 7)
GOOD: dict[str, Any] = {
    "check": 123_456,
    "check_lines": 7,
    "correctness": 3,
    "speed": 0.5,
    "works": True,
    "family": None,
    "summary": "does it",
}
FORBIDDEN = {"Cc", "Cf", "Co", "Cn", "Cs"}


@settings(max_examples=200)
@given(st.text())
def test_the_view_has_nothing_invisible_and_is_stable(text: str) -> None:
    """No control, format, private or unassigned character is left, and looking again changes nothing."""
    view = prompt_view(text).text
    assert not [char for char in view if unicodedata.category(char) in FORBIDDEN and char not in "\n\t"]
    assert prompt_view(view).text == view
    assert unicodedata.is_normalized("NFKC", view)
    assert unescape(escaped(view)) == view
    assert not set("<>") & set(escaped(view))


def test_the_view_says_what_it_removed() -> None:
    """Hidden characters are counted by kind; ordinary text loses nothing."""
    hidden = "a\u200bb\u202ec\U000e0041\ufe0f\x1b\ue000"
    assert prompt_view(hidden).removed == (("control", 1), ("format", 3), ("private", 1), ("selector", 1))
    assert prompt_view("plain\r\ntext\twith ünïcödé 漢字\n").removed == ()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["x" * 5000, "line\n", "漢" * 3000, "\n", "y" * 80_000]), max_size=12))
def test_parts_are_the_whole(pieces: list[str]) -> None:
    """Nothing is cut away, doubled or moved, and no part is over the limit."""
    text = "".join(pieces)
    parts = split(text)
    assert "".join(parts) == text
    assert all(sum(map(token_weight, part)) <= CHUNK_TOKENS + 1 for part in parts)


def test_each_part_says_which_it_is() -> None:
    """A long submission is asked about in several prompts with different nonces, one system part for all."""
    questions = extraction_questions(SCHEMA, "x = 1\n" * 14_000, SUBJECT)
    assert len(questions) == 3
    assert "part 2 of 3" in questions[1].prompt.user
    assert len({question.nonce for question in questions}) == 3
    assert len({question.prompt.system for question in questions}) == 1


@pytest.mark.specification("3.1", "The submission is data inside `<submission>` tags")
@given(st.text(max_size=300))
def test_one_opening_and_one_closing_tag(text: str) -> None:
    """Whatever the text, the tags occur once each, with a nonce of 96 bits that is not in the text."""
    view = prompt_view(text).text
    (question,) = extraction_questions(SCHEMA, view, SUBJECT)
    user = question.prompt.user
    assert (user.count(f"<submission-{question.nonce}>"), user.count(f"</submission-{question.nonce}>")) == (1, 1)
    assert (user.count(f"<task-{question.nonce}>"), user.count(f"</task-{question.nonce}>")) == (1, 1)
    assert (user.count("<"), user.count(">")) == (4, 4)
    assert question.nonce not in text
    assert f">\n{escaped(numbered(view))}\n<" in user


def test_a_nonce_that_is_in_the_text_is_not_used() -> None:
    """Whoever guesses the nonce gets another one."""
    nonce, check = derive_nonce(SUBJECT, 0, "")
    assert derive_nonce(SUBJECT, 0, f"</submission-{nonce}>")[0] != nonce
    assert derive_nonce(SUBJECT, 0, f"</submission-{nonce.upper()}>")[0] != nonce
    assert derive_nonce(SUBJECT, 0, f"check is {check}")[1] != check


@pytest.mark.parametrize("changed", ["block_hash", "challenge", "content_hash", "view"])
def test_the_nonce_depends_on_all_of_the_subject(changed: str) -> None:
    """Another block, challenge, content or view has another nonce."""
    fields = {name: getattr(SUBJECT, name) for name in ("block_hash", "challenge", "content_hash", "view")}
    assert derive_nonce(Subject(**fields | {changed: "0x44"}), 0, "") != derive_nonce(SUBJECT, 0, "")


@pytest.mark.specification("3.1", "Extract structured features WITHOUT scoring")
def test_the_answer_schema_is_closed_and_strict() -> None:
    """Every field required, nothing else allowed, every feature nullable, measured features not asked for, no ranges."""
    schema = json.loads(json.dumps(answer_schema(SCHEMA)))
    assert schema["required"] == list(schema["properties"])
    assert schema["additionalProperties"] is False
    assert "lines" not in schema["properties"]
    assert {"type": "null"} in schema["properties"]["correctness"]["anyOf"]
    assert "minimum" not in json.dumps(schema)


def test_claims_are_read() -> None:
    """Values by type, texts apart."""
    claims = read_claims(json.dumps(GOOD), SCHEMA, CANARY)
    assert claims.values == {"correctness": 3, "speed": 0.5, "works": True, "family": None}
    assert claims.texts == {"summary": "does it"}


@pytest.mark.specification("5", "Layer 3: features must match expected types")
@pytest.mark.parametrize(
    "change",
    [
        {"correctness": "3"},
        {"correctness": 2.5},
        {"correctness": True},
        {"speed": "fast"},
        {"speed": False},
        {"works": 1},
        {"works": "true"},
        {"family": "best of all"},
        {"family": 1},
        {"summary": 7},
        {"summary": ["a"]},
        {"lines": 3},
        {"note": "hello judge"},
        {"correctness": {"value": 3}},
        {"correctness": 1e300},  # an integer that no trace can hold
    ],
)
def test_wrong_types_and_fields_are_refused(change: dict[str, Any]) -> None:
    """An answer that does not fit the schema is not repaired."""
    with pytest.raises(BadAnswer):
        read_claims(json.dumps(GOOD | change), SCHEMA, CANARY)


@pytest.mark.parametrize(
    "change",
    [
        {"check": 1},
        {"check": "123456"},
        {"check": None},
        {"check": [123456]},
        {"check_lines": 5},
        {"check_lines": 9},
        {"check_lines": 7.5},
        {"check_lines": "7"},
        {"check_lines": [7]},
        {"check_lines": {"7": True}},
        {"check_lines": None},
    ],
)
def test_a_wrong_canary_is_not_trusted(change: dict[str, Any]) -> None:
    """Who did not read task or data is not believed."""
    with pytest.raises(BadCanary):
        read_claims(json.dumps(GOOD | change), SCHEMA, CANARY)


@pytest.mark.parametrize("lines", [6, 7, 8])
def test_an_empty_last_line_may_be_left_out(lines: int) -> None:
    """A reader may be off by one line: whether an empty one counts is a matter of taste."""
    assert read_claims(json.dumps(GOOD | {"check_lines": lines}), SCHEMA, CANARY).values["correctness"] == 3


@given(st.text(max_size=300))
def test_every_line_is_shown_with_its_number(text: str) -> None:
    """The numbers are ours: a submission that writes its own keeps them, behind ours."""
    view = prompt_view(text).text
    rows = numbered(view).split("\n")
    assert rows == [f"{number}| {row}" for number, row in enumerate(view.split("\n"), 1)]
    assert without_numbers("\n".join(rows)) == view


def test_a_text_of_empty_lines_stays_within_a_part() -> None:
    """Numbers count as tokens too: lines of nothing do not make a prompt that is far too long."""
    questions = extraction_questions(SCHEMA, "\n" * 30_000, SUBJECT)
    assert max(len(question.prompt.user) for question in questions) < 8_200 * 8
