"""`ready` is said of what has just run; everything else has a reason and a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clara_eval.harness import Machine, MissingEngine
from clara_eval.harness.machine import look_at
from clara_eval.harness.model import RunLimits


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """One whose cache cannot be written: a file stands where its folder should be."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    found = Machine(cache=tmp_path / "file" / "cache", workers=1)
    try:
        found.require("javascript")
        found.require("solidity")
    except MissingEngine as missing:
        pytest.skip(missing.message)
    yield found
    found.close()


def test_what_runs_is_ready_and_what_cannot_be_kept_is_said(machine: Machine) -> None:
    """An engine that needs no cache is ready; one whose work is lost every time says so, and what to do."""
    assert look_at(machine, "javascript").state == "ready"
    slow = look_at(machine, "solidity")
    assert slow.state == "slow"
    assert "Not a directory" in slow.reason
    assert "CLARA_CACHE_DIR" in slow.remedy


def test_a_worker_that_was_lost_is_not_ready(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process does not answer in time the engine failed, with the words of what happened."""
    defaults = (*RunLimits.__init__.__defaults__[:-1], -1.0)  # type: ignore[index]
    monkeypatch.setattr("clara_eval.harness.model.RunLimits.__init__.__defaults__", defaults)
    failed = look_at(machine, "javascript")
    assert failed.state == "failed"
    assert "took longer" in failed.reason
    assert "check --engines" in failed.remedy


def test_what_is_not_installed_is_missing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its module an engine is missing, and the remedy is the line that installs it, said once."""
    monkeypatch.setattr("clara_eval.harness.quickjs.find_module", lambda: None)
    found = look_at(machine, "javascript")
    assert (found.state, "npm install quickjs-wasi" in found.remedy) == ("missing", True)
    assert found.remedy not in found.reason
