"""The tools over HTTP, to be mounted in the service: for everybody, without any wallet.

Comes in: the service's settings and store. Goes out: an ASGI application whose root speaks streamable HTTP. Stateless:
no session is kept, so any worker answers any request. Whoever calls from elsewhere gets unsigned transactions, no files
of ours, no fetching on their behalf. It answers only to its own names (loopback, `CLARA_HOST`, `CLARA_PUBLIC_HOSTS`)
and to no page but its own and those of `CLARA_CORS_ORIGINS`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from clara_eval.app import make_caller
from clara_eval.mcp_server.server import build_server
from clara_eval.settings import Settings, listed
from clara_eval.trace.store import Store

MAX_BODY_BYTES = 1_000_000
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, never bound


class Context(Protocol):
    """What the service hands over."""

    @property
    def settings(self) -> Settings: ...

    @property
    def store(self) -> Store: ...


def callers(settings: Settings) -> TransportSecuritySettings:
    """By which names the tools may be called, and from which pages, so that no foreign page can (DNS rebinding)."""
    names = [*_LOOPBACK, *([] if settings.host in _EVERYWHERE else [_bracketed(settings.host)])]
    public = [name.lower() for name in listed(settings.public_hosts)]
    hosts = [*names, *(f"{name}:*" for name in names), *public]
    pages = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[*pages, *listed(settings.cors_origins)],
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def create_asgi(context: Context, *, path: str = "/") -> Starlette:
    """The application; its lifespan has to be run by whoever mounts it."""
    caller = make_caller(context.settings, is_local=False, store=context.store)
    app = build_server(caller).streamable_http_app(
        streamable_http_path=path,
        stateless_http=True,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=callers(context.settings),
    )
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(scope: object) -> AsyncIterator[Any]:
        try:
            async with inner(scope) as state:
                yield state
        finally:
            await caller.close()

    app.router.lifespan_context = lifespan
    return app
