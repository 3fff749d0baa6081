"""The rank command: bytes that do not depend on row order, and errors a person can act on."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli import app

ROWS = ["a,b,left", "b,c,left", "a,c,tie", "c,d,right", "d,a,right", "b,d,left"]


def write(folder: Path, rows: list[str], header: str = "left,right,winner") -> Path:
    path = folder / "games.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["rank", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_is_the_same_for_any_order_of_rows(tmp_path: Path) -> None:
    """Shuffled rows print the same bytes, with the documented keys."""
    rows = ROWS[:]
    first = run(str(write(tmp_path, rows)), "--json", "--winners", "2")
    Random(3).shuffle(rows)
    assert run(str(write(tmp_path, rows)), "--json", "--winners", "2") == first
    document = json.loads(first)
    assert {"item", "rank", "elo", "low", "high", "pTop"} <= set(document["ranking"][0])
    assert {"ranking", "margin", "cycles", "flags"} <= set(document)


def test_extra_columns_and_capitals_are_ignored(tmp_path: Path) -> None:
    """Only left, right and winner count, wherever they stand."""
    plain = run(str(write(tmp_path, ROWS)), "--json")
    wide = [f"9,{row.split(',')[2].upper()},{row.split(',')[0]},note,{row.split(',')[1]}" for row in ROWS]
    assert run(str(write(tmp_path, wide, "id,winner,left,remark,right")), "--json") == plain


def test_the_table_shows_items_and_the_pay_line(tmp_path: Path) -> None:
    """The human form has every item and the sentence about the margin."""
    shown = run(str(write(tmp_path, ROWS)), "--payout", "7000,3000")
    assert all(f" {item} " in shown for item in "abcd")
    assert "Pay line" in shown


def test_plots_are_written(tmp_path: Path) -> None:
    """--svg leaves the two pictures in the folder."""
    run(str(write(tmp_path, ROWS)), "--svg", str(tmp_path / "plots"))
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"ratings.svg", "matrix.svg"}


@pytest.mark.parametrize(
    ("rows", "header", "complaint"),
    [
        (["a,b,left", "a,b,both"], "left,right,winner", r"games\.csv:3: 'both' is not a winner"),
        (["a,a,left"], "left,right,winner", r"games\.csv:2: 'a' is compared with itself"),
        (["a,,left"], "left,right,winner", "one name is empty"),
        (["a,b"], "left,right,winner", r"games\.csv:2: 'a,b' has too few columns"),
        (["a,b,left"], "left,right,result", "no column 'winner'"),
        ([], "left,right,winner", "has no results"),
    ],
)
def test_a_bad_file_is_refused_with_line_value_and_remedy(
    tmp_path: Path, rows: list[str], header: str, complaint: str
) -> None:
    """The error names file, line and value, and says what to do."""
    with pytest.raises(BadInput, match=complaint) as caught:
        run(str(write(tmp_path, rows, header)))
    assert caught.value.remedy


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("missing.csv",),
        ("x.csv", "--payout", "60,40"),
        ("x.csv", "--winners", "0"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...]) -> None:
    """No file, an unknown file or payout: one clear error each."""
    with pytest.raises(BadInput):
        run(*arguments)
