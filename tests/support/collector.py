"""A collector of OTLP spans over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.service: dict[str, str] = {}
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        told = ExportTraceServiceRequest.FromString(await request.read())
        for resource in told.resource_spans:
            self.service = {item.key: item.value.string_value for item in resource.resource.attributes}
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector while the body lasts."""
    made, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    try:
        yield made
    finally:
        await runner.cleanup()


def facts(span: Any) -> dict[str, str]:
    return {item.key: item.value.string_value for item in span.attributes}
