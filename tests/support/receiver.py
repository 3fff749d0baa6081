"""A receiver of webhooks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Receiver:
    """A real HTTP server that refuses the first requests."""

    refuse: int = 0
    url: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        if len(self.got) <= self.refuse:
            return web.Response(status=503)
        self.arrived.set()
        return web.Response(status=204)
