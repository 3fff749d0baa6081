"""Read the body of an HTTP answer to its end, up to a limit."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp

_CHUNK = 65_536


class TooLong(ValueError):
    """The other side sends more than we read."""


async def pieces_at_most(response: aiohttp.ClientResponse, limit: int) -> AsyncIterator[bytes]:
    """Yield the body as it arrives; TooLong after more than `limit` bytes."""
    size = 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        size += len(chunk)
        if size > limit:
            raise TooLong(f"its answer has more than {limit} bytes")
        yield chunk


async def read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    content = bytearray()
    async for chunk in pieces_at_most(response, limit):
        content += chunk
    return bytes(content)
