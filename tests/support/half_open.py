"""Connections whose requests never end, as somebody opens them who wants to keep others out.

Comes in: the address of a service, and how many. Goes out, while the context lasts: so many half-sent requests; those
that the service closes are opened again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from yarl import URL

_HALF = b"GET /api/v1/challenges HTTP/1.1\r\nHost: x\r\n"


@asynccontextmanager
async def half_open(url: str, count: int) -> AsyncIterator[None]:
    """So many half-sent requests at once."""
    tasks = [asyncio.create_task(_hold(URL(url))) for _ in range(count)]
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _hold(url: URL) -> None:
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(url.host, url.port)
            try:
                writer.write(_HALF)
                await reader.read()
            finally:
                writer.close()
        await asyncio.sleep(0.5)
