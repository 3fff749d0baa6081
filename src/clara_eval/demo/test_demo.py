"""The demo as a person sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from clara_eval.cli import app


def test_the_demo_ends_wherever_its_trace_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole lifecycle runs, and the trace's place is told as it is, also where it looks like markup."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["demo", "--trace-dir", "[/x]"])
    assert done.exit_code == 0, repr(done.exception)
    (trace,) = (tmp_path / "[/x]").iterdir()
    assert f"Trace      {trace}" in done.stdout
