"""docs/ranking.md holds what its document says."""

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
    """Every row of the document is on the page, with its number of trials."""
    text, told = script.PAGE.read_text(encoding="utf-8"), json.loads(script.FIGURES.read_text(encoding="utf-8"))
    assert told["rows"]
    assert script.page(text, told) == text


def test_later_runs_take_the_place_of_earlier_ones(script: ModuleType, tmp_path: Path) -> None:
    """Rows are put together by their name."""
    for name, value in (("a", 1), ("b", 2)):
        (tmp_path / name).write_text(json.dumps({"rows": [{"id": "r", "value": value}]}), encoding="utf-8")
    assert script.gathered([tmp_path / "a", tmp_path / "b"]) == {"rows": [{"id": "r", "value": 2}]}
