"""The present service goes on with what the service of an earlier commit left in every stage: each round is posted once.

`scripts/make_upgrades.py` makes the files. In those called `back` a later program began the rounds, and the earlier one
went on with them after a rollback until it was killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import psycopg
import pytest
from tests.support.databases import fresh_database
from tests.support.service import Turning, eventually, settings_of, turning
from tests.support.upgrades import (
    BEGUN,
    FILES,
    JUDGE,
    PORT,
    QUESTIONS,
    STAGES,
    HoldingJudge,
    Stopped,
    loaded_chain,
    posts_by_round,
)

from clara_eval.actions.review import approve
from clara_eval.chain.model import ChallengeStatus
from clara_eval.challenges.replay import check_trace
from clara_eval.challenges.review import known_review
from clara_eval.challenges.status import is_to_try_again
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.core.address import Address
from clara_eval.core.errors import BadTrace
from clara_eval.core.version import code_version
from clara_eval.devnet.local_chain import DAY
from clara_eval.documents.results import EvalStatus
from clara_eval.evaluation.trace import Restart
from clara_eval.store.trace_archive import stream_trace

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("upgrades")]
LEFT = sorted(FILES.glob("*.xz"))
RECORDED = {"review", "sent", "lost", "signed", "finalizing"}
"""Stages whose result is approved or signed: it is posted as it is recorded, and nobody is asked again."""


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """The judge's address is part of its name, so its port is fixed: one test at a time uses it."""
    with (Path(tempfile.gettempdir()) / f"clara-eval-upgrades-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def restored(stopped: Stopped, stack: AsyncExitStack, place: Path, request: pytest.FixtureRequest) -> str:
    """Restore the database as it was when half a minute has passed, which all leases last."""
    if stopped.engine:
        for name, text in (("store.db", stopped.store), ("store-engine.db", stopped.engine)):
            with closing(sqlite3.connect(place / name)) as made:
                made.executescript(text)
                made.execute("UPDATE leases SET until_at = 0" if name == "store.db" else "SELECT 1")
                made.commit()
        return f"sqlite:///{place}/store.db"
    url = await stack.enter_async_context(fresh_database(request.getfixturevalue("postgres_server")))
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(stopped.store.encode())
        await connection.execute("UPDATE public.leases SET until_at = 0")
    return url


async def all_complete(world: Turning, stopped: Stopped, stages: set[str]) -> None:
    async def are_complete() -> bool:
        await world.engine.tick()
        told = {stage: await world.status(stopped.rounds[stage]) for stage in stages}
        for stage, status in told.items():
            # What the earlier program ended as failed is tried again by this one.
            if status["status"] == "failed":
                failed, address = EvalStatus.model_validate(status), stopped.rounds[stage]
                assert await is_to_try_again(world.app.store, world.app.chain_id, address, failed), failed
        return {status["status"] for status in told.values()} == {"complete"}

    await eventually(are_complete, 280)


@pytest.mark.parametrize("left", LEFT, ids=lambda path: path.stem)
async def test_every_round_under_way_is_posted_once_by_the_next_version(
    left: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Stopped in whatever stage, each round is posted exactly once, with a trace that verifies; none ends otherwise."""
    stopped = await asyncio.to_thread(Stopped.read, left)
    assert stopped.rounds.keys() == STAGES.keys()
    judge = HoldingJudge()
    async with AsyncExitStack() as stack:
        chain = await stack.enter_async_context(loaded_chain(stopped, tmp_path))
        url = await restored(stopped, stack, tmp_path, request)
        await stack.enter_async_context(judge.running(PORT))
        settings = settings_of(
            chain, tmp_path, CLARA_DATABASE_URL=url, CLARA_JUDGES=JUDGE, CLARA_PRICES=f"{JUDGE}=1/2", OPENAI_API_KEY="-"
        )
        world = await stack.enter_async_context(turning(settings))
        await all_complete(world, stopped, STAGES.keys() - {"review", "discovered"})
        review = stopped.rounds["review"]
        found = await known_review(world.app.store, world.app.chain_id, review)
        await approve(world.app.store, world.app.chain_id, review, note="Looked at.", digest=found.digest, by="Ada")
        await chain.move_time(3 * DAY)
        await all_complete(world, stopped, set(STAGES))
        assert await posts_by_round(chain, stopped.rounds) == dict.fromkeys(stopped.rounds.values(), 1)
        ended = await look_at_challenge(world.app.chain, stopped.rounds["finalizing"])
        assert ended.status is ChallengeStatus.FINALIZED
        restarts = {stage: await posted_restarts(world, stage, address) for stage, address in stopped.rounds.items()}
    for stage in BEGUN:
        (restart,) = restarts[stage]
        assert restart.finished_by == code_version(), stage
        assert restart.answers <= stopped.answered.get(stage, 0), stage
    for stage in STAGES:
        asked, answered = judge.answered[stage], stopped.answered.get(stage, 0)
        least = 0 if stage in RECORDED else QUESTIONS - answered
        assert least <= asked <= (0 if stage in RECORDED else QUESTIONS), stage


async def posted_restarts(world: Turning, stage: str, address: Address) -> list[Restart]:
    """It verifies; what an earlier version signed may be by rules that only that version checks."""
    trace = [piece async for piece in stream_trace(world.app.store, world.app.chain_id, address)]
    checked, problem = None, ""
    try:
        checked = await check_trace("".join(trace).splitlines(keepends=True), world.app.chain)
    except BadTrace as bad:
        problem = str(bad)
    is_posted = checked is not None and checked.posted is not None
    assert is_posted or (stage in RECORDED and "Check it with the version that wrote it" in problem), problem
    return checked.notes.restarts if checked else []


def test_two_earlier_commits_are_upgraded_from_on_both_databases() -> None:
    """Files of at least two commits are there, and of a rollback to one, each for SQLite and Postgres."""
    left = {path.stem.rpartition("-")[0] for path in LEFT}
    assert len({name for name in left if not name.endswith("-back")}) >= 2
    assert any(name.endswith("-back") for name in left)
    assert {path.stem for path in LEFT} == {f"{name}-{kind}" for name in left for kind in ("sqlite", "postgres")}
