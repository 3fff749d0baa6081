"""Open the store of a database URL: `sqlite:///path` or `postgresql://…`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from clara_eval.core.errors import ConfigError
from clara_eval.core.extras import require
from clara_eval.store.sql_store import SqlStore


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite:")


def sqlite_path(url: str) -> str:
    """Return the path in `sqlite:///relative.db` or `sqlite:////absolute.db`."""
    path = url.removeprefix("sqlite:").removeprefix("//").removeprefix("/")
    if path in ("", ":memory:"):  # other programs read a URL without a file as memory, too
        text = f"CLARA_DATABASE_URL={url!r} names no file: a database in memory would be lost with the process."
        raise ConfigError(text, remedy="Use sqlite:///path/to/file.db.")
    return path


async def open_store(url: str) -> SqlStore:
    if is_sqlite(url):
        from clara_eval.store.sqlite import SqliteStore

        return await SqliteStore.open(sqlite_path(url))
    remedy = "Use sqlite:///path/to/file.db or postgresql://user@host/database."
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # the URL is not shown: it may contain a password
        raise ConfigError("CLARA_DATABASE_URL cannot be read as a URL.", remedy=remedy) from None
    if scheme in ("postgres", "postgresql"):
        require("postgres", "A Postgres database")
        from clara_eval.store.postgres import PostgresStore

        return await PostgresStore.open(url)
    raise ConfigError(
        f"CLARA_DATABASE_URL starts with {url.split(':', 1)[0][:20]!r}, which is not a known database.", remedy=remedy
    )


@asynccontextmanager
async def opened_store(url: str) -> AsyncIterator[SqlStore]:
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def existing_store(url: str) -> AsyncIterator[SqlStore | None]:
    """Open the store if it exists; None instead of creating an SQLite file."""
    async with opened_store(url) if is_there(url) else nullcontext() as store:
        yield store


def is_there(url: str) -> bool:
    return not is_sqlite(url) or Path(sqlite_path(url)).is_file()


class StoreOnDemand:
    """A store that is opened at its first use."""

    def __init__(self, database_url: str, store: SqlStore | None = None) -> None:
        self._url = database_url
        self._store = store
        self._is_ours = store is None
        self._opening = asyncio.Lock()

    async def existing(self) -> SqlStore | None:
        return None if self._store is None and not is_there(self._url) else await self.opened()

    async def opened(self) -> SqlStore:
        async with self._opening:  # concurrent callers must not open two stores, of which one is never closed
            if self._store is None:
                self._store = await open_store(self._url)
        return self._store

    async def close(self) -> None:
        if self._store is not None and self._is_ours:
            await self._store.close()
