"""docs/scale.md holds what its document says, and the simulation of the scheduler behaves as a scheduler must."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_scale", ROOT / "scripts" / "make_scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_scale"] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_written_from_its_document(scale: ModuleType) -> None:
    """The tables are those of docs/scale.json, whose assumptions and months are those of the script."""
    text, told = scale.PAGE.read_text(encoding="utf-8"), json.loads(scale.FIGURES.read_text(encoding="utf-8"))
    assert scale.page(text, told) == text
    assumed = scale.Assumed()
    assert told["assumed"] == scale.asdict(assumed)
    assert told["months"] == [scale.month(count, assumed) for count in scale.MONTHS]
    assert [(r["challenges"], r["posted"], r["late"]) for r in told["simulated"]] == [(10_000, 10_000, 0)] * 6


def test_everything_is_posted_and_finalized_in_time_while_capacity_lasts(scale: ModuleType) -> None:
    """Deadlines over a week: all are posted within two ticks of their deadline, and finalized within two of theirs."""
    found = scale.Simulation(scale.Assumed(), 300, 1, 7.0).run()
    assert (found.posted, found.late, found.most_concurrent) == (300, 0, 300)
    assert found.posted_after_hours["longest"] < 0.2
    assert 0 <= found.finalized_late_hours < 0.2


def test_a_burst_waits_in_the_queue_and_more_places_shorten_it_only_until_the_provider_is_full(
    scale: ModuleType,
) -> None:
    """All deadlines in one second: never more at once than the options allow; a slow provider is what remains."""
    one, eight = (scale.Simulation(scale.Assumed(), 300, workers, 0.0).run() for workers in (1, 8))
    assert (one.longest_queue, one.most_running, eight.most_running) == (300, 4, 32)
    assert eight.posted_after_hours["longest"] <= one.posted_after_hours["longest"]
    calls = 300 * scale.calls_of(scale.Assumed())["calls"]
    assert eight.posted_after_hours["longest"] * 3600 >= calls / scale.Assumed().provider_calls_per_second


def test_what_cannot_be_done_in_time_is_told(scale: ModuleType) -> None:
    """A provider of one call in five minutes: what is posted comes after the scoring deadline, and is counted as late."""
    slow = scale.replace(scale.Assumed(), provider_calls_per_second=1 / 300, scoring_days=0.5)
    found = scale.Simulation(slow, 3, 1, 0.0).run()
    assert 0 < found.late == found.posted
    assert found.posted_after_hours["median"] > 12
