"""What people see: the main commands at 80 columns, without colour, in a pipe, kept as text in `screens`.

`WRITE_SCREENS=1 pytest tests/interfaces/cli/test_screens.py` writes them anew: look at them before you commit.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.agents import GOOD_SOLUTION, POOR_SOLUTION, agent_environment
from tests.support.rounds import closed_round
from typer.testing import CliRunner

from clara_eval.config.eval_config.catalogue import template_text
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.interfaces.cli import app
from clara_eval.interfaces.cli.screen import console

SCREENS = Path(__file__).parent / "screens"
CHANGING = {
    r"0x[0-9a-f]{64}": "0x" + "5d" * 32,
    r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC": "2026-12-01 12:00:00 UTC",
    r"block \d+": "block 20",
    r"\(key\s+of\s+CLARA_EVALUATOR_KEY\),\s+[\d.]+\s+ETH:\s+enough\s+for\s+[\d,]+\s+posts": "(key …), 1 ETH: enough for 9 posts",
    r"\([\d,]+ allowed\)|\(no limit\)": "(no limit)",
}
"""What differs from run to run."""


@pytest.fixture
def at_80_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    console.cache_clear()
    yield
    console.cache_clear()


async def same(name: str, *words: str, **environ: str) -> str:
    """Compare what a command prints with what is kept, and return it."""
    done = await asyncio.to_thread(CliRunner().invoke, app, list(words), env=environ)
    assert done.exit_code == 0, done.output
    shown = done.stdout
    for pattern, constant in CHANGING.items():
        shown = re.sub(pattern, constant, shown)
    file = SCREENS / f"{name}.txt"
    if os.environ.get("WRITE_SCREENS"):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")
    assert "\x1b" not in shown
    return shown


@pytest.mark.usefixtures("at_80_columns")
async def test_a_round_is_shown_as_kept(local_chain: LocalChain, tmp_path: Path) -> None:
    """`check`, `evaluate`, `status`, `leaderboard`, `score` and `verify` of one round; the money in doubt comes first."""
    environ = agent_environment(local_chain, None, tmp_path / "store.db")
    environ |= {"CLARA_EVALUATOR_KEY": local_chain.evaluator.key, "CLARA_DATABASE_URL": "sqlite:///store.db"}
    address = await closed_round(local_chain)
    await same("check", "check", **environ)
    shown = [
        await same("evaluate", "evaluate", address, **environ),
        await same("leaderboard", "leaderboard", address, **environ),
    ]
    assert all(" ".join(text.split()).startswith("By this judge, $") for text in shown)
    status = (await same("status", "status", address, **environ)).splitlines()
    assert status[3].startswith("By this judge, $")
    await same("score", "score", address, "2", **environ)
    await same("verify", "verify", address, **environ)


@pytest.mark.usefixtures("at_80_columns")
async def test_help_and_judge_are_shown_as_kept(tmp_path: Path) -> None:
    """The list of commands, and a folder judged by rules."""
    await same("help", "--help")
    (tmp_path / "entries").mkdir()
    (tmp_path / "entries" / "ada.py").write_text(GOOD_SOLUTION)
    (tmp_path / "entries" / "bob.py").write_text(POOR_SOLUTION)
    (tmp_path / "config.json").write_text(template_text("measured"))
    await same("judge", "judge", "entries", "--config", "config.json", "--winners", "1", "--out", "results")


@pytest.mark.parametrize("file", sorted(SCREENS.glob("*.txt")), ids=lambda file: file.stem)
def test_no_screen_is_wider_than_80_columns_unless_it_is_to_be_copied(file: Path) -> None:
    """Only a line that ends with a command, a hash or an address to copy may be longer."""
    for line in file.read_text(encoding="utf-8").splitlines():
        assert len(line) <= 80 or re.search(r"0x[0-9a-f]{40,64}[`).]*( \S+)*$", line), line
