"""Readers take turns, many readers of one page get the same bytes, and the engine runs between them."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message

from clara_eval.interfaces.api.limits import (
    LOOP_PASSES,
    MAX_CACHE_BYTES,
    PacingMiddleware,
    PageCompression,
    ResponseCache,
    trace_response,
)


class Site:
    """A page that counts how often it is made, behind the middleware."""

    def __init__(self, words: str = "words ") -> None:
        self.made, self.words = 0, words
        routes = [Route("/page", self._page), Route("/operator", self._page), Route("/api/long/eval-trace", self._long)]
        self._app = PacingMiddleware(PageCompression(Starlette(routes=routes)))

    async def _page(self, _request: Request) -> Response:
        self.made += 1
        return HTMLResponse(f"<p>{self.made if self.words else ''}</p>" + (self.words or "one page ") * 500)

    async def _long(self, _request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(12):
                yield b"x" * (MAX_CACHE_BYTES // 32)

        return StreamingResponse(parts(), media_type="application/json")

    async def get(self, path: str = "/page", **headers: str) -> tuple[int, dict[str, str], bytes]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            await asyncio.Event().wait()  # nobody hangs up
            return {"type": "http.disconnect"}

        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope: dict[str, Any] = {
            "type": "http", "method": "GET", "path": path, "query_string": b"", "scheme": "http", "headers": raw,
            "http_version": "1.1", "server": ("host", 80), "client": ("reader", 1), "root_path": "",
        }  # fmt: skip
        await self._app(scope, receive, send)
        got = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], got, b"".join(message.get("body", b"") for message in sent[1:])


async def test_the_engine_runs_between_requests() -> None:
    """While 200 readers wait, the event loop passes at least twice between two requests that begin."""
    site, passes = Site(), 0

    async def engine() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(engine())
    answers = await asyncio.gather(*(site.get(cookie="own") for _ in range(200)))
    running.cancel()
    assert {status for status, _, _ in answers} == {200}
    assert site.made == 200
    assert passes >= 200 * LOOP_PASSES


async def test_a_page_that_many_ask_for_is_made_once() -> None:
    """Of fifty readers at once all get the bytes of the first one; a reader alone gets a new page."""
    site = Site()
    answers = await asyncio.gather(*(site.get() for _ in range(50)))
    assert site.made <= 2
    assert len({body for _, _, body in answers}) == site.made
    before = site.made
    assert (await site.get())[2] != answers[0][2]
    assert site.made == before + 1


@pytest.mark.parametrize("headers", [{"cookie": "session=1"}, {"authorization": "Bearer x"}])
async def test_a_page_for_one_person_is_never_kept(headers: dict[str, str]) -> None:
    """With a cookie or a key every page is made for the one who asks; the operator's pages always."""
    site = Site()
    await asyncio.gather(*(site.get(**headers) for _ in range(5)), *(site.get("/operator") for _ in range(5)))
    assert site.made == 10


async def test_pages_have_validators_and_are_compressed() -> None:
    """A page comes packed for those who can unpack it, and as 304 for those who have it."""
    site = Site(words="")
    packed, plain = await asyncio.gather(site.get(accept_encoding="gzip"), site.get())
    assert gzip.decompress(packed[2]).startswith(b"<p>")
    assert plain[2].startswith(b"<p>")
    status, _, body = await site.get(if_none_match=plain[1]["etag"])
    assert (status, body) == (304, b"")


async def test_what_is_too_long_to_keep_is_passed_on() -> None:
    """A stream of many megabytes arrives whole."""
    status, _, body = await Site().get("/api/long/eval-trace")
    assert (status, len(body)) == (200, 12 * (MAX_CACHE_BYTES // 32))


async def test_a_trace_is_read_and_compressed_once() -> None:
    """The second reader of a digest gets the kept bytes; its store is not asked."""
    kept: ResponseCache = {}
    asked = 0

    async def pieces() -> AsyncIterator[str]:
        nonlocal asked
        asked += 1
        yield "{}\n" * 1000

    request = Request({"type": "http", "headers": [(b"accept-encoding", b"gzip")]})
    found = [await trace_response(request, kept, "0xabc", pieces(), {}) for _ in range(3)]
    assert asked == 1
    assert {gzip.decompress(bytes(answer.body)) for answer in found} == {b"{}\n" * 1000}
