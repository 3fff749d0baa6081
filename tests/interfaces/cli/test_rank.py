"""The rank command: bytes that do not depend on row order, and errors a person can act on."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

import clara_eval
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli import app

ROWS = ["a,b,left", "b,c,left", "a,c,tie", "c,d,right", "d,a,right", "b,d,left"]


def write(folder: Path, rows: list[str], header: str = "left,right,winner") -> Path:
    path = folder / "games.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def run(*arguments: str, piped: str = "") -> str:
    result = CliRunner().invoke(app, ["rank", *arguments], input=piped)
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


def arena(rows: list[str]) -> list[dict[str, str]]:
    """The same rows as an arena exports them."""
    sides = {"left": "model_a", "right": "model_b", "tie": "tie (bothbad)"}
    cells = [row.split(",") for row in rows]
    return [{"model_a": left, "model_b": right, "winner": sides[winner]} for left, right, winner in cells]


@pytest.mark.parametrize("form", ["csv", "jsonl", "names", "columns"])
def test_what_data_people_have_ranks_as_it_is(tmp_path: Path, form: str) -> None:
    """Arena columns, JSON lines, winners by name and columns of any name give the bytes of left,right,winner."""
    plain, found = run(str(write(tmp_path, ROWS)), "--json"), arena(ROWS)
    if form == "jsonl":
        (tmp_path / "games.csv").write_text("\n".join(json.dumps({**row, "turn": 1}) for row in found))
    elif form == "names":
        named = [{**row, "winner": row.get(row["winner"], "tie")} for row in found]
        write(tmp_path, [",".join(row.values()) for row in named], "model_a,model_b,winner")
    else:
        write(tmp_path, [",".join(row.values()) for row in found], "model_a,model_b,winner")
    options = []
    if form == "columns":
        write(tmp_path, ROWS, "one,other,better")
        options = ["--columns", "one,other,better"]
    assert run(str(tmp_path / "games.csv"), "--json", *options) == plain


def test_standard_input_is_read_with_and_without_a_dash(tmp_path: Path) -> None:
    """A pipe gives what the file gives."""
    plain = run(str(write(tmp_path, ROWS)), "--json")
    piped = (tmp_path / "games.csv").read_text()
    assert run("--json", piped=piped) == run("-", "--format", "json", piped=piped) == plain


def test_the_table_speaks_of_the_top_and_not_of_money(tmp_path: Path) -> None:
    """The human form has every item, the chance of the top, and no word of pay."""
    shown = run(str(write(tmp_path, ROWS)), "--top", "2")
    assert all(f" {item} " in shown for item in "abcd")
    assert "P(top 2)" in shown
    document = run(str(write(tmp_path, ROWS)), "--top", "2", "--json")
    for word in ("pay", "paid", "prize", "payout"):
        assert word not in shown.lower()
        assert word not in document.lower()


def test_csv_has_a_row_for_each_item(tmp_path: Path) -> None:
    """--format csv prints what a data frame reads."""
    rows = list(csv.DictReader(run(str(write(tmp_path, ROWS)), "--format", "csv").splitlines()))
    assert [row["item"] for row in rows] == ["a", "b", "d", "c"]
    assert list(rows[0]) == ["rank", "item", "elo", "low", "high", "pTop", "wins", "losses", "ties"]


def test_the_command_and_the_function_have_one_default(tmp_path: Path) -> None:
    """Without a number both tell the chance of the same places."""
    games = [tuple(row.split(",")) for row in ROWS]
    document = json.loads(run(str(write(tmp_path, ROWS)), "--json"))
    assert [row["pTop"] for row in document["ranking"]] == [one.p_top for one in clara_eval.rank(games).standings]  # type: ignore[arg-type]


def test_plots_are_written(tmp_path: Path) -> None:
    """--svg leaves the two pictures in the folder."""
    run(str(write(tmp_path, ROWS)), "--svg", str(tmp_path / "plots"))
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"ratings.svg", "matrix.svg"}


@pytest.mark.parametrize(
    ("rows", "header", "complaint"),
    [
        (["a,b,left", "a,b,both"], "left,right,winner", r"games\.csv:3: 'both' is not a winner"),
        (["a,a,left"], "left,right,winner", r"games\.csv:2: 'a' is compared with itself"),
        (["a,,left"], "left,right,winner", "has only one name"),
        (["a,b"], "left,right,winner", r"games\.csv:2: 'a,b' has no column 'winner'"),
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
        ("-", "--columns", "one,two"),
        ("x.csv", "--winners", "0"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...]) -> None:
    """No rows, an unknown file, two columns, no place: one clear error each."""
    with pytest.raises(BadInput):
        run(*arguments)
