"""Layers around every request: rate, size, headers, compression; and readers that never slow the post."""

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

from clara_eval.interfaces.api.context import FOR_PROGRAMS, Refusal, response

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


class Rate(NamedTuple):
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


class Rates(NamedTuple):
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
        remedy = "Send less; a solution belongs at an address of its own."
        too_large = Refusal(413, f"A body may have at most {most:,} bytes.", remedy=remedy)

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
                raise too_large
            await self._app(scope, bounded, guarded)
            if seen > most and not is_answered:
                raise too_large
        except Refusal as bad:
            request = Request(scope)
            await response(request, bad)(scope, request.receive, answer)


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


KeptAnswers = dict[object, tuple[float, Response]]  # Answers by key, with the time at which they were made


def keep(kept: KeptAnswers, key: object, made: Response) -> None:
    """Keep an answer; beyond `MOST_BYTES` in all the oldest go."""
    kept.pop(key, None)
    kept[key] = (time.monotonic(), made)
    while sum(len(answer.body) for _, answer in kept.values()) > MOST_BYTES:
        del kept[next(iter(kept))]


class ReadersMiddleware:
    """Let requests begin one after the other, and leave as much time between them as the last one took.

    While others wait, a page that was made within the last second is sent again.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._turn, self._rest_until = app, asyncio.Lock(), 0.0
        self._kept: KeptAnswers = {}

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
        made_at, kept = self._kept.get(key, (0.0, None))
        if is_busy and kept and began - made_at <= FRESH_SECONDS:
            await _validated(scope, kept)(scope, receive, send)
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
                whole = Response(b"".join(parts), headers=Headers(raw=start["headers"]))
                whole.headers.setdefault("etag", f'W/"{hashlib.sha256(whole.body).hexdigest()[:32]}"')
                whole.headers.setdefault("cache-control", "no-cache")
                keep(self._kept, key, whole)
                await _validated(scope, whole)(scope, receive, send)

        await self._app(scope, receive, answer)


def _page_key(scope: Scope) -> tuple[object, ...] | None:
    """What the bytes of a public page depend on; None if it is not one."""
    headers, path = Headers(scope=scope), scope["path"]
    is_own = "cookie" in headers or "authorization" in headers or "origin" in headers
    if is_own or path.startswith(_NOT_PUBLIC_PAGES) or scope["method"] != "GET" or path.endswith("/live"):
        return None
    is_packed, asked = "gzip" in headers.get("accept-encoding", ""), (headers.get("host"), headers.get("hx-request"))
    return (scope["scheme"], path, scope["query_string"], is_packed, *asked)


def _validated(scope: Scope, page: Response) -> Response:
    """The page, or 304 for a browser that has it."""
    if not matches(Headers(scope=scope), page.headers["etag"]):
        return page
    left = {"content-length", "content-type", "content-encoding"}
    return Response(status_code=304, headers={name: text for name, text in page.headers.items() if name not in left})


def matches(headers: Headers, etag: str) -> bool:
    given = headers.get("if-none-match", "")
    wanted = etag.removeprefix("W/")
    return bool(given) and (given.strip() == "*" or wanted in (p.strip().removeprefix("W/") for p in given.split(",")))


async def trace_response(
    request: Request, kept: KeptAnswers, digest: str, pieces: AsyncIterator[str], headers: dict[str, str]
) -> Response:
    """Answer with a trace: its bytes by digest, compressed once; a very long one is streamed as it is."""
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {**headers, "vary": "accept-encoding"} | ({"content-encoding": "gzip"} if is_packed else {})
    if (digest, is_packed) in kept:
        # Not the answer itself: a layer may change the headers of what it sends.
        return Response(kept[digest, is_packed][1].body, headers=headers, media_type="application/json")
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
    answer = Response(body, headers=headers, media_type="application/json")
    keep(kept, (digest, is_packed), answer)
    return answer


async def _rest(parts: list[bytes], pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    async for piece in pieces:
        yield piece.encode()
