"""The operator is told the real cause: of a tick that failed, of a 503, of work that was taken over; and once."""

from __future__ import annotations

import asyncio
import errno
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.receiver import Receiver
from tests.support.rounds import closed_round
from tests.support.service import eventually, raised, settings_of, turning

from clara_eval.core.errors import RanOut, as_ours
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.service.attempt_runner import ending_of
from clara_eval.service.due import EngineOptions
from clara_eval.service.metrics import Alert, Alerts, Metrics, ServiceHealth, Webhook
from clara_eval.store.open import opened_store


async def test_a_database_that_takes_no_write_is_not_a_node_that_is_away(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """The alert names the database, health says why, the node counts as up; then the round is posted."""
    address = await closed_round(local_chain)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        driver = world.app.store.driver
        await driver.fetch("PRAGMA query_only=ON")
        await world.engine.tick()
        assert raised(world.engine.metrics) == {"DatabaseUnavailable"}
        assert "The SQLite store refuses" in str(world.engine.health.report("1")["problems"])
        assert b"clara_rpc_up 1.0" in world.engine.metrics.render()
        await driver.fetch("PRAGMA query_only=OFF")
        await world.engine.tick()
        await world.until(address, "complete")


async def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """A database that may not grow says that the disk is full, and what to do."""
    async with opened_store(f"sqlite:///{tmp_path}/full.db") as store:
        await store.driver.fetch("PRAGMA max_page_count=1")
        with pytest.raises(Exception, match=r"disk is full\. Free some disk space") as full:
            await store.put(1, "large", "x" * 100_000)
    assert type(full.value).__name__ == "StoreDown"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENOSPC, "No space left on device"),
        MemoryError(),
        RuntimeError("can't start new thread"),
        ExceptionGroup("two", [OSError(errno.ENFILE, "x"), OSError(errno.ENOMEM, "y")]),
    ],
)
def test_what_runs_out_never_ends_a_round(error: Exception) -> None:
    """A machine without descriptors, disk, memory or threads is waited for, in words, and is no bug."""
    ending = ending_of(error, "0xa", failures=0, now=100.0, options=EngineOptions())
    assert (ending.outcome, ending.status) == ("temporary", "pending")
    assert ending.retry_at is not None
    assert "This machine has no more" in str(ending.reason)
    assert as_ours(other := ValueError("x")) is other
    assert not isinstance(as_ours(OSError(errno.EACCES, "x")), RanOut)


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Let this process open no more files than it has open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_round_survives_a_time_without_descriptors(local_chain: LocalChain, tmp_path: Path) -> None:
    """While no file can be opened the round waits; afterwards it is posted."""
    async with turning(settings_of(local_chain, tmp_path)) as world:
        address = await closed_round(local_chain)
        with few_descriptors():
            await world.engine.tick()
            await asyncio.sleep(1)
            assert (await world.status(address))["status"] != "failed"

        async def posted() -> bool:
            await world.engine.tick()
            return bool((await world.status(address))["status"] == "complete")

        await eventually(posted)


def test_no_503_without_a_reason() -> None:
    """A loop that stands still and ticks that are missing are named among the problems."""
    now = [0.0]
    health = ServiceHealth("all", 10, lambda: now[0])
    now[0] = 29
    assert health.report("1")["problems"] == []
    now[0] = 31
    assert health.report("1")["problems"] == [health.stale_reason] == ["The event loop has not run for 31 s."]
    health.beating()
    assert health.report("1")["problems"] == ["No tick has ended for 31 s; one is due every 10 s."]


async def test_two_workers_send_an_alert_once(tmp_path: Path, receiver: Receiver) -> None:
    """Of two workers with one database one sends it; another challenge is another alert; no database, no silence."""
    async with opened_store(f"sqlite:///{tmp_path}/alerts.db") as store:
        workers = [Alerts(Metrics(), Webhook(receiver.url, None)) for _ in range(2)]
        for worker in workers:
            worker.leases = store
            assert worker.raise_alert(Alert("BalanceLow", "critical", "x", "0xa"))
            await worker.close()
        workers[1].raise_alert(Alert("BalanceLow", "critical", "x", "0xb"))
        await workers[1].close()
        assert [json.loads(body)["challenge"] for _, body in receiver.got] == ["0xa", "0xb"]
    late = Alerts(Metrics(), Webhook(receiver.url, None))
    late.leases = store
    late.raise_alert(Alert("BalanceLow", "critical", "x", "0xa"))
    await late.close()
    assert len(receiver.got) == 3


async def test_a_takeover_sends_its_alert(local_chain: LocalChain, tmp_path: Path) -> None:
    """Work that a stopped process left is taken over at the next start, and WorkerLost is raised."""
    settings, address = settings_of(local_chain, tmp_path), await closed_round(local_chain)
    async with turning(settings) as world:
        await world.engine.requests.request(address)
        await eventually(lambda: _runs(world.engine.metrics))
    async with turning(settings) as world:
        await world.until(address, "complete")
        await eventually(lambda: _took_over(world.engine.metrics))


async def _runs(metrics: Metrics) -> bool:
    return b"clara_evaluations_running 1.0" in metrics.render()


async def _took_over(metrics: Metrics) -> bool:
    return "WorkerLost" in raised(metrics)
