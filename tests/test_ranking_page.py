"""docs/ranking.md holds what its document says."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from bench.ranking import replay
from tests.support.scripts import load_script

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("make_ranking")


def test_the_page_is_written_from_its_document(script: ModuleType) -> None:
    """Each table has every case with its number of trials; further methods and budgets are in the document only."""
    text, told = script.PAGE.read_text(encoding="utf-8"), json.loads(script.FIGURES.read_text(encoding="utf-8"))
    assert told["rows"]
    assert script.page(text, told) == text


def test_a_missed_target_is_said_plainly(script: ModuleType) -> None:
    """A case that is worse than both orders by two standard errors, and a "clear" that is wrong, are named on the page."""
    method = {"set": 0.5, "misplaced": 0.3, "setToBoth": [0, 0], "misplacedToBoth": [0.05, 0.01]}
    both = {**method, "misplaced": 0.2, "misplacedToBoth": [0, 0]}
    calls = {"id": "calls N=25, 80 %", "trials": 9, "calls": 200, "priced": 250, "misplacedToSame": [0.1, 0.01]}
    words = {"id": "words all judges of noise", "rankInside": 0.95, "paidWidth": 2.0, "clear": [0.9, 0.8, 0.95, 40]}
    found = list(
        script._targets(
            {row["id"]: row for row in ({**calls, "methods": {"auto": method, "both + points": both}}, words)}
        )
    )
    assert [line.endswith("| **no** |") for line in found] == [True, True, True, True, False, False]
    assert "worse in N=25, 80 % (+0.050 ± 0.010)" in found[1]
    assert "worse in N=25, 80 % (+0.100 ± 0.010)" in found[2]


def test_real_verdicts_are_replayed_from_a_file_that_is_given(tmp_path: Path) -> None:
    """Rows drawn from a file name the three that all its rows name, if nothing contradicts them."""
    names = "abcde"
    rows = [f"{x},{y},{'left' if x < y else 'right'}" for x in names for y in names if x != y] * 8
    (tmp_path / "made-up.csv").write_text("\n".join(["left,right,winner", *rows]), encoding="utf-8")
    found = replay(tmp_path / "made-up.csv", 3)
    assert found["id"] == "replay made-up.csv: 5 items, 160 verdicts"
    assert (found["trials"], found["right"], found["points"]) == (3, 1.0, 1.0)
    assert 0.5 < found["said"] <= 1


def test_later_runs_take_the_place_of_earlier_ones(script: ModuleType, tmp_path: Path) -> None:
    """Rows are put together by their name."""
    for name, value in (("a", 1), ("b", 2)):
        (tmp_path / name).write_text(json.dumps({"rows": [{"id": "r", "value": value}]}), encoding="utf-8")
    assert script.gathered([tmp_path / "a", tmp_path / "b"]) == {"rows": [{"id": "r", "value": 2}]}
