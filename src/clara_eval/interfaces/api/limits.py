"""Layers around every request: rate, size, headers, compression; and readers that never slow the post."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clara_eval.interfaces.api.problems import FOR_PROGRAMS, Refusal, refusal_response

MAX_BODY_BYTES = 64 * 1024
MAX_HARNESS_BYTES = 2 * 1024 * 1024  # a harness document of the allowed length, every character of it escaped
MAX_TOOL_BYTES = 4 * 1024 * 1024  # agents hand whole solutions to the tools under `/mcp`
_MOST_CLIENTS = 10_000
_NOT_PUBLIC_PAGES = (*FOR_PROGRAMS, "/operator")
"""Neither kept nor compressed: documents and streams, and pages with a form's token, whose length must not tell it."""
_POLICY = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PASSES = 2  # passes of the event loop between two requests, at least: the engine's work is done in them
LONGEST_REST_SECONDS = 0.05
FRESH_SECONDS = 1.0  # how old a page may be while others wait; without a queue every page is made anew
MOST_BYTES = 32 * 1024 * 1024  # kept in all; a trace above a quarter of it is streamed
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"content-security-policy", _POLICY),
)


@dataclass(frozen=True, slots=True)
class Rate:
    per_second: float
    burst: float


class Buckets:
    """Token buckets by name; beyond a bound the one that was quiet longest is dropped."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Take one token: 0.0, or the seconds until there is one."""
        now = self._clock()
        tokens, at = self._filled.pop(name, (self._rate.burst, now))
        tokens = min(self._rate.burst, tokens + (now - at) * self._rate.per_second)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate.per_second
        self._filled[name] = (tokens - 1 if wait == 0 else tokens, now)
        if len(self._filled) > _MOST_CLIENTS:
            self._filled.popitem(last=False)
        return wait


@dataclass(frozen=True, slots=True)
class Rates:
    client: Rate = Rate(per_second=400, burst=800)  # several people with busy pages can share one address
    wrong_key: Rate = Rate(per_second=0.2, burst=10)
    admin: Rate = Rate(per_second=5, burst=60)


class RequestLimits:
    """One bucket for each client, for each client with wrong keys, and one for the administrator."""

    def __init__(self, rates: Rates) -> None:
        self._clients, self._wrong_keys, self._admin = map(Buckets, (rates.client, rates.wrong_key, rates.admin))

    def request(self, scope: Scope) -> None:
        _take(self._clients, (scope.get("client") or ("unknown",))[0])

    def wrong_key(self, request: Request) -> None:
        _take(self._wrong_keys, request.client.host if request.client else "unknown")

    def admin_request(self) -> None:
        _take(self._admin, "admin")


def _take(buckets: Buckets, name: str) -> None:
    if (wait := buckets.take(name)) > 0:
        seconds = int(wait) + 1
        raise Refusal(
            429,
            "This address asks more often than the service answers.",
            remedy=f"Wait {seconds} s, then try again.",
            headers={"retry-after": str(seconds)},
        )


def _too_large(most: int) -> Refusal:
    remedy = "Send less; a solution belongs at an address of its own."
    return Refusal(413, f"A body may have at most {most:,} bytes.", remedy=remedy)


class LimitsMiddleware:
    """The outermost layer: rate, size, headers, and the count of requests."""

    def __init__(self, app: ASGIApp, *, limits: RequestLimits, count: Callable[[Scope, int], None]) -> None:
        self._app, self._limits, self._count = app, limits, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = _routed(scope)
        path, seen, is_answered = scope["path"], 0, False
        most = MAX_HARNESS_BYTES if path.endswith("/harness") else MAX_BODY_BYTES
        most = MAX_TOOL_BYTES if path.startswith("/mcp") else most

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                missing = (pair for pair in SECURITY_HEADERS if pair[0] not in present)
                message["headers"] = [*message["headers"], *missing]
                self._count(scope, message["status"])
            await send(message)

        async def bounded() -> Message:
            """Count a body whose length was not announced."""
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            return {"type": "http.disconnect"} if seen > most else message

        async def guarded(message: Message) -> None:
            """Drop what the application answers to a body that is too large."""
            nonlocal is_answered
            if seen <= most:
                is_answered = True
                await answer(message)

        try:
            self._limits.request(scope)
            lengths = [value for name, value in scope["headers"] if name == b"content-length" and value.isdigit()]
            if lengths and int(lengths[0]) > most:
                raise _too_large(most)
            await self._app(scope, bounded, guarded)
            if seen > most and not is_answered:
                raise _too_large(most)
        except Refusal as bad:
            request = Request(scope)
            await refusal_response(request, bad)(scope, request.receive, answer)


def _routed(scope: Scope) -> Scope:
    """Route HEAD as GET, whose body the server drops, and `/mcp` as `/mcp/`: not every client follows a redirect."""
    if scope["path"] == "/mcp":
        return {**scope, "path": "/mcp/", "raw_path": b"/mcp/"}
    is_head = scope["method"] == "HEAD" and not scope["path"].startswith("/mcp")
    return {**scope, "method": "GET", "is_head": True} if is_head else scope


class Compressed(GZipMiddleware):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and not scope["path"].startswith(_NOT_PUBLIC_PAGES)
        await (super().__call__ if is_page else self.app)(scope, receive, send)


class KeptBytes:
    """Bytes by key; beyond `MOST_BYTES` those that were not used for longest go."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, tuple[float, list[tuple[bytes, bytes]], bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, key: object, seconds: float = float("inf")) -> tuple[list[tuple[bytes, bytes]], bytes] | None:
        """Return headers and body if they are not older than `seconds`."""
        kept = self._kept.get(key)
        if kept is None or time.monotonic() - kept[0] > seconds:
            return None
        self._kept.move_to_end(key)
        return kept[1:]

    def put(self, key: object, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self._bytes -= len(self._kept.pop(key, (0, [], b""))[2])
        self._kept[key] = (time.monotonic(), headers, body)
        self._bytes += len(body)
        while self._bytes > MOST_BYTES:
            _, (_, _, dropped) = self._kept.popitem(last=False)
            self._bytes -= len(dropped)


class ReadersMiddleware:
    """Let requests begin one after the other, and leave as much time between them as the last one took.

    While others wait, a page that was made within the last second is sent again.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._kept, self._turn, self._rest_until = app, KeptBytes(), asyncio.Lock(), 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in {"/healthz", "/metrics"}:
            await self._app(scope, receive, send)
            return
        is_busy, key = self._turn.locked(), _page_key(scope)
        async with self._turn:
            await asyncio.sleep(max(0.0, self._rest_until - time.monotonic()))
            for _ in range(PASSES):
                await asyncio.sleep(0)
        began, start, parts = time.monotonic(), None, []
        if is_busy and key and (kept := self._kept.get(key, FRESH_SECONDS)):
            await _send_whole(scope, send, *kept)
            return

        async def answer(message: Message) -> None:
            """Hold a page until it is whole, keep it, and send it with a validator."""
            nonlocal start
            if message["type"] == "http.response.start":
                now = time.monotonic()
                self._rest_until = now + min(now - began, LONGEST_REST_SECONDS)
                kind = Headers(raw=message["headers"]).get("content-type", "")
                if key and message["status"] == 200 and kind.startswith("text/html"):
                    start = message
                    return
            if start is None:
                await send(message)
                return
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                body, headers = b"".join(parts), MutableHeaders(raw=start["headers"])
                headers.setdefault("etag", f'W/"{hashlib.sha256(body).hexdigest()[:32]}"')
                headers.setdefault("cache-control", "no-cache")
                self._kept.put(key, headers.raw, body)
                await _send_whole(scope, send, headers.raw, body)

        await self._app(scope, receive, answer)


def _page_key(scope: Scope) -> tuple[object, ...] | None:
    """What the bytes of a public page depend on; None if it is not one."""
    headers, path = Headers(scope=scope), scope["path"]
    is_own = "cookie" in headers or "authorization" in headers or "origin" in headers
    if is_own or path.startswith(_NOT_PUBLIC_PAGES) or scope["method"] != "GET" or path.endswith("/live"):
        return None
    is_packed, asked = "gzip" in headers.get("accept-encoding", ""), (headers.get("host"), headers.get("hx-request"))
    return (scope["scheme"], path, scope["query_string"], is_packed, *asked)


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
