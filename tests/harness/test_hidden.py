"""A hidden harness: its document, its hash, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex
from clara_eval.harness import Harness
from clara_eval.harness.model import MAX_DOCUMENT_BYTES, hide, read_harness_document

SALT = "0x" + "5a" * 32


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_a_document_comes_back_as_it_was(source: str) -> None:
    """What was hidden is what is read, and the hash is that of the bytes."""
    document = hide(Harness("solidity", source), SALT)
    assert read_harness_document(document.content) == document
    assert document.private_set_hash == keccak_hex(document.content)


def test_a_salt_makes_equal_harnesses_different() -> None:
    """Two documents of one harness have different hashes, unless the salt is given."""
    harness = Harness("python", "x = 1")
    assert hide(harness).private_set_hash != hide(harness).private_set_hash
    assert hide(harness, SALT).private_set_hash == hide(harness, SALT).private_set_hash


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"language": "cobol"},
        {"salt": "0x12"},
        {"source": 5},
        {"more": 1},
    ],
)
def test_other_documents_are_refused(change: dict[str, object]) -> None:
    """Another version, language, salt, type or key is an error in words."""
    good = {"version": 1, "language": "solidity", "source": "", "salt": SALT}
    with pytest.raises(BadInput):
        read_harness_document(json.dumps(good | change).encode())


def test_a_huge_document_is_not_read() -> None:
    """More bytes than allowed are refused before they are parsed."""
    with pytest.raises(BadInput, match="bytes"):
        read_harness_document(b" " * (MAX_DOCUMENT_BYTES + 1))


def test_a_salt_is_32_bytes() -> None:
    """A salt that is too short to hide anything is refused."""
    with pytest.raises(BadInput, match="32 bytes"):
        hide(Harness("solidity", ""), "0x1234")
