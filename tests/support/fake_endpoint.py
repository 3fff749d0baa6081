"""A fake model endpoint: OpenAI chat completions, Claude messages and Claude message batches, over real HTTP.

Requests come in as the official SDKs send them; answers go out in the documented shapes after a fixed latency, valid
for whatever JSON schema the request carries. A script may choose a fault for any request. `paid` counts the answers
delivered in full, which is what a provider would charge. It knows nothing of judging: it chooses by a hash of the
prompt.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Kind = Literal["status", "hang", "drip", "reset", "cut", "garbage", "text", "refusal", "max_tokens"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong. `status` answers with an error; `text` replaces the model's words; the rest are as named."""

    kind: Kind
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "scripted fault"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    number: int
    """Requests before this one."""
    times: int
    """Requests before this one with the same messages."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema asked for, in either provider's place; empty if there is none."""
        wanted = (self.body.get("response_format") or {}).get("json_schema") or {}
        found = wanted.get("schema") or ((self.body.get("output_config") or {}).get("format") or {}).get("schema")
        return found or {}

    @property
    def text(self) -> str:
        return json.dumps([self.body.get("system"), self.body.get("messages")], sort_keys=True)


Script = Callable[[Seen], Fault | None]
Turn = Callable[[Seen], AbstractAsyncContextManager[None]]
Words = Callable[[Seen], str]


def words_by_schema(seen: Seen) -> str:
    """A valid answer for the schema, chosen by a hash of the prompt."""
    digest = hashlib.sha256(seen.text.encode()).digest()
    return json.dumps(sample(seen.schema, int.from_bytes(digest[:8], "big")))


def sample(schema: dict[str, Any], choice: int) -> Any:
    """Some value that fits the schema; `choice` decides among the possible ones."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][choice % len(schema["enum"])]
    if schema.get("anyOf"):
        return sample(schema["anyOf"][0], choice)
    kind = schema.get("type", "object")
    if kind == "object":
        named = schema.get("properties", {})
        return {name: sample(part, choice >> index) for index, (name, part) in enumerate(named.items())}
    if kind == "boolean":
        return choice % 2 == 0
    if kind in ("integer", "number"):
        low, high = int(schema.get("minimum", 0)), int(schema.get("maximum", 1))
        return low + choice % (high - low + 1)
    return [] if kind == "array" else "by hash"


class FakeEndpoint:
    """The server. Start it with `running()`; `url` is the base for OpenAI (`/v1`) and `root` for Claude."""

    def __init__(
        self, *, latency: float = 0.0, words: Words = words_by_schema, script: Script | None = None, keep: bool = True
    ) -> None:
        self.latency, self.words, self.script = latency, words, script
        self.turn: Turn | None = None
        """Entered before an answer is written and left when it is delivered, to order deliveries in a test."""
        self.seen: list[Seen] = []
        self.paid = 0
        self.paid_by_text: dict[str, int] = {}
        self.root = ""
        self.batches: dict[str, dict[str, Any]] = {}
        self.batch_polls_needed = 1
        self.batch_outcomes: dict[str, str] = {}
        """custom_id → `errored`, `expired` or `canceled`, for items that must not succeed."""
        self._keep = keep
        self._count = 0
        self._times: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[FakeEndpoint]:
        runner = web.AppRunner(self._app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.root = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v1/messages", self._answer)
        app.router.add_post("/v1/messages/batches", self._create_batch)
        app.router.add_get("/v1/messages/batches", self._list_batches)
        app.router.add_get("/v1/messages/batches/{id}", self._show_batch)
        app.router.add_post("/v1/messages/batches/{id}/cancel", self._cancel_batch)
        app.router.add_get("/v1/messages/batches/{id}/results", self._batch_results)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        seen = self._note(request, await request.json())
        if self.latency:
            await asyncio.sleep(self.latency)
        fault = self.script(seen) if self.script else None
        if fault is not None and fault.kind not in ("text", "refusal", "max_tokens"):
            return await _go_wrong(request, fault, self._body(seen, None))
        if self.turn is None:
            return await self._deliver(request, seen, fault)
        async with self.turn(seen):
            return await self._deliver(request, seen, fault)

    async def _deliver(self, request: web.Request, seen: Seen, fault: Fault | None) -> web.StreamResponse:
        response = web.json_response(self._body(seen, fault))
        await response.prepare(request)
        await response.write_eof()
        self.paid += 1
        if self._keep:
            self.paid_by_text[seen.text] = self.paid_by_text.get(seen.text, 0) + 1
        return response

    def _note(self, request: web.Request, body: dict[str, Any]) -> Seen:
        key = json.dumps(body.get("messages")) if self._keep else ""
        times = self._times.get(key, 0)
        seen = Seen(request.path, {k.lower(): v for k, v in request.headers.items()}, body, self._count, times)
        self._count += 1
        if self._keep:
            self._times[key] = times + 1
            self.seen.append(seen)
        return seen

    def _body(self, seen: Seen, fault: Fault | None) -> dict[str, Any]:
        text = fault.text if fault else self.words(seen)
        kind = fault.kind if fault else "text"
        if seen.path == "/v1/messages":
            return message_body(seen.body, text, kind)
        return completion_body(seen.body, text, kind)

    # message batches

    async def _create_batch(self, request: web.Request) -> web.Response:
        seen = self._note(request, await request.json())
        fault = self.script(seen) if self.script else None
        if fault is not None:
            return web.json_response(_error(fault), status=fault.status, headers=fault.headers)
        name = f"msgbatch_{len(self.batches):04d}"
        self.batches[name] = {"requests": seen.body["requests"], "polls": 0}
        return web.json_response(self._batch(name))

    async def _list_batches(self, _request: web.Request) -> web.Response:
        found = [self._batch(name) for name in reversed(self.batches)]
        return web.json_response({"data": found, "has_more": False, "first_id": None, "last_id": None})

    async def _show_batch(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if name not in self.batches:
            return web.json_response(_error(Fault("status", 404, message="no such batch")), status=404)
        self.batches[name]["polls"] += 1
        return web.json_response(self._batch(name))

    async def _cancel_batch(self, request: web.Request) -> web.Response:
        self.batches[request.match_info["id"]]["cancelled"] = True
        return web.json_response(self._batch(request.match_info["id"]))

    async def _batch_results(self, request: web.Request) -> web.Response:
        lines = []
        for item in reversed(self.batches[request.match_info["id"]]["requests"]):
            outcome = self.batch_outcomes.get(item["custom_id"], "succeeded")
            result: dict[str, Any] = {"type": outcome}
            if outcome == "succeeded":
                seen = Seen("/v1/messages", {}, item["params"], 0, 0)
                result["message"] = message_body(item["params"], self.words(seen), "text")
                self.paid += 1
            elif outcome == "errored":
                result["error"] = _error(Fault("status", 500))
            lines.append(json.dumps({"custom_id": item["custom_id"], "result": result}))
        return web.Response(text="\n".join(lines) + "\n", content_type="application/x-jsonl")

    def _batch(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        ended = batch["polls"] > self.batch_polls_needed
        count = len(batch["requests"])
        counts = {"processing": 0 if ended else count, "succeeded": count if ended else 0}
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": {**counts, "errored": 0, "canceled": 0, "expired": 0},
            "created_at": "2099-01-01T00:00:00Z",
            "expires_at": "2099-01-02T00:00:00Z",
            "ended_at": "2099-01-01T00:10:00Z" if ended else None,
            "results_url": f"{self.root}/v1/messages/batches/{name}/results" if ended else None,
        }


def completion_body(body: dict[str, Any], text: str, kind: str = "text") -> dict[str, Any]:
    """A chat completion, as documented."""
    reason = {"refusal": "stop", "max_tokens": "length"}.get(kind, "stop")
    refused = kind == "refusal"
    size = sum(len(message["content"]) for message in body["messages"])
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": f"{body['model']}-2026-01-01",
        "choices": [
            {
                "index": 0,
                "finish_reason": reason,
                "logprobs": None,
                "message": {
                    "role": "assistant",
                    "content": None if refused else text,
                    "refusal": text or "I cannot help with that." if refused else None,
                },
            }
        ],
        "usage": {
            "prompt_tokens": size // 4 + 1,
            "completion_tokens": len(text) // 4 + 1,
            "total_tokens": size // 4 + len(text) // 4 + 2,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        },
        "system_fingerprint": "fp_fake",
    }


def message_body(body: dict[str, Any], text: str, kind: str = "text") -> dict[str, Any]:
    """A Claude message, as documented; the system part counts as read from the cache."""
    system = sum(len(block["text"]) for block in body.get("system", []))
    size = sum(len(message["content"]) for message in body["messages"])
    return {
        "id": "msg_fake",
        "type": "message",
        "role": "assistant",
        "model": f"{body['model']}-20260101",
        "content": [{"type": "text", "text": text}],
        "stop_reason": {"refusal": "refusal", "max_tokens": "max_tokens"}.get(kind, "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": size // 4 + 1,
            "cache_read_input_tokens": system // 4,
            "cache_creation_input_tokens": 0,
            "output_tokens": len(text) // 4 + 1,
        },
    }


def _error(fault: Fault) -> dict[str, Any]:
    kinds = {429: "rate_limit_error", 529: "overloaded_error", 401: "authentication_error", 404: "not_found_error"}
    kind = kinds.get(fault.status, "invalid_request_error" if fault.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": fault.message, "code": None, "param": None}}


async def _go_wrong(request: web.Request, fault: Fault, body: dict[str, Any]) -> web.StreamResponse:
    """Fail on the wire, as the fault says."""
    if fault.kind == "status":
        return web.json_response(_error(fault), status=fault.status, headers=fault.headers)
    if fault.kind == "garbage":
        return web.Response(text="<html>gateway</html>", content_type="application/json")
    if fault.kind == "hang":
        await asyncio.sleep(3600)
    transport = request.transport
    if fault.kind in ("drip", "cut") and transport is not None:
        content = json.dumps(body).encode()
        response = web.StreamResponse(headers={"Content-Length": str(len(content)), "Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(content[:20])
        for byte in content[20:] if fault.kind == "drip" else b"":
            await asyncio.sleep(0.05)
            await response.write(bytes([byte]))
    if transport is not None:
        transport.abort()
    return web.Response(status=500)


async def _serve(port: int, latency: float) -> None:
    async with FakeEndpoint(latency=latency, keep=False).running(port) as endpoint:
        sys.stdout.write(json.dumps({"root": endpoint.root}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
