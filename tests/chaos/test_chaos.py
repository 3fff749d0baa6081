"""Workers die at the worst moments; the money moves exactly once and nothing is paid twice. Small form of `soak.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.chaos import ChaosPlan, run_chaos, world
from tests.support.databases import running_postgres
from tests.support.scenarios import closed_round, posts_of
from tests.support.step_worker import KILLED, StepWorkers

from clara_eval.devnet.local_chain import LocalChain

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("chaos")]
STEPS = ("after:take_lease:1", "after:add_entry:3", "before:save_transaction:1", "after:broadcast:1")


async def test_two_workers_on_postgres_survive_a_kill_and_a_restarted_database() -> None:
    """Three challenges, two workers, the database restarted when one is queued, one SIGKILL: all posted once."""
    plan = ChaosPlan(challenges=3, submissions=4, workers=2, kills=1, seed=3, patience_seconds=400,
        answers_between=(4, 12), database_restarts=1, restart_events=("evaluation_queued",))  # fmt: skip
    with running_postgres() as server:

        def restart() -> None:
            server.stop()
            server.start()

        async with world(plan, server.get_uri()) as made:
            report = await run_chaos(made, restart)
            assert report.problems() == [], f"{report}\n{made.tail()}"
    assert (report.kills, report.restarted_at) == (1, {"evaluation_queued": 1})


async def test_one_process_on_sqlite_survives_kills(tmp_path: Path) -> None:
    """Two challenges, one process killed at a named step and at a random moment: it goes on where it stopped."""
    plan = ChaosPlan(challenges=2, submissions=4, workers=1, kills=1, kill_points=("after:broadcast:1",), seed=5,
        patience_seconds=400, answers_between=(2, 8), life_seconds=(60, 60))  # fmt: skip
    async with world(plan, f"sqlite:///{tmp_path}/chaos.db") as made:
        report = await run_chaos(made)
        assert report.problems() == [], f"{report}\n{made.tail()}"
        assert report.kills == 2
        assert report.killed_at["after:broadcast:1"] == 1


async def test_the_next_process_continues_after_a_kill(local_chain: LocalChain, postgres_url: str) -> None:
    """Killed at step after step, each next process continues once the dead one's lease has run out, and posts once."""
    address = await closed_round(local_chain)
    environ = {
        "CLARA_NETWORK": "local",
        "CLARA_RPC_URL": local_chain.rpc_url,
        "CLARA_CHALLENGE_FACTORY": local_chain.deployment.factory,
        "CLARA_FROM_BLOCK": str(local_chain.deployment.from_block),
        "CLARA_EVALUATOR_KEY": local_chain.evaluator.key,
        "CLARA_DATABASE_URL": postgres_url,
    }
    async with StepWorkers(environ) as workers:
        for step in STEPS:
            assert await workers.run("evaluate", address, kill=step) == KILLED, f"{step}: {workers.told}"
        assert await workers.run("evaluate", address) == 0, workers.told
    assert await posts_of(local_chain, address) == 1
