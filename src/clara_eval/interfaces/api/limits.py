"""Limits at the door: size of a body, rate of requests, and the headers every answer carries.

Token buckets, one a client address for requests, one a client address for wrong keys, one for the administrator. The
number of remembered clients is bounded: the one that was quiet longest is forgotten. An event stream counts once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clara_eval.interfaces.api.problems import FOR_PROGRAMS, Refusal
from clara_eval.interfaces.api.problems import response as problem_response

MAX_BODY_BYTES = 64 * 1024
MAX_HARNESS_BYTES = 2 * 1024 * 1024
"""A harness document of the allowed length, every character of it escaped."""
MAX_TOOL_BYTES = 4 * 1024 * 1024
"""Agents hand whole solutions to the tools under `/mcp`."""
_MOST_CLIENTS = 10_000
_AS_THEY_ARE = (*FOR_PROGRAMS, "/operator")
_HEADS = ("/api/", "/healthz", "/metrics", "/openapi.json", "/llms.txt")
"""Under `/mcp` the tools' own door decides."""
_TOO_MANY = "This address asks more often than the service answers."

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
    """Token buckets by name."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
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

    def __len__(self) -> int:
        return len(self._filled)


@dataclass(frozen=True, slots=True)
class Rates:
    client: Rate = Rate(per_second=400, burst=800)
    """Generous, since a busy page behind one address polls a lot; a flood still meets a wall."""
    wrong_key: Rate = Rate(per_second=0.2, burst=10)
    admin: Rate = Rate(per_second=5, burst=60)


class RequestLimits:
    def __init__(self, rates: Rates | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        rates = rates or Rates()
        self.clients = Buckets(rates.client, clock)
        self._wrong_keys = Buckets(rates.wrong_key, clock)
        self._admin = Buckets(rates.admin, clock)

    def wrong_key(self, request: Request) -> None:
        """Raise 429 for a client that tries keys."""
        _refuse(self._wrong_keys.take(client_of(request.scope)))

    def admin_request(self, request: Request) -> None:  # noqa: ARG002 - the administrator is one, wherever he is
        _refuse(self._admin.take("admin"))


def client_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


def _refuse(wait: float) -> None:
    if wait > 0:
        seconds = int(wait) + 1
        remedy = f"Wait {seconds} s, then try again."
        raise Refusal(429, _TOO_MANY, remedy=remedy, headers={"retry-after": str(seconds)})


def _most(path: str) -> int:
    """How many bytes a body may have there."""
    if path.startswith("/mcp"):
        return MAX_TOOL_BYTES
    return MAX_HARNESS_BYTES if path.endswith("/harness") else MAX_BODY_BYTES


class LimitsMiddleware:
    """The outermost layer, in plain ASGI: rate, size, headers, and the count of requests."""

    def __init__(self, app: ASGIApp, *, limits: RequestLimits, count: Callable[[Scope, int], None]) -> None:
        self._app = app
        self._limits = limits
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        decorated = self._decorated(scope, send)
        wait = self._limits.clients.take(client_of(scope))
        if wait > 0:
            seconds = int(wait) + 1
            remedy = f"Wait {seconds} s, then try again."
            await _answer(scope, decorated, 429, _TOO_MANY, remedy=remedy, retry_after=seconds)
            return
        most = _most(scope["path"])
        if _announced(scope) > most:
            await _too_large(scope, decorated, most)
            return
        body = _Body(receive, most)
        await self._app(scope, body, body.guarded(decorated))
        if body.is_over and not body.is_answered:
            await _too_large(scope, decorated, most)

    def _decorated(self, scope: Scope, send: Send) -> Send:
        async def decorated(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                missing = (pair for pair in SECURITY_HEADERS if pair[0] not in present)
                message["headers"] = [*message["headers"], *missing]
                self._count(scope, message["status"])
            await send(message)

        return decorated


class Compressed:
    """Pages and their files go out compressed; documents, streams and pages with a form's token as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain, self._small = app, GZipMiddleware(app, minimum_size=1000, compresslevel=6)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and not scope["path"].startswith(_AS_THEY_ARE)
        await (self._small if is_page else self._plain)(scope, receive, send)


class _Body:
    """Counts the body of a client that does not announce its length; once it is over, the application is not heard."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._seen = 0
        self.is_answered = False
        """An answer was begun before the body was over: no other can follow it."""

    @property
    def is_over(self) -> bool:
        return self._seen > self._most

    async def __call__(self) -> Message:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self.is_over:
            return {"type": "http.disconnect"}
        return message

    def guarded(self, send: Send) -> Send:
        async def guarded(message: Message) -> None:
            if not self.is_over:
                self.is_answered = True
                await send(message)

        return guarded


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _too_large(scope: Scope, send: Send, most: int) -> None:
    remedy = "Send less; a solution belongs at an address of its own."
    await _answer(scope, send, 413, f"A body may have at most {most:,} bytes.", remedy=remedy)


async def _answer(scope: Scope, send: Send, status: int, detail: str, *, remedy: str, retry_after: int = 0) -> None:
    """The same problem document, or page, as errors inside have."""
    request, headers = Request(scope), {"retry-after": str(retry_after)} if retry_after else None
    await problem_response(request, status, detail, remedy=remedy, headers=headers)(scope, request.receive, send)


class HeadAsGet:
    """Documents answer HEAD as they answer GET, without the body: what would stream ends after its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or not scope["path"].startswith(_HEADS):
            await self._app(scope, receive, send)
            return
        asked = {**scope, "method": "GET"}
        has_begun = asyncio.Event()

        async def only_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope.update({name: asked[name] for name in ("route", "endpoint") if name in asked})
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                has_begun.set()

        answering, begun = (asyncio.ensure_future(one) for one in (
            self._app(asked, receive, only_headers), has_begun.wait()
        ))  # fmt: skip
        await asyncio.wait((answering, begun), return_when=asyncio.FIRST_COMPLETED)
        for task in (answering, begun):
            task.cancel()
        for ended in await asyncio.gather(answering, begun, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
