"""What the store needs of a database, how long callers wait for it, and its migrations.

Invariant: the list of migrations only grows; a statement waits at most `statement_seconds`, and a write that must not
be lost at most `longest_seconds`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from clara_eval.core.errors import Temporary

Row = tuple[Any, ...]
SqlValue = str | int | float | None
BULK = 500
"""Placeholders in one statement; SQLite's oldest limit is 999."""

Migrations = tuple[tuple[str, tuple[str, ...]], ...]

MIGRATIONS: Migrations = (
    (
        "0001_start",
        (
            "CREATE TABLE entries (run TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (run, key))",
            (
                "CREATE TABLE answers (request TEXT PRIMARY KEY, run TEXT NOT NULL, llm TEXT NOT NULL, "
                "purpose TEXT NOT NULL, answer TEXT NOT NULL, cost_micro_usd BIGINT)"
            ),
            "CREATE INDEX answers_by_run ON answers (run)",
            (
                "CREATE TABLE public_keys (chain_id BIGINT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, "
                "PRIMARY KEY (chain_id, key))"
            ),
            (
                "CREATE TABLE transactions (run TEXT NOT NULL, intention TEXT NOT NULL, attempt BIGINT NOT NULL, "
                "sender TEXT NOT NULL, nonce BIGINT NOT NULL, tx_hash TEXT NOT NULL UNIQUE, raw TEXT NOT NULL, "
                "max_fee_per_gas BIGINT NOT NULL, max_priority_fee_per_gas BIGINT NOT NULL, "
                "PRIMARY KEY (run, intention, attempt))"
            ),
            "CREATE INDEX transactions_by_sender ON transactions (sender, nonce)",
            "CREATE TABLE checkpoints (name TEXT PRIMARY KEY, block_number BIGINT NOT NULL, block_hash TEXT NOT NULL)",
            "CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until_at DOUBLE PRECISION NOT NULL)",
            (
                "CREATE TABLE spends (id {serial}, run TEXT NOT NULL, poster TEXT NOT NULL, purpose TEXT NOT NULL, "
                "reserved_micro_usd BIGINT NOT NULL, settled_micro_usd BIGINT, at BIGINT NOT NULL, "
                "UNIQUE (run, purpose))"
            ),
            "CREATE INDEX spends_by_time ON spends (at)",
        ),
    ),
    ("0003_signed_at", ("ALTER TABLE transactions ADD COLUMN signed_at BIGINT NOT NULL DEFAULT 0",)),
    ("0004_lease_length", ("ALTER TABLE leases ADD COLUMN seconds DOUBLE PRECISION NOT NULL DEFAULT 30",)),
)


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


async def migrate(driver: Driver, *, serial: str, migrations: Migrations = MIGRATIONS) -> None:
    """Bring the tables up to date, also when several processes start at once."""
    async with driver.exclusive() as tx:
        await tx.fetch("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
        applied = {row[0] for row in await tx.fetch("SELECT name FROM migrations")}
        for name, statements in migrations:
            if name in applied:
                continue
            for statement in statements:
                await tx.fetch(statement.replace("{serial}", serial))
            await tx.fetch("INSERT INTO migrations (name) VALUES (?)", (name,))


def placeholders(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def below(prefix: str) -> tuple[str, str]:
    """The bounds of all keys that start with `prefix`."""
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
