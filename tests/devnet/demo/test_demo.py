"""The demo as a person sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clara_eval.devnet.demo import command
from clara_eval.devnet.demo.lifecycle import DemoResult, demo_document
from clara_eval.interfaces.cli import app


@dataclass(frozen=True)
class Shown:
    """One run of the demo: its screen, its document and its trace."""

    screen: str
    document: dict[str, Any]
    trace: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The demo with a trace folder that looks like markup."""
    place, documents = tmp_path_factory.mktemp("demo"), []

    def kept(result: DemoResult) -> dict[str, Any]:
        documents.append(demo_document(result))
        return documents[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(command, "demo_document", kept)
        done = CliRunner().invoke(app, ["demo", "--trace-dir", "[/x]"])
    assert done.exit_code == 0, repr(done.exception)
    (trace,) = (place / "[/x]").iterdir()
    return Shown(done.stdout, documents[0], trace)


def test_the_demo_ends_wherever_its_trace_goes(shown: Shown) -> None:
    """The whole lifecycle runs, and the trace's place is told as it is, also if it looks like markup."""
    assert f"Trace      {shown.trace}" in shown.screen


def test_the_demo_shows_what_running_the_submissions_measured(shown: Shown) -> None:
    """Tests and gas are in the document of the demo; the cheapest right one wins, a broken one is last."""
    document = shown.document
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
