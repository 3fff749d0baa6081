"""docs/ranking.md holds what its document says, and hides no failure."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_ranking", ROOT / "scripts" / "make_ranking.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_written_from_its_document(script: ModuleType) -> None:
    """Every row of the document stands on the page, with its word."""
    text, told = script.PAGE.read_text(encoding="utf-8"), json.loads(script.FIGURES.read_text(encoding="utf-8"))
    assert told["rows"]
    assert script.page(text, told) == text
    assert text.count("**fails**") == sum(row["pass"] is False for row in told["rows"])


def test_what_failed_or_lacks_trials_is_said(script: ModuleType) -> None:
    """A failed row is called so, and one with too few trials names both numbers."""
    measured = {"coverage": 0.5, "error": 0.1, "rankCoverage": 0.6, "trials": 8, "wanted": 600}
    shown = script.table([{"id": "x", "target": "t", "measured": measured, "pass": False}])
    assert "| x | t | 0.500 ± 0.100; ranges of ranks 0.600 | 8 of 600 | **fails** |" in shown
    for trials, word in ((8, "too few trials to tell"), (60, "passes so far"), (600, "passes")):
        row = {"id": "x", "target": "t", "measured": {**measured, "trials": trials}, "pass": True}
        assert script.table([row]).endswith(f"| {word} |")


def test_later_runs_take_the_place_of_earlier_ones(script: ModuleType, tmp_path: Path) -> None:
    """Rows are put together by their name."""
    for name, value in (("a", 1), ("b", 2)):
        rows = [{"id": "r", "target": "", "measured": {"value": value}, "pass": None, "seconds": 3}]
        (tmp_path / name).write_text(json.dumps({"rows": rows}), encoding="utf-8")
    found = script.gathered([tmp_path / "a", tmp_path / "b"])
    assert found == {"rows": [{"id": "r", "target": "", "measured": {"value": 2}, "pass": None}]}


def test_chances_stand_beside_what_came_true(script: ModuleType) -> None:
    """Each case of the words has its tenths; without any there is no second table."""
    tenths = [{"predicted": 0.154, "actual": 0.2, "items": 30}, {"predicted": 0.951, "actual": 0.9, "items": 10}]
    row = {"id": "words: base", "target": "t", "measured": {"setChance": tenths}, "pass": True}
    assert script.reliability([row]).endswith("| words: base | 0.15 → 0.20 (30), 0.95 → 0.90 (10) |\n")
    assert not script.reliability([{**row, "measured": {}}])
