"""Limits of a request: rate and size; the headers of every answer; compression."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clara_eval.interfaces.api.problems import FOR_PROGRAMS, Refusal, refusal_response

MAX_BODY_BYTES = 64 * 1024
MAX_HARNESS_BYTES = 2 * 1024 * 1024
"""A harness document of the allowed length, every character of it escaped."""
MAX_TOOL_BYTES = 4 * 1024 * 1024
"""Agents hand whole solutions to the tools under `/mcp`."""
_MOST_CLIENTS = 10_000
_UNCOMPRESSED = (*FOR_PROGRAMS, "/operator")
"""Documents and streams; pages with a form's token, whose length must not tell it."""
_POLICY = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
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
    client: Rate = Rate(per_second=400, burst=800)
    """Several people with busy pages can share one address."""
    wrong_key: Rate = Rate(per_second=0.2, burst=10)
    admin: Rate = Rate(per_second=5, burst=60)


class RequestLimits:
    """One bucket for each client, for each client with wrong keys, and one for the administrator."""

    def __init__(self, rates: Rates | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        rates = rates or Rates()
        self._clients = Buckets(rates.client, clock)
        self._wrong_keys = Buckets(rates.wrong_key, clock)
        self._admin = Buckets(rates.admin, clock)

    def request(self, scope: Scope) -> None:
        _refuse(self._clients.take(_client(scope)))

    def wrong_key(self, request: Request) -> None:
        _refuse(self._wrong_keys.take(_client(request.scope)))

    def admin_request(self) -> None:
        _refuse(self._admin.take("admin"))


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


def _refuse(wait: float) -> None:
    if wait > 0:
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
        answer, path, seen, is_answered = self._with_headers(scope, send), scope["path"], 0, False
        most = MAX_HARNESS_BYTES if path.endswith("/harness") else MAX_BODY_BYTES
        most = MAX_TOOL_BYTES if path.startswith("/mcp") else most

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

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                missing = (pair for pair in SECURITY_HEADERS if pair[0] not in present)
                message["headers"] = [*message["headers"], *missing]
                self._count(scope, message["status"])
            await send(message)

        return answer


class Compressed(GZipMiddleware):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and not scope["path"].startswith(_UNCOMPRESSED)
        await (super().__call__ if is_page else self.app)(scope, receive, send)


class Routed:
    """Route HEAD as GET, whose body the server drops, and `/mcp` as `/mcp/`: not every client follows a redirect."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            scope = {**scope, "path": "/mcp/", "raw_path": b"/mcp/"}
        elif scope["type"] == "http" and scope["method"] == "HEAD" and not scope["path"].startswith("/mcp"):
            scope = {**scope, "method": "GET", "is_head": True}
        await self._app(scope, receive, send)
