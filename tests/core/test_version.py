"""Which changes of the code are another version of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import pytest

import clara_eval
from clara_eval.core.version import code_version

SOURCE = '''"""Words."""

class Rated:
    """Words."""

    limit: int = 3
    """Words."""

    def is_above(self, other):
        """Words."""
        return other - 1 > self.limit  # words
'''
CHANGES = {
    "a comment": ("# words", "# other words", True),
    "every docstring": ('"""Words."""', '"""Other words,\n\n    in three lines."""', True),
    "an empty line": ("    limit", "\n\n    limit", True),
    "an operator": (" > ", " >= ", False),
    "a constant": ("= 3", "= 4", False),
    "a name": ("limit", "bound", False),
    "a string that is used": ("other - 1", "'Words.'", False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_words_are_not_another_version(change: str, tmp_path: Path) -> None:
    """Changed comments and docstrings leave the version, which would start open rounds again; changed code does not."""
    before, after, is_one = CHANGES[change]
    for name, source in (("one", SOURCE), ("two", SOURCE.replace(before, after))):
        (tmp_path / name / "ranking").mkdir(parents=True)
        (tmp_path / name / "ranking" / "rated.py").write_text(source, encoding="utf-8")
    assert SOURCE.replace(before, after) != SOURCE
    assert (code_version(tmp_path / "one") == code_version(tmp_path / "two")) is is_one


@pytest.mark.parametrize("name", ["ranking/prompt.md", "judge/new.py", "core/shape.json"])
def test_another_file_is_another_version(name: str, tmp_path: Path) -> None:
    """A prompt or a table that changes, and a file that is new, give another version."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two" / name).parent.mkdir(parents=True)
    (tmp_path / "two" / name).write_text("", encoding="utf-8")
    assert code_version(tmp_path / "one") != code_version(tmp_path / "two")


def test_rounds_that_begin_at_once_have_one_version(tmp_path: Path) -> None:
    """Asked from several threads at a time, every one gets the version; the parser of Python 3.11 would fail."""
    copytree(Path(clara_eval.__file__).parent / "ranking", tmp_path / "ranking")
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(code_version.__wrapped__, [tmp_path] * 8))
    assert len(found) == 1
