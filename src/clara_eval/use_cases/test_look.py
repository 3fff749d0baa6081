"""What strangers' contracts answer, in our words."""

from __future__ import annotations

import pytest

from clara_eval.use_cases.look import short_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("0x" + b"OLD".hex().ljust(64, "0"), "OLD"),
        ("0x" + "ff" * 32, ""),
        ("0x", ""),
        (None, ""),
        ("0x" + "00" * 96, ""),
    ],
)
def test_an_older_tokens_symbol_is_read(data: str | None, text: str) -> None:
    """A symbol of type bytes32 is a name; what is no text is none."""
    assert short_text(data) == text
