"""What the config's `submissionFormat` changes: what is accepted, as what it is measured, and what is refused in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.config.eval_config.model import SubmissionFormat
from clara_eval.core.address import Address
from clara_eval.core.errors import BadSubmission
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import Submission
from clara_eval.core.strict_json import json_shape
from clara_eval.evaluation.features.measured import measure
from clara_eval.submissions.model import Fetched, Rejected, Solution, check_submission

CODE = "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n"


def checked(text: str, form: SubmissionFormat | None, language: str | None = None) -> Solution | Rejected:
    content = text.encode()
    submission = Submission(Address("0x" + "11" * 20), 1, "data:,x", keccak_hex(content), 1, 1)
    return check_submission(submission, Fetched(content, "text/plain", immutable=True), language=language, form=form)


def code_of(found: Solution | Rejected) -> str:
    return found.code if isinstance(found, Rejected) else "accepted"


@pytest.mark.parametrize(
    ("text", "form", "code"),
    [
        ("42", None, "empty"),
        ("42", "code", "empty"),
        ("42", "text", "accepted"),
        ("Lisbon", "text", "accepted"),
        ("42", "json", "accepted"),
        ('{"answer": 42}', "json", "accepted"),
        (":", "text", "empty"),
        ("[]", "json", "empty"),
        ("The answer is 42, as everybody knows.", "json", "not_json"),
        ("{'answer': 42}", "json", "not_json"),
        ("[NaN, 1]", "json", "not_json"),
        ('{"a": 1} {"b": 2}', "json", "not_json"),
        ("[" * 65 + "1" + "]" * 65, "json", "not_json"),
        ("9" * 5_000, "json", "accepted"),
    ],
)
def test_a_format_says_what_is_accepted(text: str, form: SubmissionFormat | None, code: str) -> None:
    """A number or a word is an answer if text or JSON is asked for; what is not JSON is refused where JSON is."""
    assert code_of(checked(text, form)) == code


def test_what_is_not_json_is_told_where() -> None:
    """The verdict names the reason with its line and column."""
    found = checked('{"answer": 42,\n "reason": }', "json")
    assert isinstance(found, Rejected)
    assert found.reason == "It is not JSON: Expecting value: line 2 column 12 (char 26)."


def test_text_is_measured_as_prose_even_if_it_looks_like_code() -> None:
    """With `text` no parser and no second view is used; `code` and the poster's language keep theirs."""
    languages = {
        form: found.language for form in ("text", "code", None) if isinstance(found := checked(CODE, form), Solution)
    }
    assert languages == {"text": "text", "code": "python", None: "python"}
    assert measure(CODE, "text")["sentences"] is not None
    assert measure(CODE, "text")["functions"] is None
    hinted = checked(CODE, "text", "python")
    assert isinstance(hinted, Solution)
    assert hinted.language == "python"


def test_the_shape_of_json_is_measured() -> None:
    """Keys of all objects and levels of nesting; of anything else they are unknown."""
    found = measure('{"a": [{"b": "]]"}, {"c": {"d": 1}}], "e": 2}', "json")
    assert (found["json_keys"], found["json_depth"]) == (5, 4)
    assert measure("It has two sentences. It is prose.", None)["json_keys"] is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_every_json_has_a_shape(value: object) -> None:
    """What Python writes is read, and the depth is that of the value."""

    def depth(one: object) -> int:
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    assert json_shape(json.dumps(value))[0] == depth(value)


@given(st.text(max_size=200))
def test_anything_else_is_refused_and_nothing_raises(text: str) -> None:
    """Whatever the text, it has a shape or a reason."""
    try:
        assert json_shape(text)[0] <= 64
    except BadSubmission as bad:
        assert bad.code == "not_json"  # noqa: PT017 - most texts are none
