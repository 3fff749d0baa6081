"""An answer is read to its end, however it arrives, and no further than allowed."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from clara_eval.core.web import TooLong, read_at_most


async def in_pieces(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(5):
        await answer.write(b"x" * 1000)
        await asyncio.sleep(0.01)
    return answer


async def test_an_answer_in_pieces_is_read_whole_or_refused() -> None:
    """Five pieces with pauses between them are one body; one byte over the limit is an error."""
    app = web.Application()
    app.router.add_get("/", in_pieces)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        async with session.get(server.make_url("/")) as answer:
            assert await read_at_most(answer, 5000) == b"x" * 5000
        async with session.get(server.make_url("/")) as answer:
            with pytest.raises(TooLong, match="more than 4999 bytes"):
                await read_at_most(answer, 4999)
