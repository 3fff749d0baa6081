"""Strangers' words stay marked, whatever they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.core.untrusted import bare, escaped, fence

ANY_TEXT = st.text(st.characters(), max_size=300)


@given(text=ANY_TEXT)
def test_a_text_cannot_leave_its_fence(text: str) -> None:
    """Whatever the text, there is one opening and one closing line, and the text stands between them."""
    field = fence(text, "poster")
    lines = field["text"].split("\n")
    assert re.fullmatch(r"<untrusted-[0-9a-f]{16}>", lines[0])
    assert lines[-1] == lines[0].replace("<", "</")
    assert lines[0] not in lines[1:-1]
    assert bare(field) == "\n".join(lines[1:-1])


@given(text=ANY_TEXT)
def test_nothing_invisible_is_left(text: str) -> None:
    """Control, bidirectional, zero-width and tag characters are spelled out."""
    assert all(c.isprintable() or c == "\n" for c in fence(text, "poster")["text"])
    assert escaped(text).isprintable()


@pytest.mark.parametrize("hidden", ["\U000e0101", "\ufe0f", "\u3164", "\u115f", "\u034f", "\u2800"])
def test_what_prints_but_is_not_seen_is_spelled_out(hidden: str) -> None:
    """Variation selectors and fillers, in which a whole text can hide, are not handed on as they are."""
    assert hidden not in fence(f"a{hidden}b", "poster")["text"]
    assert escaped(f"a{hidden}b") == f"a{hidden.encode('unicode_escape').decode()}b"


def test_long_texts_are_cut_and_say_so() -> None:
    """A capped field says that it was cut."""
    field = fence("x" * 1000, "submitter", limit=100)
    assert field["truncated"]
    assert bare(field) == "x" * 100


def test_two_fences_never_share_a_nonce() -> None:
    """The nonce is made for each field, so one text cannot foresee another's fence."""
    assert fence("a", "poster")["text"] != fence("a", "poster")["text"]
