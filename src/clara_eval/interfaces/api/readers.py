"""Readers never slow the post: requests take turns, busy pages are sent again as bytes, traces are compressed once."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clara_eval.interfaces.api.problems import FOR_PROGRAMS

PASSES = 2
"""Passes of the event loop between two requests, at least: the engine's work is done in them."""
LONGEST_REST_SECONDS = 0.05
FRESH_SECONDS = 1.0
"""How old a page may be while others wait; without a queue every page is made anew."""
MOST_BYTES = 32 * 1024 * 1024
"""Kept in all; a trace above a quarter of it is streamed."""
_OWN = ("/operator", *FOR_PROGRAMS)
"""Pages of one person, and documents with their own validators."""


class Turns:
    """Let requests begin one after the other, and leave as much time between them as the last one took."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._rest_until = 0.0

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    async def take(self) -> None:
        async with self._lock:
            await asyncio.sleep(max(0.0, self._rest_until - time.monotonic()))
            for _ in range(PASSES):
                await asyncio.sleep(0)

    def spent(self, seconds: float) -> None:
        self._rest_until = time.monotonic() + min(seconds, LONGEST_REST_SECONDS)


class KeptBytes:
    """Bytes by key; beyond `MOST_BYTES` those that were not used for longest go."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, tuple[float, list[tuple[bytes, bytes]], bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, key: object, seconds: float = float("inf")) -> tuple[list[tuple[bytes, bytes]], bytes] | None:
        """Return headers and body if they are not older than `seconds`."""
        at, headers, body = self._kept.get(key, (float("-inf"), [], b""))
        if time.monotonic() - at > seconds or key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return headers, body

    def put(self, key: object, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self._bytes -= len(self._kept.pop(key, (0, [], b""))[2])
        self._kept[key] = (time.monotonic(), headers, body)
        self._bytes += len(body)
        while self._bytes > MOST_BYTES:
            _, (_, _, dropped) = self._kept.popitem(last=False)
            self._bytes -= len(dropped)


class ReadersMiddleware:
    """Give requests their turns; while others wait, send a page again that was made within the last second."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._turns, self._kept = app, Turns(), KeptBytes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in {"/healthz", "/metrics"}:
            await self._app(scope, receive, send)
            return
        is_busy, key = self._turns.is_busy, _page_key(scope)
        await self._turns.take()
        kept, began = self._kept.get(key, FRESH_SECONDS) if is_busy and key else None, time.monotonic()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._turns.spent(time.monotonic() - began)
            await send(message)

        if kept is None:
            await self._app(scope, receive, _Page(self._kept, key, scope, answer) if key else answer)
        else:
            await _send_whole(scope, answer, *kept)


def _page_key(scope: Scope) -> tuple[object, ...] | None:
    """What the bytes of a public page depend on; None if it is not one."""
    headers = Headers(scope=scope)
    is_own = "cookie" in headers or "authorization" in headers or "origin" in headers
    path = scope["path"]
    is_page = not path.startswith(_OWN) or path.endswith("/eval-trace")
    if is_own or not is_page or scope["method"] != "GET" or path.endswith("/live"):
        return None
    names = ("host", "hx-request")
    query, is_packed = scope["query_string"], "gzip" in headers.get("accept-encoding", "")
    return (scope["scheme"], path, query, is_packed, *(headers.get(name) for name in names))


class _Page:
    """Holds a page until it is whole, keeps it, and sends it with a validator."""

    def __init__(self, kept: KeptBytes, key: object, scope: Scope, send: Send) -> None:
        self._kept, self._key, self._scope, self._send = kept, key, scope, send
        self._start: Message | None = None
        self._body: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = Headers(raw=message["headers"]).get("content-type", "")
            if message["status"] == 200 and kind.startswith(("text/html", "application/json")):
                self._start = message
                return
        if self._start is None:
            await self._send(message)
            return
        self._body.append(message.get("body", b""))
        if message.get("more_body"):
            if sum(map(len, self._body)) > MOST_BYTES // 4:
                start, self._start = self._start, None
                await self._send(start)
                await self._send({**message, "body": b"".join(self._body)})
            return
        body, headers = b"".join(self._body), MutableHeaders(raw=self._start["headers"])
        headers.setdefault("etag", f'W/"{hashlib.sha256(body).hexdigest()[:32]}"')
        headers.setdefault("cache-control", "no-cache")
        self._kept.put(self._key, headers.raw, body)
        await _send_whole(self._scope, self._send, headers.raw, body)


async def _send_whole(scope: Scope, send: Send, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    if matches(Headers(scope=scope), Headers(raw=headers).get("etag", "")):
        headers = [pair for pair in headers if pair[0] not in {b"content-length", b"content-type", b"content-encoding"}]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


def matches(headers: Headers, etag: str) -> bool:
    given = headers.get("if-none-match", "")
    wanted = etag.removeprefix("W/")
    return bool(given) and (given.strip() == "*" or wanted in (p.strip().removeprefix("W/") for p in given.split(",")))


async def trace_response(
    request: Request, kept: KeptBytes, digest: str, pieces: AsyncIterator[str], headers: dict[str, str]
) -> Response:
    """Answer with a trace: its bytes by digest, compressed once; a very long one is streamed as it is."""
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {**headers, "vary": "accept-encoding"} | ({"content-encoding": "gzip"} if is_packed else {})
    if (known := kept.get((digest, is_packed))) is not None:
        return Response(known[1], headers=headers, media_type="application/json")
    parts, size = [], 0
    async for piece in pieces:
        parts.append(piece.encode())
        size += len(parts[-1])
        if size > MOST_BYTES // 4:
            headers.pop("content-encoding", None)
            return StreamingResponse(_rest(parts, pieces), headers=headers, media_type="application/json")
    body = b"".join(parts)
    if is_packed:
        body = await asyncio.to_thread(gzip.compress, body, 6, mtime=0)
    kept.put((digest, is_packed), [], body)
    return Response(body, headers=headers, media_type="application/json")


async def _rest(parts: list[bytes], pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    async for piece in pieces:
        yield piece.encode()
