"""Workers die at the worst moments; the money moves exactly once and nothing is paid twice. Small form of `soak.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from clara_eval.testing.chaos import ChaosPlan, run_chaos, world

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("chaos")]


async def test_two_workers_on_postgres_survive_a_kill(postgres_url: str) -> None:
    """Three challenges, two workers, one SIGKILL: all posted once, no answer paid twice, all traces verify."""
    plan = ChaosPlan(
        challenges=3, submissions=4, workers=2, kills=1, seed=3, patience_seconds=400, answers_between=(4, 12)
    )
    async with world(plan, postgres_url) as made:
        report = await run_chaos(made)
        assert report.problems() == [], f"{report}\n{made.tail()}"
        assert report.kills == 1
        assert report.chunks > 0, "no games were shared among the workers"


async def test_one_process_on_sqlite_survives_kills(tmp_path: Path) -> None:
    """Two challenges, one process killed twice and started again: it goes on where it stopped."""
    plan = ChaosPlan(
        challenges=2, submissions=4, workers=1, kills=2, seed=5, patience_seconds=400, answers_between=(2, 8)
    )
    async with world(plan, f"sqlite:///{tmp_path}/chaos.db") as made:
        report = await run_chaos(made)
        assert report.problems() == [], f"{report}\n{made.tail()}"
        assert report.kills == 2
