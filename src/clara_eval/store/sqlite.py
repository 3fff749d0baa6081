"""SQLite driver of the store: one file in WAL mode, on the thread of the event loop.

Invariant: commits survive kill -9, and exclusive ones, such as signed transactions, also a power cut.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from clara_eval.core.errors import ConfigError, StoreDown, Temporary
from clara_eval.core.private_file import make_private
from clara_eval.store.leases import since_start
from clara_eval.store.sql_store import DATABASE, Driver, Row, SqlStore, SqlValue, migrate

_RETRY_SECONDS = 0.02
_LOCKED_CODES = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED))

T = TypeVar("T")


class SqliteDriver:
    clock = "lease_clock()"

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, str(Path(path).absolute())
        self._ledger = asyncio.Lock()

    async def fetch(self, sql: str, values: Sequence[SqlValue] = ()) -> list[Row]:
        return await _retry_while_locked(lambda: self._connection.execute(sql, values).fetchall())

    async def many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        def run() -> None:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(sql, rows)

        await _retry_while_locked(run)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[Driver]:
        """Use another connection, so that the loop's other statements stay outside the transaction."""
        async with self._ledger:
            other = await _retry_while_locked(lambda: _connect(self._path, "FULL"))
            try:
                await _retry_while_locked(lambda: other.execute("BEGIN IMMEDIATE"))
                yield SqliteDriver(other, self._path)
                other.execute("COMMIT")
            except sqlite3.DatabaseError as bad:
                raise _translate_error(bad) from bad
            finally:
                other.close()

    async def close(self) -> None:
        self._connection.close()


class SqliteStore:
    @staticmethod
    async def open(path: Path | str) -> SqlStore:
        place = Path(path)
        try:
            make_private(place)
            connection = await _retry_while_locked(lambda: _connect(str(place), "NORMAL"))
            await _retry_while_locked(lambda: connection.execute("PRAGMA journal_mode=WAL"))
        except (OSError, sqlite3.Error, Temporary) as bad:
            text = f"CLARA_DATABASE_URL: the SQLite file {place} cannot be opened: {bad}."
            raise ConfigError(text, remedy="Choose a writable place, for example sqlite:///var/clara-eval.db.") from bad
        driver = SqliteDriver(connection, str(place))
        await migrate(driver, "sqlite", serial="INTEGER PRIMARY KEY")
        # It remembers the schema of before, and would use it while another process recovers the file.
        await driver.close()
        connection = await _retry_while_locked(lambda: _connect(str(place), "NORMAL"))
        return SqlStore(SqliteDriver(connection, str(place)))


def _translate_error(bad: sqlite3.DatabaseError) -> Exception:
    """Translate an error of the file into StoreDown; an error in a statement stays as it is."""
    if isinstance(bad, (sqlite3.IntegrityError, sqlite3.ProgrammingError)):
        return bad
    is_full = getattr(bad, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
    remedy = "Is the disk full, the file damaged, or does another program hold it?"
    return StoreDown(f"The SQLite store refuses: {bad}.", remedy="Free some disk space." if is_full else remedy)


async def _retry_while_locked(run: Callable[[], T]) -> T:
    """Run a statement, and retry while the file is locked, without blocking the event loop."""
    until = time.monotonic() + DATABASE.statement_seconds
    while True:
        try:
            return run()
        except sqlite3.DatabaseError as bad:
            code = getattr(bad, "sqlite_errorcode", 0)  # errors of Python's own module, as after a close, have none
            if code & 0xFF not in _LOCKED_CODES or time.monotonic() >= until:
                raise _translate_error(bad) from bad
        await asyncio.sleep(_RETRY_SECONDS)


def _connect(path: str, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    try:
        connection.create_function("lease_clock", 0, since_start)
        connection.execute(f"PRAGMA synchronous={synchronous}")
    except sqlite3.Error:
        connection.close()  # the file may be locked while another process recovers it after a crash
        raise
    return connection
