"""SQLite as the embedded store: one file, one process, WAL.

Statements run on the event loop's thread: a write takes some tens of microseconds, less than handing it to another
thread. WAL with `synchronous=NORMAL` keeps every commit across kill -9. A signed transaction is written with
`synchronous=FULL`, because it must also survive a power cut.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from clara_eval.errors import ConfigError, Temporary
from clara_eval.store.sql_store import Driver, Row, SqlStore, SqlValue, migrate

BUSY_SECONDS = 20
"""How long another program may hold the file before we say so."""


class SqliteDriver:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ledger = asyncio.Lock()

    async def fetch(self, sql: str, values: Sequence[SqlValue] = ()) -> list[Row]:
        durable = sql.startswith("INSERT INTO transactions")
        try:
            if durable:
                self._connection.execute("PRAGMA synchronous=FULL")
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as bad:
            raise _refusal(bad) from bad
        finally:
            if durable:
                self._connection.execute("PRAGMA synchronous=NORMAL")

    async def many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(sql, rows)
            self._connection.execute("COMMIT")
        except sqlite3.DatabaseError as bad:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise _refusal(bad) from bad

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[Driver]:
        """Its own connection, so that the loop's other statements do not fall into this transaction."""
        async with self._ledger:
            (path,) = [row[2] for row in self._connection.execute("PRAGMA database_list") if row[1] == "main"]
            other = _connect(path)
            try:
                other.execute("BEGIN IMMEDIATE")
                yield SqliteDriver(other)
                other.execute("COMMIT")
            except sqlite3.DatabaseError as bad:
                raise _refusal(bad) from bad
            finally:
                other.close()

    async def close(self) -> None:
        self._connection.close()


class SqliteStore:
    @staticmethod
    async def open(path: Path | str) -> SqlStore:
        """Open or create the file; the folder is made."""
        place = Path(path)
        try:
            _make_private(place)
            connection = _connect(str(place))
            connection.execute("PRAGMA journal_mode=WAL")
        except (OSError, sqlite3.Error) as bad:
            raise ConfigError(
                f"CLARA_DATABASE_URL: the SQLite file {place} cannot be opened: {bad}.",
                remedy="Choose a writable place, for example sqlite:///var/clara-eval.db.",
            ) from bad
        driver = SqliteDriver(connection)
        try:
            await migrate(driver, serial="INTEGER PRIMARY KEY")
        except BaseException:
            connection.close()
            raise
        return SqlStore(driver)


def _refusal(bad: sqlite3.DatabaseError) -> Exception:
    """What the file cannot do now, in words; a statement of ours that is wrong stays what it is."""
    if isinstance(bad, (sqlite3.IntegrityError, sqlite3.ProgrammingError)):
        return bad
    return Temporary(
        f"The SQLite store refuses: {bad}.",
        remedy="Is the disk full, the file damaged, or does another program hold it?",
    )


def _make_private(place: Path) -> None:
    """The folder, and the file for its owner alone where it is new; SQLite gives its journal the same mode."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch(mode=0o600)


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection
