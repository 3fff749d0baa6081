"""DBOS as this service sets it up: priority, one run an id, JSON, and work that a stopped process leaves behind."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS, SetEnqueueOptions, SetWorkflowID

from clara_eval.core.errors import ConfigError
from clara_eval.service.due import EngineOptions
from clara_eval.service.queue import EVALUATIONS, JsonSerializer, Takeovers, run_dbos, system_url
from clara_eval.store.sqlite import SqliteStore

FAST = EngineOptions(poll_seconds=0.05, worker_evaluations=1, lease_seconds=1)


async def test_the_earliest_deadline_goes_first_and_an_id_runs_once(tmp_path: Path) -> None:
    """Queued together, run by priority; a second queueing of the same id starts nothing."""
    ran: list[str] = []

    async def note(name: str) -> None:
        ran.append(name)

    url = f"sqlite:///{tmp_path}/d.db"
    async with run_dbos(url, "w1", {"note": note}, FAST, listens=False) as registered:
        for name, priority in (("late", 30), ("soon", 10), ("middle", 20), ("soon", 10)):
            with SetWorkflowID(name), SetEnqueueOptions(priority=priority):
                await DBOS.enqueue_workflow_async(EVALUATIONS, registered["note"], name)
    async with run_dbos(url, "w2", {"note": note}, FAST):
        await _until(lambda: len(ran) == 3)
    assert ran == ["soon", "middle", "late"]


async def _until(holds: Any) -> None:
    for _ in range(400):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came")


async def test_what_a_dead_worker_left_is_taken_over_once(tmp_path: Path) -> None:
    """While its lease lasts it counts as alive; afterwards exactly one worker puts its work back."""
    started: list[str] = []
    store = await SqliteStore.open(tmp_path / "leases.db")

    async def hang() -> None:
        started.append("once")
        await asyncio.Event().wait()

    url = f"sqlite:///{tmp_path}/d.db"
    await store.take_lease("worker:first", "first", 60)
    async with run_dbos(url, "first", {"hang": hang}, FAST) as registered:
        with SetWorkflowID("long"):
            await DBOS.enqueue_workflow_async(EVALUATIONS, registered["hang"])
        await _until(lambda: started)
    await store.take_lease("worker:second", "second", 60)
    async with run_dbos(url, "second", {"hang": hang}, FAST):
        takeovers = Takeovers(store, "second", 60, is_alone=False)
        assert await takeovers.put_back() == 0
        await store.drop_lease("worker:first", "first")
        assert await takeovers.put_back() == 1
        assert await Takeovers(store, "third", 60, is_alone=False).put_back() == 0
        await _until(lambda: len(started) == 2)
    await store.close()


def test_only_json_is_stored() -> None:
    """Moments and errors become text, anything else is refused; nothing read back can run."""
    serializer = JsonSerializer()
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert serializer.deserialize(serializer.serialize({"args": (moment, 1), "kwargs": {}})) == {
        "args": ["2026-01-02T00:00:00+00:00", 1],
        "kwargs": {},
    }
    assert isinstance(serializer.deserialize(serializer.serialize(ValueError("x"))), RuntimeError)
    with pytest.raises(TypeError):
        serializer.serialize(object())


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("sqlite:////var/clara.db", "sqlite:////var/clara-engine.db"),
        ("postgres://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
    ],
)
def test_where_the_engines_tables_are(given: str, found: str) -> None:
    """A second file beside SQLite, the same database on Postgres."""
    assert system_url(given) == found


async def test_what_belongs_to_a_living_worker_and_runs_nowhere_is_queued_again(tmp_path: Path) -> None:
    """The database stopped between giving it out and its start: its owner notices, waits its grace, and runs it once."""
    ran: list[str] = []

    async def note(name: str) -> None:
        ran.append(name)

    url = f"sqlite:///{tmp_path}/d.db"
    async with run_dbos(url, "w1", {"note": note}, FAST, listens=False) as registered:
        with SetWorkflowID("lost"):
            await DBOS.enqueue_workflow_async(EVALUATIONS, registered["note"], "lost")
        _give_out(tmp_path / "d-engine.db", "lost", "w1")
        now = 0.0
        store = await SqliteStore.open(tmp_path / "leases.db")
        orphans = Takeovers(store, "w1", 10, is_alone=False, clock=lambda: now)
        assert await orphans.put_back() == 0
        now = 4.9
        assert await orphans.put_back() == 0
        now = 5.0
        assert await orphans.put_back() == 1
        now = 99.0
        assert await orphans.put_back() == 0
        await store.close()
    assert ran == []
    async with run_dbos(url, "w2", {"note": note}, FAST):
        await _until(lambda: ran)
    assert ran == ["lost"]


def _give_out(database: Path, workflow: str, worker: str) -> None:
    """What the queue writes when it hands a workflow to a worker."""
    with sqlite3.connect(database) as connection:
        sql = "UPDATE workflow_status SET status = 'PENDING', executor_id = ? WHERE workflow_uuid = ?"
        assert connection.execute(sql, (worker, workflow)).rowcount == 1


async def test_what_runs_is_never_taken_for_an_orphan(tmp_path: Path) -> None:
    """However long it takes, a workflow under way here stays where it is."""
    started: list[str] = []

    async def hang() -> None:
        started.append("once")
        await asyncio.Event().wait()

    async with run_dbos(f"sqlite:///{tmp_path}/d.db", "w1", {"hang": hang}, FAST) as registered:
        with SetWorkflowID("long"):
            await DBOS.enqueue_workflow_async(EVALUATIONS, registered["hang"])
        await _until(lambda: started)
        now = 0.0
        store = await SqliteStore.open(tmp_path / "leases.db")
        orphans = Takeovers(store, "w1", 2, is_alone=False, clock=lambda: now)
        assert await orphans.put_back() == 0
        now = 100.0
        assert await orphans.put_back() == 0
        await store.close()
    assert started == ["once"]


async def test_a_damaged_engine_database_has_a_clear_sentence(tmp_path: Path) -> None:
    """It names the file and says that nothing of value is in it."""
    (tmp_path / "d-engine.db").write_bytes(b"this is no database" * 1000)
    with pytest.raises(ConfigError, match=r"d-engine.db is damaged.*Move this file away"):
        async with run_dbos(f"sqlite:///{tmp_path}/d.db", "w1", {}, FAST):
            pass
