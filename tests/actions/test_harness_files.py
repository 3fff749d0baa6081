"""What the `harness` commands read from files is read whole, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from clara_eval.actions.harness import MAX_FILE_BYTES, hidden_harness
from clara_eval.core.errors import BadInput


def test_a_file_is_never_cut(tmp_path: Path) -> None:
    """A file above the limit is refused by name, with reason and remedy; below it, it is read to its last byte."""
    file = tmp_path / "harness.py"
    file.write_text("#" * 200_000)
    assert len(hidden_harness(file, "", "").harness.source) == 200_000
    file.write_text("#" * MAX_FILE_BYTES + "\n")
    with pytest.raises(BadInput, match=r"harness\.py has more than 1,048,576 bytes") as caught:
        hidden_harness(file, "", "")
    assert caught.value.remedy


def test_what_could_never_be_revealed_is_not_hidden(tmp_path: Path) -> None:
    """A harness whose document is above what a reveal takes is refused before anybody commits to it."""
    file = tmp_path / "harness.py"
    file.write_text("#" * 262_144)
    with pytest.raises(BadInput, match="above 262,144 none is revealed") as caught:
        hidden_harness(file, "", "")
    assert caught.value.remedy
