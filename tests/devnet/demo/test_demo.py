"""The demo as a person sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clara_eval.interfaces.cli import app


def test_the_demo_ends_wherever_its_trace_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole lifecycle runs, and the trace's place is told as it is, also where it looks like markup."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["demo", "--trace-dir", "[/x]"])
    assert done.exit_code == 0, repr(done.exception)
    (trace,) = (tmp_path / "[/x]").iterdir()
    assert f"Trace      {trace}" in done.stdout


def test_the_demo_shows_what_running_the_submissions_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests and gas stand on the leaderboard and in the document; the cheapest right one wins, a broken one is last."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["demo", "--json"])
    assert done.exit_code == 0, repr(done.exception)
    document = json.loads(done.stdout)
    runs = [row["executed"] for row in document["ranking"]]
    assert [run["outcome"] for run in runs] == [*["passed"] * 4, "failed", "out_of_gas", "does_not_compile"]
    assert [run["testsPassed"] for run in runs] == [12, 12, 12, 12, 9, 3, None]
    gas = [run["metrics"]["batch_gas"] for run in runs[:4]]
    assert min(gas) == gas[0] < gas[3]
    assert document["verified"]


def test_the_demo_goes_on_without_a_compiler_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be run, a round that needs no engine is shown, with the reason and the remedy."""
    monkeypatch.setattr("clara_eval.harness.machine.find_compiler", lambda _setting: None)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["demo"])
    assert done.exit_code == 0, repr(done.exception)
    assert "There is no Solidity compiler here." in done.stderr
    assert "npm install solc" in done.stderr
    assert "deque_window" in done.stdout
    assert "tests" not in done.stdout.partition("Leaderboard")[2].partition("\n\n")[0]
