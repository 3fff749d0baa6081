"""A database that is full, read-only or without a free connection ends no round: it is named, and work goes on after."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from tests.support.rounds import closed_round
from tests.support.service import Turning, eventually, raised, settings_of, turning

from clara_eval.core.address import Address
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.store import postgres, sql_store

pytestmark = pytest.mark.timeout(180)
MEGABYTES = 48


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of its own, which can be filled."""
    if os.geteuid():
        pytest.skip("only root may mount a disk")
    place = Path(tempfile.mkdtemp(prefix="disk"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=755", "tmpfs", place], check=True)
    place.parent.chmod(place.parent.stat().st_mode | 0o005)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)
    place.rmdir()


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for a free connection instead of twenty."""
    quick = replace(sql_store.DATABASE, statement_seconds=1.0, write_seconds=2.0, pause_seconds=0.1)
    for module in (sql_store, postgres):
        monkeypatch.setattr(module, "DATABASE", quick)


def fill(disk: Path) -> Path:
    """Write until nothing is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


async def admin(server: str, *statements: str) -> None:
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
        for statement in statements:
            await connection.execute(statement.encode())


@asynccontextmanager
async def database_of_a_user(server: str, options: str = "") -> AsyncIterator[tuple[str, str]]:
    """The URL of a database with an owner of its own, who is no superuser, and his name."""
    name = f"clara_{uuid4().hex}"
    await admin(server, f"CREATE ROLE {name} LOGIN PASSWORD 'x'", f"CREATE DATABASE {name} OWNER {name} {options}")
    parts = urlsplit(server)
    yield parts._replace(netloc=f"{name}:x@{parts.netloc.rpartition('@')[2]}", path=f"/{name}").geturl(), name
    await admin(server, f"DROP DATABASE {name} WITH (FORCE)", f"DROP ROLE {name}")


async def goes_on(world: Turning, address: Address, told: str, heal: Callable[[], object]) -> None:
    """The trouble is named by alert and health while the round waits; after it is healed the round is posted."""

    async def is_told() -> bool:
        await world.engine.tick()
        return told in str(world.engine.health.report("1")["problems"])

    await eventually(is_told, 60)
    assert "DatabaseUnavailable" in raised(world.engine.metrics)
    assert "EvaluationFailed" not in raised(world.engine.metrics)
    healing = heal()
    if asyncio.iscoroutine(healing):
        await healing

    async def is_posted() -> bool:
        report = await world.engine.tick()
        status = {"status": "none"} if "problem" in report else await world.status(address)
        assert status["status"] != "failed", status
        return bool(status["status"] == "complete")

    await eventually(is_posted, 90)
    assert "EvaluationFailed" not in raised(world.engine.metrics)


async def test_a_full_disk_under_sqlite_is_waited_for(
    local_chain: LocalChain, tmp_path: Path, small_disk: Path
) -> None:
    """The service says that the disk is full, ends no round, and posts when there is space again."""
    settings = settings_of(local_chain, tmp_path, CLARA_DATABASE_URL=f"sqlite:///{small_disk}/engine.db")
    async with turning(settings) as world:
        address = await closed_round(local_chain)
        filler = fill(small_disk)
        await goes_on(world, address, "database or disk is full. Free some disk space.", filler.unlink)


async def test_a_full_disk_under_postgres_is_waited_for(
    local_chain: LocalChain, tmp_path: Path, small_disk: Path, postgres_server: str
) -> None:
    """The server's own words are told, no round ends, and it is posted when there is space again."""
    async with await psycopg.AsyncConnection.connect(postgres_server) as connection:
        [folder] = await (await connection.execute("SHOW data_directory")).fetchone() or [""]
    shutil.chown(small_disk, (await asyncio.to_thread(os.stat, folder)).st_uid)
    space = f"small_{uuid4().hex}"
    await admin(postgres_server, f"CREATE TABLESPACE {space} LOCATION '{small_disk}'")
    async with (
        database_of_a_user(postgres_server, f"TABLESPACE {space}") as (url, _),
        turning(settings_of(local_chain, tmp_path, CLARA_DATABASE_URL=url)) as world,
    ):
        address = await closed_round(local_chain)
        filler = fill(small_disk)
        await goes_on(world, address, "No space left on device (DiskFull)", filler.unlink)
    await admin(postgres_server, f"DROP TABLESPACE {space}")


@pytest.mark.parametrize(
    ("break_it", "heal_it", "told"),
    [
        ("ALTER ROLE {} CONNECTION LIMIT 0", "ALTER ROLE {} CONNECTION LIMIT -1", "too many connections for role"),
        (
            "ALTER ROLE {} SET default_transaction_read_only = on",
            "ALTER ROLE {} RESET default_transaction_read_only",
            "in a read-only transaction",
        ),
    ],
    ids=["connections", "read-only"],
)
async def test_a_postgres_that_takes_nothing_is_waited_for(
    local_chain: LocalChain, tmp_path: Path, postgres_server: str, break_it: str, heal_it: str, told: str
) -> None:
    """Without a free connection, or read-only as after a failover, it is named, and the round is posted afterwards."""
    async with database_of_a_user(postgres_server) as (url, name):
        end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'"
        async with turning(settings_of(local_chain, tmp_path, CLARA_DATABASE_URL=url)) as world:
            address = await closed_round(local_chain)
            await admin(postgres_server, break_it.format(name), end)
            await goes_on(world, address, told, lambda: admin(postgres_server, heal_it.format(name), end))
