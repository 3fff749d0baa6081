"""The tools over HTTP for everybody: stateless, without wallet, files or fetching, for our own hosts and pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from clara_eval.app import Caller
from clara_eval.config.settings import Settings, listed
from clara_eval.core.web_origin import read_host, read_origin
from clara_eval.interfaces.mcp.server import build_server

MAX_BODY_BYTES = 1_000_000
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, never bound


class OwnPagesOnly:
    """Refuse requests to another host name (DNS rebinding: 421) or from another site's page (403)."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        own = f"[{settings.host}]" if ":" in settings.host else settings.host
        names = (*_LOOPBACK, *(() if settings.host in _EVERYWHERE else (own,)))
        self._app = app
        self._names = {place.host for place in map(read_host, names) if place}
        self._public = {place.without_default_port for place in map(read_host, listed(settings.public_hosts)) if place}
        self._pages = {page for page in map(read_origin, listed(settings.cors_origins)) if page}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        host = read_host(hosts[0]) if len(hosts) == 1 else None
        # Our names on any port, because a container's is mapped; a public name on its port alone.
        if host is None or not (host.host in self._names or host.without_default_port in self._public):
            return PlainTextResponse("Invalid Host header", status_code=421)
        if not origins:
            return None
        page = read_origin(origins[0]) if len(origins) == 1 else None
        if page is None or not (page.is_of(host) or page in self._pages):
            return PlainTextResponse("Invalid Origin header", status_code=403)
        return None


def create_asgi(caller: Caller, *, path: str = "/") -> Starlette:
    """Build the application of a remote caller, closed with the lifespan, which the mounting app runs."""
    app = build_server(caller).streamable_http_app(
        streamable_http_path=path,
        stateless_http=True,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # it compares beginnings
    )
    app.add_middleware(OwnPagesOnly, settings=caller.settings)
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
