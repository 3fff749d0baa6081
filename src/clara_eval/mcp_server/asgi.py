"""The tools over HTTP, to be mounted in the service: for everybody, without any wallet.

Comes in: the service's settings and store. Goes out: an ASGI application whose root speaks streamable HTTP. Stateless:
no session is kept, so any worker answers any request. Whoever calls from elsewhere gets unsigned transactions, no files
of ours, no fetching on their behalf.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from clara_eval.app import make_caller
from clara_eval.mcp_server.server import build_server
from clara_eval.settings import Settings
from clara_eval.trace.store import Store

MAX_BODY_BYTES = 1_000_000


class Context(Protocol):
    """What the service hands over."""

    @property
    def settings(self) -> Settings: ...

    @property
    def store(self) -> Store: ...


def create_asgi(context: Context, *, path: str = "/") -> Starlette:
    """The application; its lifespan has to be run by whoever mounts it."""
    caller = make_caller(context.settings, is_local=False, store=context.store)
    # Host checks protect local servers that can do something for their owner. This one holds nothing that the public
    # REST door does not show, and behind a proxy it is called by names that it cannot know.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = build_server(caller).streamable_http_app(
        streamable_http_path=path,
        stateless_http=True,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=security,
    )
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(scope: Any) -> AsyncIterator[Any]:
        try:
            async with inner(scope) as state:
                yield state
        finally:
            await caller.close()

    app.router.lifespan_context = lifespan
    return app
