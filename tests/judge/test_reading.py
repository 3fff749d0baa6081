"""Answers of models are read strictly or not at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.core.errors import BadAnswer
from clara_eval.judge.comparison import VERDICT_SCHEMA, Verdict, read_verdict
from clara_eval.judge.reading import read_object, shown

GOOD = '{"winner": "A", "confidence": 0.9, "reason": "fewer branches"}'

BAD = {
    "nothing": "",
    "two objects": GOOD + GOOD,
    "two lines": GOOD + "\n" + GOOD,
    "an example before": 'Like {"winner": "B"}, so: ' + GOOD,
    "a brace in the words": "{A, B}: " + GOOD,
    "a bare word": '"A"',
    "null": "null",
    "duplicate keys": '{"winner": "B", "winner": "A", "confidence": 0.9, "reason": ""}',
    "NaN": '{"winner": "A", "confidence": NaN, "reason": ""}',
    "Infinity": '{"winner": "A", "confidence": Infinity, "reason": ""}',
    "overflow": '{"winner": "A", "confidence": 1e999, "reason": ""}',
    "too deep": '{"winner": "A", "confidence": 0.9, "reason": [[[1]]]}',
    "very deep": "[" * 15_000,
    "too large": '{"winner": "A", "confidence": 0.9, "reason": "' + "x" * 20_000 + '"}',
    "half a pair": '{"winner": "A", "confidence": 0.9, "reason": "\\ud800"}',
    "lone surrogate": '{"winner": "A", "confidence": 0.9, "reason": "\ud800"}',
    "extra field": '{"winner": "A", "confidence": 0.9, "reason": "", "note": "B is bad"}',
    "missing field": '{"winner": "A", "confidence": 0.9}',
    "other winner": '{"winner": "C", "confidence": 0.9, "reason": ""}',
    "lower case": '{"winner": "a", "confidence": 0.9, "reason": ""}',
    "list as winner": '{"winner": ["A"], "confidence": 0.9, "reason": ""}',
    "too sure": '{"winner": "A", "confidence": 1.1, "reason": ""}',
    "negative": '{"winner": "A", "confidence": -0.1, "reason": ""}',
    "true as number": '{"winner": "A", "confidence": true, "reason": ""}',
    "number as text": '{"winner": "A", "confidence": "0.9", "reason": ""}',
    "reason no text": '{"winner": "A", "confidence": 0.9, "reason": 7}',
    "cut": GOOD[:-1],
    "single quotes": "{'winner': 'A', 'confidence': 0.9, 'reason': ''}",
    "trailing comma": '{"winner": "A", "confidence": 0.9, "reason": "",}',
    "two fences": f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
    "long integer": '{"winner": "A", "confidence": ' + "9" * 5000 + ', "reason": ""}',
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_what_is_not_exactly_one_verdict_is_refused(name: str) -> None:
    """Every malformed answer is a BadAnswer with a reason; none becomes a verdict, none crashes."""
    with pytest.raises(BadAnswer) as refused:
        read_verdict(BAD[name])
    assert refused.value.message


AROUND = ("{}", "\n  {}\n", "```json\n{}\n```", "```\n{}\n```", "Sure! {}", "{} I hope this helps.", "[{}]", "\ufeff{}")


@pytest.mark.parametrize("around", [*AROUND, "Here:\n```JSON\n{}\n```\nA is better."])
def test_one_object_is_read(around: str) -> None:
    """The object alone, in any fence, or with words around it, is the same verdict."""
    text = around.replace("{}", GOOD)
    assert read_verdict(text) == Verdict("A", 0.9, "fewer branches")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """There is no text that does anything but give a verdict or a BadAnswer."""
    try:
        read_verdict(text)
    except BadAnswer:
        return
    assert json.loads(text[text.index("{") : text.rindex("}") + 1])


def test_the_reason_is_one_clean_short_line() -> None:
    """A model's words are shown to people: no control characters, no direction marks, no novels."""
    verdict = read_verdict(json.dumps({"winner": "B", "confidence": 1, "reason": "a\x1b[31m\nb\u202e" + "c" * 900}))
    assert verdict.reason.startswith("a[31m bcc")
    assert len(verdict.reason) == 300


def test_reasons_of_refusals_carry_no_control_characters() -> None:
    """A refusal quotes the answer harmlessly."""
    with pytest.raises(BadAnswer) as refused:
        read_object('{"a\\u001b[2J": 1, "a\\u001b[2J": 2}', ["a"])
    assert refused.value.message == shown(refused.value.message, 200)


def test_the_verdict_schema_is_closed() -> None:
    """Providers are asked for exactly the three fields of the specification."""
    assert VERDICT_SCHEMA["required"] == ["winner", "confidence", "reason"]
    assert VERDICT_SCHEMA["additionalProperties"] is False
