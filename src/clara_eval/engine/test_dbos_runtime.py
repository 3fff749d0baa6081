"""DBOS as this service sets it up: priority, one run an id, JSON, and work that a stopped process leaves behind."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS, SetEnqueueOptions, SetWorkflowID

from clara_eval.engine.dbos_runtime import EVALUATIONS, JsonSerializer, launched, step_apart, system_url
from clara_eval.engine.options import EngineOptions
from clara_eval.engine.takeover import take_over
from clara_eval.store.sqlite import SqliteStore

FAST = EngineOptions(poll_seconds=0.05, worker_evaluations=1, lease_seconds=1)


async def test_the_earliest_deadline_goes_first_and_an_id_runs_once(tmp_path: Path) -> None:
    """Queued together, run by priority; a second queueing of the same id starts nothing."""
    ran: list[str] = []

    async def note(name: str) -> None:
        await step_apart("note", _append, ran, name)

    url = f"sqlite:///{tmp_path}/d.db"
    async with launched(url, "w1", {"note": note}, FAST, listens=False) as registered:
        for name, priority in (("late", 30), ("soon", 10), ("middle", 20), ("soon", 10)):
            with SetWorkflowID(name), SetEnqueueOptions(priority=priority):
                await DBOS.enqueue_workflow_async(EVALUATIONS, registered["note"], name)
    async with launched(url, "w2", {"note": note}, FAST):
        await _until(lambda: len(ran) == 3)
    assert ran == ["soon", "middle", "late"]


async def _append(ran: list[str], name: str) -> None:
    ran.append(name)


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
        await step_apart("hang", _hang, started)

    url = f"sqlite:///{tmp_path}/d.db"
    await store.take_lease("worker:first", "first", 60)
    async with launched(url, "first", {"hang": hang}, FAST) as registered:
        with SetWorkflowID("long"):
            await DBOS.enqueue_workflow_async(EVALUATIONS, registered["hang"])
        await _until(lambda: started)
    async with launched(url, "second", {"hang": hang}, FAST):
        assert await take_over(store, "second", 60, is_alone=False) == 0
        await store.drop_lease("worker:first", "first")
        assert await take_over(store, "second", 60, is_alone=False) == 1
        assert await take_over(store, "third", 60, is_alone=False) == 0
        await _until(lambda: len(started) == 2)
    await store.close()


async def _hang(started: list[str]) -> None:
    started.append("once")
    await asyncio.Event().wait()


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
