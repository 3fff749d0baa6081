"""Postgres driver of the store, over a pool of connections.

Invariant: one advisory lock serialises the ledger; a lost connection is `StoreDown`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from clara_eval.core.errors import ConfigError, StoreDown
from clara_eval.store.sql_store import DATABASE, STORE_CONNECTIONS, Driver, Row, SqlStore, SqlValue, migrate

_LEDGER_LOCK = 0x636C617261  # Advisory lock of the ledger and of migrations: any constant of our own
Connect = Callable[[], AbstractAsyncContextManager[psycopg.AsyncConnection[Row]]]


class PostgresDriver:
    clock = "EXTRACT(EPOCH FROM clock_timestamp())::DOUBLE PRECISION"

    def __init__(self, url: str, connect: Connect, close: Callable[[], Awaitable[None]]) -> None:
        self._url, self._connect, self._close = url, connect, close

    async def fetch(self, sql: str, values: Sequence[SqlValue] = ()) -> list[Row]:
        async with _outage_is_temporary(self._url), self._connect() as connection:
            cursor = await connection.execute(_with_psycopg_placeholders(sql), values)
            return await cursor.fetchall() if cursor.description else []

    async def many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        async with _outage_is_temporary(self._url), self._connect() as connection, connection.transaction():
            await connection.cursor().executemany(_with_psycopg_placeholders(sql), rows)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[Driver]:
        async with _outage_is_temporary(self._url), self._connect() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LEDGER_LOCK,))
            yield PostgresDriver(self._url, lambda: nullcontext(connection), self._close)

    async def close(self) -> None:
        await self._close()


class PostgresStore:
    @staticmethod
    async def open(url: str, *, connections: int = STORE_CONNECTIONS) -> SqlStore:
        pool = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            open=False,
            kwargs={"autocommit": True},
            check=AsyncConnectionPool.check_connection,
            timeout=DATABASE.statement_seconds,
        )
        try:
            await pool.open(wait=True, timeout=DATABASE.open_seconds)
        except PoolTimeout:
            await pool.close()
            raise ConfigError(
                f"CLARA_DATABASE_URL: the Postgres server does not answer within {DATABASE.open_seconds:.0f} s: "
                f"{await _diagnose(url)}.",
                remedy="Is it running, and are host, user, password and database right?",
            ) from None
        driver = PostgresDriver(url, pool.connection, pool.close)
        try:
            await migrate(driver, "postgres", serial="BIGSERIAL PRIMARY KEY")
        except psycopg.errors.InsufficientPrivilege as bad:
            text = f"CLARA_DATABASE_URL: the user may not make its tables ({bad.diag.message_primary})."
            raise ConfigError(text, remedy="Let it own the database, or GRANT CREATE ON SCHEMA public TO it.") from None
        return SqlStore(driver)


@asynccontextmanager
async def _outage_is_temporary(url: str) -> AsyncIterator[None]:
    try:
        yield
    except PoolTimeout as bad:
        raise StoreDown(f"Postgres gives no connection: {await _diagnose(url)}.", remedy="It is asked again.") from bad
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction) as bad:
        problem = f"refuses: {bad.diag.message_primary}" if bad.diag.message_primary else "does not answer"
        raise StoreDown(f"Postgres {problem} ({type(bad).__name__}).", remedy="It is asked again.") from bad


async def _diagnose(url: str) -> str:
    """Connect once outside the pool, which hides the server's message, and return why that fails."""
    try:
        await (await psycopg.AsyncConnection.connect(url, connect_timeout=5)).close()
    except psycopg.OperationalError as bad:
        return str(bad).strip().rpartition("FATAL:")[2].strip()
    return "all of this process are in use"


def _with_psycopg_placeholders(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()
