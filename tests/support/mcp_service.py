"""The tools over HTTP on this machine, as the service mounts them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from clara_eval.app import open_caller
from clara_eval.config.settings import Settings
from clara_eval.interfaces.mcp.server import create_asgi
from clara_eval.store.sqlite import SqliteStore


@asynccontextmanager
async def served(settings: Settings, database: Path) -> AsyncIterator[str]:
    store = await SqliteStore.open(str(database))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with open_caller(settings, is_local=False, store=store) as caller:
        config = uvicorn.Config(create_asgi(caller, path="/mcp"), port=port, log_level="error", lifespan="on")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn tells it in no other way
            await asyncio.sleep(0.02)
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.should_exit = True
            await task
    await store.close()
