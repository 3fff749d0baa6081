"""Cloudflare's KV endpoints on this machine, with the documented limits and, on demand, faults.

`LocalKv` takes `PUT …/bulk` and gives `GET …/values/KEY`, `…/metadata/KEY` and `…/keys`; the envelope, codes and limits
are those of the API's documentation. `faults` are used up one by one, each by one writing request; "" is none.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, Self

from aiohttp import web

Fault = Literal["429", "500", "cut before", "cut after", "half", "garbage", "page", "says no", "400", ""]
_UNWRITTEN: tuple[Fault, ...] = ("429", "500", "cut before", "400", "page", "says no")
ACCOUNT, NAMESPACE, TOKEN = "a" * 32, "b" * 32, "kv-test-token"
_BASE = f"/client/v4/accounts/{ACCOUNT}/storage/kv/namespaces/{NAMESPACE}"


class LocalKv:
    """Use as `async with LocalKv() as kv`; `url` is the API's base."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.metadata: dict[str, Any] = {}
        self.faults: deque[Fault] = deque()
        self.writes: list[list[str]] = []
        """The keys of every bulk that was written, in order."""
        self.seconds_a_key = 1.0
        """A key may be written once in so many; before that, the bulk that holds it is refused."""
        self.on_write: Callable[[list[tuple[str, str]]], None] = lambda _pairs: None
        self._written_at: dict[str, float] = {}
        self.headers: dict[str, str] = {}
        """Of the last writing request."""
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_put(f"{_BASE}/bulk", self._bulk)
        app.router.add_get(f"{_BASE}/values/{{key}}", self._value)
        app.router.add_get(f"{_BASE}/metadata/{{key}}", self._metadata)
        app.router.add_get(f"{_BASE}/keys", self._keys)
        app.router.add_route("*", "/{rest:.*}", self._unknown)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/client/v4"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def settings(self) -> dict[str, str]:
        """What a process needs to publish here."""
        return {
            "CLARA_KV_URL": self.url,
            "CLARA_KV_ACCOUNT": ACCOUNT,
            "CLARA_KV_NAMESPACE": NAMESPACE,
            "CLARA_KV_TOKEN": TOKEN,
        }

    async def _bulk(self, request: web.Request) -> web.StreamResponse:
        self.headers = dict(request.headers)
        if refused := _refused(request):
            return refused
        fault = self.faults.popleft() if self.faults else ""
        pairs = json.loads(await request.text())
        now, problem = time.monotonic(), _beyond_limits(pairs)
        if any(now - self._written_at.get(pair["key"], 0.0) < self.seconds_a_key for pair in pairs):
            return _failed(429, 10048, "one write a second to a key", headers={"Retry-After": str(self.seconds_a_key)})
        if problem or fault in _UNWRITTEN:
            return _failed(400, 10045, problem) if problem else _not_written(fault, request, len(pairs))
        written = pairs[: len(pairs) // 2] if fault == "half" else pairs
        for pair in written:
            self.values[pair["key"]] = pair["value"]
            self.metadata[pair["key"]] = pair.get("metadata")
            self._written_at[pair["key"]] = now
        self.writes.append([pair["key"] for pair in written])
        self.on_write([(pair["key"], pair["value"]) for pair in written])
        if fault == "cut after":
            return _cut(request)
        if fault == "garbage":
            return web.Response(text="<html>504</html>", content_type="application/json")
        left = [pair["key"] for pair in pairs[len(written) :]]
        return _ok({"successful_key_count": len(written), "unsuccessful_keys": left})

    async def _value(self, request: web.Request) -> web.StreamResponse:
        found = self.values.get(request.match_info["key"])
        return _refused(request) or (web.Response(text=found) if found is not None else _absent())

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["key"]
        return _refused(request) or (_ok(self.metadata[key]) if key in self.values else _absent())

    async def _keys(self, request: web.Request) -> web.StreamResponse:
        prefix = request.query.get("prefix", "")
        names = [{"name": key} for key in sorted(self.values) if key.startswith(prefix)][:1000]
        return _refused(request) or _ok(names)

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        return _refused(request) or _failed(404, 7003, "Could not route to the request's path")


def _not_written(fault: Fault, request: web.Request, count: int) -> web.Response:
    """The answer of a service that wrote nothing, whatever it says."""
    match fault:
        case "429" | "500":
            return _failed(int(fault), 10013, "try again", headers={"Retry-After": "0.02"})
        case "400":
            return _failed(400, 10045, f"unusable, and {request.headers['Authorization']} is what was sent")
        case "page":
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        case "says no":
            told = {"successful_key_count": count, "unsuccessful_keys": []}
            return web.json_response({"success": False, "errors": [], "messages": [], "result": told})
    return _cut(request)


def _refused(request: web.Request) -> web.Response | None:
    if request.headers.get("Authorization") == f"Bearer {TOKEN}":
        return None
    return _failed(403, 10000, "Authentication error")


def _beyond_limits(pairs: list[dict[str, Any]]) -> str | None:
    if len(pairs) > 10_000:
        return "more than 10,000 keys"
    if any(not 0 < len(pair["key"].encode()) <= 512 for pair in pairs):
        return "a key of more than 512 bytes"
    if any(len(pair["value"].encode()) > 25 * 1024 * 1024 for pair in pairs):
        return "a value of more than 25 MiB"
    if any(len(json.dumps(pair.get("metadata"))) > 1024 for pair in pairs):
        return "metadata of more than 1024 bytes"
    return None


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _ok(result: Any) -> web.Response:
    return web.json_response({"success": True, "errors": [], "messages": [], "result": result})


def _absent() -> web.Response:
    return _failed(404, 10009, "get: 'key not found'")


def _failed(status: int, code: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    document = {"success": False, "errors": [{"code": code, "message": message}], "messages": [], "result": None}
    return web.json_response(document, status=status, headers=headers)
