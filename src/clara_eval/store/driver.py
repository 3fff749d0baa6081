"""What the store needs of a database, how long callers wait for it, and its migrations.

Invariant: the list of migrations only grows; a statement waits at most `statement_seconds`, and a write that must not
be lost at most `longest_seconds`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
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
        """Run an `INSERT … VALUES (?, …)` for each row, all or none; no two rows have the same key."""
        ...

    def exclusive(self) -> AbstractAsyncContextManager[Driver]:
        """Open one transaction that no other writer of the ledger can interleave with."""
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
    """Bring the tables up to date, also when several processes start at once; ConfigError if they are newer."""
    known = dict(migrations(database))
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


def placeholders(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


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
