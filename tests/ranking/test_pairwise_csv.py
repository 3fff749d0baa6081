"""Pairwise files: read as columns of bytes where they are plain, row by row where not, and both ways the same."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from random import Random

import pytest

from clara_eval.core.errors import BadInput
from clara_eval.ranking.pairwise_csv import _plain, _results, read_pairwise
from clara_eval.ranking.results import Result

NAMES = ("a", "bb", "model-7b.v1", "0x" + 40 * "f", "0x" + 39 * "f" + "e", "exactly8", "exactly16-letter")


def lines(seed: int, count: int = 200) -> list[str]:
    random = Random(seed)
    return [",".join((*random.sample(NAMES, 2), random.choice(("left", "right", "tie")))) for _ in range(count)]


def read_both_ways(path: Path, content: bytes) -> tuple[bool, tuple[Result, ...]]:
    """Whether it was plain, and the results, which must be those of the slow way."""
    path.write_bytes(content)
    slow = tuple(_results(str(path), StringIO(content.decode("utf-8-sig"), newline="")))
    found = read_pairwise(path)
    assert found.results == slow
    assert found.items == tuple(sorted({name for result in slow for name in result[:2]}))
    return _plain(str(path), content) is not None, slow


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_plain_files_are_read_as_columns(tmp_path: Path, end: str) -> None:
    """With either end of line, with and without the last one, with further columns: fast, and the same rows."""
    rows = lines(1)
    for text in (end.join(["left,right,winner", *rows]), end.join(["left,right,winner", *rows]) + end):
        assert read_both_ways(tmp_path / "f.csv", text.encode())[0]
    wide = end.join(["id,Left,RIGHT,winner,x", *(f"{k},{row}," for k, row in enumerate(rows))]) + end
    assert read_both_ways(tmp_path / "f.csv", wide.encode())[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [*rows, ""],
        lambda rows: [rows[0].replace(",", " ,", 1), *rows],
        lambda rows: ['"a, b",bb,tie', *rows],
        lambda rows: ["\u00a0a,bb,left", *rows],
        lambda rows: ["\x1ca,bb,left", *rows],
        lambda rows: ["a,bb,LEFT", *rows],
        lambda rows: ["a,bb,left,more", *rows],
        lambda rows: [f"{'n' * 70},bb,left", *rows],
        lambda rows: ["größer,bb,left", *rows],
        lambda rows: [],
    ],
)
def test_unusual_files_are_read_row_by_row(tmp_path: Path, change: object) -> None:
    """Blank lines, blanks, quotes, capitals, further cells, long or foreign names: the slow way, silently."""
    assert callable(change)
    rows = change(lines(2, 30))
    content = "\n".join(["left,right,winner", *rows, "a,bb,left"]).encode()
    assert read_both_ways(tmp_path / "f.csv", content)[0] == (not rows)


def test_judges_are_kept(tmp_path: Path) -> None:
    """A column of judges is read row by row, and each verdict keeps its own."""
    content = b"left,right,winner,judge\na,bb,left,x\na,bb,right,y\n"
    assert [result.judge for result in read_both_ways(tmp_path / "f.csv", content)[1]] == ["x", "y"]


@pytest.mark.parametrize("row", ["a,a,left", "a,,left", "a,bb,both", "a,bb"])
def test_a_bad_row_is_named_wherever_it_stands(tmp_path: Path, row: str) -> None:
    """Plain otherwise or not, the error names the line."""
    path = tmp_path / "f.csv"
    path.write_text("\n".join(["left,right,winner", *lines(3, 50), row, *lines(4, 50)]), encoding="utf-8")
    with pytest.raises(BadInput, match=r"f\.csv:52: "):
        read_pairwise(path)


def test_names_that_no_sample_holds_are_found(tmp_path: Path) -> None:
    """In a file longer than the sample of its rows, names that appear once stand where they belong."""
    rows = ["a,zz,left", *lines(5, 30_000), "only-here,a,right", *lines(6, 30_000), "b,even-longer-only-here,tie"]
    assert read_both_ways(tmp_path / "f.csv", "\n".join(["left,right,winner", *rows]).encode())[0]
