"""A node that misbehaves as told: a small HTTP server in front of a real node.

Comes in: the real node's address and faults. Goes out: the same answers, except where a fault says otherwise; it counts
the requests it gets. `fault` sees a whole request and may answer it; `instead` sees a single call and may answer that.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

Fault = Callable[[Any], Awaitable[web.Response | None]]
Instead = Callable[[dict[str, Any]], dict[str, Any] | None]


class FaultyNode:
    """Use it inside `async with`; `url` is where it answers."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.requests = 0
        self.calls: Counter[str] = Counter()
        self.fault: Fault | None = None
        self.instead: Instead | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=50_000_000)
        app.router.add_post("/{tail:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._session = aiohttp.ClientSession()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests += 1
        self.calls.update(call["method"] for call in (body if isinstance(body, list) else [body]))
        answer = await self.fault(body) if self.fault else None
        if answer is not None:
            return answer
        if isinstance(body, list):
            return web.json_response([await self._one(call) for call in body])
        return web.json_response(await self._one(body))

    async def _one(self, call: dict[str, Any]) -> dict[str, Any]:
        replaced = self.instead(call) if self.instead else None
        if replaced is not None:
            return {"jsonrpc": "2.0", "id": call["id"], **replaced}
        async with self._session.post(self._target, json=call) as response:
            answer: dict[str, Any] = json.loads(await response.read())
        return answer


class MiscountingNode(FaultyNode):
    """A node that counts so many transactions of everybody too many, or too few, as `extra` says."""

    extra = 0
    lies = -1
    """How many more answers are wrong; below 0 all are."""

    async def _one(self, call: dict[str, Any]) -> dict[str, Any]:
        answer = await super()._one(call)
        if call["method"] == "eth_getTransactionCount" and "result" in answer and self.lies != 0:
            self.lies -= 1
            answer["result"] = hex(max(0, int(answer["result"], 16) + self.extra))
        return answer


def status(code: int, text: str = "") -> Fault:
    """Answer everything with this HTTP status."""

    async def fault(_body: Any) -> web.Response:
        return web.Response(status=code, text=text)

    return fault


def says(text: str) -> Fault:
    """Answer everything with this text."""
    return status(200, text)


def sleeps(seconds: float) -> Fault:
    """Answer too late."""

    async def fault(_body: Any) -> None:
        await asyncio.sleep(seconds)

    return fault


def refuses(method: str, code: int, message: str, *, when: Callable[[dict[str, Any]], bool] | None = None) -> Instead:
    """Answer this method with a JSON-RPC error, always or when the call is such."""

    def instead(call: dict[str, Any]) -> dict[str, Any] | None:
        if call["method"] != method or (when is not None and not when(call)):
            return None
        return {"error": {"code": code, "message": message}}

    return instead


def answers(method: str, result: Any) -> Instead:
    """Answer this method with this result."""
    return lambda call: {"result": result} if call["method"] == method else None


def longest_range(blocks: int, code: int, message: str) -> Instead:
    """Refuse eth_getLogs over more than so many blocks, in a provider's words."""

    def is_long(call: dict[str, Any]) -> bool:
        asked = call["params"][0]
        return int(asked["toBlock"], 16) - int(asked["fromBlock"], 16) + 1 > blocks

    return refuses("eth_getLogs", code, message, when=is_long)


def no_batches() -> Fault:
    """Refuse every batch."""

    async def fault(body: Any) -> web.Response | None:
        if not isinstance(body, list):
            return None
        error = {"code": -32600, "message": "batch requests are not supported"}
        return web.json_response({"jsonrpc": "2.0", "id": None, "error": error})

    return fault
