"""What a service refuses is told as its own reason, not as the bytes of its answer."""

from __future__ import annotations

import json

import pytest

from clara_eval.actions.objections import refusal
from clara_eval.core.errors import BadInput, ClaraError, NotFound, NotYet
from clara_eval.interfaces.cli.output import code_of

PROBLEM = json.dumps({"type": "urn:x", "title": "T", "detail": "0xab has objected already.", "remedy": "One counts."})


@pytest.mark.parametrize(("status", "kind", "code"), [(409, NotYet, 1), (404, NotFound, 1), (422, BadInput, 2)])
def test_a_refusal_has_the_kind_of_its_status(status: int, kind: type[ClaraError], code: int) -> None:
    """A "no" of the service ends a command with 1, wrong input with 2, and the sentence is the service's."""
    error = refusal("objection", status, PROBLEM)
    assert type(error) is kind
    assert code_of(error) == code
    assert str(error) == "The service refuses the objection: 0xab has objected already. One counts."


@pytest.mark.parametrize("text", ["", "<html>", "[]", "null", '{"title": "x"}', "[" * 100_000])
def test_an_answer_that_is_no_problem_document_is_not_quoted(text: str) -> None:
    """A page of a proxy, or anything else, is named by its status alone."""
    error = refusal("reveal", 502, text)
    assert str(error) == "The service refuses the reveal (502). Check CLARA_API_URL."
