"""Middleware for every request: rate and size limits, headers, compression, and pacing."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from fastapi import Request
from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clara_eval.interfaces.api.context import API_PATHS, Refusal, problem_response

MAX_BODY_BYTES = 64 * 1024
MAX_HARNESS_BYTES = 2 * 1024 * 1024  # a harness document of the largest length, with every character escaped
MAX_TOOL_BYTES = 4 * 1024 * 1024  # agents send whole solutions to the tools under `/mcp`
_MAX_CLIENTS = 10_000
_NOT_PUBLIC_PAGES = (*API_PATHS, "/operator")
"""Never cached or compressed: JSON, streams, and forms whose token compression could reveal (BREACH)."""
_PAGE_CSP = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
LOOP_PASSES = 2  # passes of the event loop between two requests, so that the engine gets its turn
MAX_PAUSE_SECONDS = 0.05  # between two requests
MAX_PAGE_AGE_SECONDS = 1.0  # of a cached page while requests queue; without a queue every page is rendered anew
MAX_CACHE_BYTES = 32 * 1024 * 1024  # for all cached responses; a trace above a quarter of it is streamed
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"content-security-policy", _PAGE_CSP),
)


class Rate(NamedTuple):
    per_second: float
    burst: float


class Buckets:
    """Token buckets by name; above 10,000 the least recently used one is dropped."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Take one token and return 0.0, or return the seconds until there is one."""
        now = self._clock()
        tokens, at = self._filled.pop(name, (self._rate.burst, now))
        tokens = min(self._rate.burst, tokens + (now - at) * self._rate.per_second)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate.per_second
        self._filled[name] = (tokens - 1 if wait == 0 else tokens, now)
        if len(self._filled) > _MAX_CLIENTS:
            self._filled.popitem(last=False)
        return wait


class Rates(NamedTuple):
    client: Rate = Rate(per_second=400, burst=800)  # several people with busy pages can share one IP address
    wrong_key: Rate = Rate(per_second=0.2, burst=10)
    admin: Rate = Rate(per_second=5, burst=60)


class RequestLimits:
    """Rate limits per client, per client with wrong keys, and for all admins; above them Refusal 429."""

    def __init__(self, rates: Rates) -> None:
        self._clients, self._wrong_keys, self._admin = map(Buckets, (rates.client, rates.wrong_key, rates.admin))

    def take_request(self, scope: Scope) -> None:
        _take_or_refuse(self._clients, (scope.get("client") or ("unknown",))[0])

    def take_wrong_key(self, request: Request) -> None:
        _take_or_refuse(self._wrong_keys, request.client.host if request.client else "unknown")

    def take_admin_request(self) -> None:
        _take_or_refuse(self._admin, "admin")


def _take_or_refuse(buckets: Buckets, name: str) -> None:
    if (wait := buckets.take(name)) > 0:
        seconds = int(wait) + 1
        raise Refusal(
            429,
            "This address asks more often than the service answers.",
            remedy=f"Wait {seconds} s, then try again.",
            headers={"retry-after": str(seconds)},
        )


class LimitsMiddleware:
    """Limit the rate and size of requests, add security headers, and count responses."""

    def __init__(self, app: ASGIApp, *, limits: RequestLimits, count: Callable[[Scope, int], None]) -> None:
        self._app, self._limits, self._count = app, limits, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = _normalised(scope)
        path, seen, is_answered = scope["path"], 0, False
        max_bytes = MAX_HARNESS_BYTES if path.endswith("/harness") else MAX_BODY_BYTES
        max_bytes = MAX_TOOL_BYTES if path.startswith("/mcp") else max_bytes
        remedy = "Send less; a solution belongs at an address of its own."
        too_large = Refusal(413, f"A body may have at most {max_bytes:,} bytes.", remedy=remedy)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                missing = (pair for pair in SECURITY_HEADERS if pair[0] not in present)
                message["headers"] = [*message["headers"], *missing]
                self._count(scope, message["status"])
            await send(message)

        async def receive_bounded() -> Message:
            """Receive a message, or end the body when it grows above the limit without a content-length."""
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            return {"type": "http.disconnect"} if seen > max_bytes else message

        async def send_unless_too_large(message: Message) -> None:
            """Send a message, unless the body was too large: then the response is 413."""
            nonlocal is_answered
            if seen <= max_bytes:
                is_answered = True
                await send_with_headers(message)

        try:
            self._limits.take_request(scope)
            lengths = [value for name, value in scope["headers"] if name == b"content-length" and value.isdigit()]
            if lengths and int(lengths[0]) > max_bytes:
                raise too_large
            await self._app(scope, receive_bounded, send_unless_too_large)
            if seen > max_bytes and not is_answered:
                raise too_large
        except Refusal as bad:
            request = Request(scope)
            await problem_response(request, bad)(scope, request.receive, send_with_headers)


def _normalised(scope: Scope) -> Scope:
    """Route HEAD as GET, whose body the server drops, and `/mcp` as `/mcp/` for clients without redirects."""
    if scope["path"] == "/mcp":
        return {**scope, "path": "/mcp/", "raw_path": b"/mcp/"}
    is_head = scope["method"] == "HEAD" and not scope["path"].startswith("/mcp")
    return {**scope, "method": "GET", "is_head": True} if is_head else scope


class PageCompression(GZipMiddleware):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and not scope["path"].startswith(_NOT_PUBLIC_PAGES)
        await (super().__call__ if is_page else self.app)(scope, receive, send)


ResponseCache = dict[object, tuple[float, Response]]  # by key, with the time at which the response was made


def cache_response(cache: ResponseCache, key: object, made: Response) -> None:
    """Add a response; drop the oldest ones above `MAX_CACHE_BYTES`."""
    cache.pop(key, None)
    cache[key] = (time.monotonic(), made)
    while sum(len(response.body) for _, response in cache.values()) > MAX_CACHE_BYTES:
        del cache[next(iter(cache))]


class PacingMiddleware:
    """Start requests one at a time, and pause between them for as long as the last one took.

    The pauses leave the event loop to the engine. While requests queue, a page is reused for up to one second.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._turn, self._pause_until = app, asyncio.Lock(), 0.0
        self._cache: ResponseCache = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in {"/healthz", "/metrics"}:
            await self._app(scope, receive, send)
            return
        is_busy, key = self._turn.locked(), _page_key(scope)
        async with self._turn:
            await asyncio.sleep(max(0.0, self._pause_until - time.monotonic()))
            for _ in range(LOOP_PASSES):
                await asyncio.sleep(0)
        began, start, parts = time.monotonic(), None, []
        made_at, cached = self._cache.get(key, (0.0, None))
        if is_busy and cached and began - made_at <= MAX_PAGE_AGE_SECONDS:
            await _page_or_304(scope, cached)(scope, receive, send)
            return

        async def send_page(message: Message) -> None:
            """Buffer a page until it is complete, cache it, and send it with an ETag."""
            nonlocal start
            if message["type"] == "http.response.start":
                now = time.monotonic()
                self._pause_until = now + min(now - began, MAX_PAUSE_SECONDS)
                kind = Headers(raw=message["headers"]).get("content-type", "")
                if key and message["status"] == 200 and kind.startswith("text/html"):
                    start = message
                    return
            if start is None:
                await send(message)
                return
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                whole = Response(b"".join(parts), headers=Headers(raw=start["headers"]))
                whole.headers.setdefault("etag", f'W/"{hashlib.sha256(whole.body).hexdigest()[:32]}"')
                whole.headers.setdefault("cache-control", "no-cache")
                cache_response(self._cache, key, whole)
                await _page_or_304(scope, whole)(scope, receive, send)

        await self._app(scope, receive, send_page)


def _page_key(scope: Scope) -> tuple[object, ...] | None:
    """Return the cache key of a public page; None for any other request."""
    headers, path = Headers(scope=scope), scope["path"]
    is_own = "cookie" in headers or "authorization" in headers or "origin" in headers
    if is_own or path.startswith(_NOT_PUBLIC_PAGES) or scope["method"] != "GET" or path.endswith("/live"):
        return None
    is_packed, asked = "gzip" in headers.get("accept-encoding", ""), (headers.get("host"), headers.get("hx-request"))
    return (scope["scheme"], path, scope["query_string"], is_packed, *asked)


def _page_or_304(scope: Scope, page: Response) -> Response:
    if not etag_matches(Headers(scope=scope), page.headers["etag"]):
        return page
    left = {"content-length", "content-type", "content-encoding"}
    return Response(status_code=304, headers={name: text for name, text in page.headers.items() if name not in left})


def etag_matches(headers: Headers, etag: str) -> bool:
    given = headers.get("if-none-match", "")
    wanted = etag.removeprefix("W/")
    return bool(given) and (given.strip() == "*" or wanted in (p.strip().removeprefix("W/") for p in given.split(",")))


async def trace_response(
    request: Request, cache: ResponseCache, digest: str, pieces: AsyncIterator[str], headers: dict[str, str]
) -> Response:
    """Return a trace, cached by digest and compressed once; a very long one is streamed uncompressed."""
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {**headers, "vary": "accept-encoding"} | ({"content-encoding": "gzip"} if is_packed else {})
    if (digest, is_packed) in cache:
        # A new response, because middleware may change the headers of the one it sends.
        return Response(cache[digest, is_packed][1].body, headers=headers, media_type="application/json")
    parts, size = [], 0
    async for piece in pieces:
        parts.append(piece.encode())
        size += len(parts[-1])
        if size > MAX_CACHE_BYTES // 4:
            headers.pop("content-encoding", None)
            return StreamingResponse(_stream_rest(parts, pieces), headers=headers, media_type="application/json")
    body = b"".join(parts)
    if is_packed:
        body = await asyncio.to_thread(gzip.compress, body, 6, mtime=0)
    answer = Response(body, headers=headers, media_type="application/json")
    cache_response(cache, (digest, is_packed), answer)
    return answer


async def _stream_rest(parts: list[bytes], pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    async for piece in pieces:
        yield piece.encode()
