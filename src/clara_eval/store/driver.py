"""What the store needs of a database, how long callers wait for it, and its migrations.

Invariant: the list of migrations only grows; a statement waits at most `statement_seconds`, and a write that must not
be lost at most `longest_seconds`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol

import structlog

from clara_eval.core.errors import ConfigError, Temporary

Row = tuple[Any, ...]
SqlValue = str | int | float | None
BULK = 500
"""Placeholders in one statement; SQLite's oldest limit is 999."""
STORE_CONNECTIONS = 4
QUEUE_CONNECTIONS = 3
"""Of Postgres, at most, in one process; the queue has one more that listens."""


class Driver(Protocol):
    clock: str
    """SQL of the present moment in seconds, by the one clock that all holders of leases share."""

    async def fetch(self, sql: str, values: Sequence[SqlValue] = ()) -> list[Row]: ...
    async def many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """Run an `INSERT … VALUES (?, …)` for each row, all or none."""
        ...

    def exclusive(self) -> AbstractAsyncContextManager[Driver]:
        """Open one transaction that no other exclusive one can interleave with, and that survives a power cut."""
        ...

    async def close(self) -> None: ...


def migrations(database: str) -> Iterator[tuple[str, str]]:
    """Yield name and SQL of every change to the tables, oldest first; `NAME.postgres.sql` is for Postgres alone."""
    files = resources.files("clara_eval.store").joinpath("migrations").iterdir()
    for file in sorted(files, key=lambda file: file.name):
        name, _, kind = file.name.removesuffix(".sql").partition(".")
        if kind in ("", database):
            yield name, file.read_text(encoding="utf-8")


async def migrate(driver: Driver, database: str, *, serial: str) -> None:
    """Bring the tables up to date, also when several processes start at once, or close the driver.

    It is a ConfigError if a newer version wrote them.
    """
    known = dict(migrations(database))
    async with AsyncExitStack() as on_failure:
        on_failure.push_async_callback(driver.close)
        async with driver.exclusive() as tx:
            await tx.fetch("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
            applied = {row[0] for row in await tx.fetch("SELECT name FROM migrations")}
            if newer := sorted(applied - known.keys()):
                raise ConfigError(
                    f"The database of CLARA_DATABASE_URL was written by a newer version (its tables have {newer[-1]}).",
                    remedy="Start that version, or name another database: this one is left as it is.",
                )
            for name in sorted(known.keys() - applied):
                for statement in known[name].split(";")[:-1]:
                    await tx.fetch(statement.replace("{serial}", serial))
                await tx.fetch("INSERT INTO migrations (name) VALUES (?)", (name,))
        on_failure.pop_all()


async def fetch_in(driver: Driver, sql: str, keys: Sequence[str], *values: SqlValue) -> list[Row]:
    """Run `sql`, which ends in IN, for all keys after its other values, in as many statements as are needed."""
    found: list[Row] = []
    for start in range(0, len(keys), BULK):
        part = keys[start : start + BULK]
        found += await driver.fetch(f"{sql} ({','.join('?' * len(part))})", (*values, *part))
    return found


def below(prefix: str) -> tuple[str, str]:
    return prefix, prefix + "\U0010ffff"


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseRetries:
    open_seconds: float = 15.0
    """For a Postgres server to answer at the start."""
    statement_seconds: float = 20.0
    """For a file that another program holds, or a free connection of the pool."""
    write_seconds: float = 60.0
    """How long a write that must not be lost is tried again: a database restarts within a minute."""
    pause_seconds: float = 1.0

    @property
    def longest_seconds(self) -> float:
        return self.write_seconds + self.pause_seconds + self.statement_seconds

    async def until_written(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write, again and again while the database does not answer; Temporary after `write_seconds`."""
        until = time.monotonic() + self.write_seconds
        while True:
            try:
                await write()
            except Temporary as bad:
                if time.monotonic() >= until:
                    raise
                _log.warning("store_not_answering", problem=str(bad))
                await asyncio.sleep(self.pause_seconds)
            else:
                return


DATABASE = DatabaseRetries()
