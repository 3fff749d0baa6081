"""Bounds for connections, below the application: the API can neither use up descriptors nor be held by half a request.

Comes in: the HTTP server's own protocol. Goes out: the same protocol, which closes a connection whose request is not
whole in time or whose client does not read, and which never holds more than `most` connections. When all are taken, the
one that has waited longest for the rest of its request makes room. Must hold: descriptors are kept for the engine.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_CONNECTIONS = 1_000
KEPT_FOR_THE_ENGINE = 512
"""Descriptors for databases, nodes, models and files."""
BACKLOG = 64
"""Also the most connections that are accepted in one turn of the loop, before any can be refused."""
_WANTED_FILES = 8_192


@dataclass(slots=True)
class ConnectionBounds:
    """All connections of one server."""

    most: int
    request_seconds: float = 20.0
    """For a whole request, its head and its body."""
    unread_seconds: float = 60.0
    """For a client that does not read what it asked for."""
    unfinished: dict[BoundedProtocol, None] = field(default_factory=dict)
    """Those that wait for the rest of a request, the oldest first."""


def raise_file_limit() -> int:
    """As many descriptors as we may have, within reason; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _WANTED_FILES if soft == resource.RLIM_INFINITY else soft


def most_connections(files: int) -> int:
    """How many of so many descriptors may be connections."""
    return max(BACKLOG, min(MOST_CONNECTIONS, files - KEPT_FOR_THE_ENGINE - BACKLOG))


class BoundedProtocol(HttpToolsProtocol):
    """One connection within its bounds."""

    def __init__(self, bounds: ConnectionBounds, **config: Any) -> None:
        super().__init__(**config)
        self._bounds = bounds
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as the server's own
        super().connection_made(transport)
        if len(self.connections) > self._bounds.most:
            next(iter(self._bounds.unfinished), self).transport.abort()
        if not transport.is_closing():
            self._wait_for_the_rest()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._has_whole_request:
            self._has_come()
        elif self._timer is None and not self.transport.is_closing():
            self._wait_for_the_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_come()
        self._is_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._bounds.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()

    @property
    def _has_whole_request(self) -> bool:
        """Answered or being answered, with nothing of the body missing."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _wait_for_the_rest(self) -> None:
        self._bounds.unfinished[self] = None
        self._timer = self.loop.call_later(self._bounds.request_seconds, self.transport.abort)

    def _has_come(self) -> None:
        self._bounds.unfinished.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
