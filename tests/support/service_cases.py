"""Set-up shared by tests: what test_service.py and others use."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from clara_eval.service.due import EngineOptions

FAST = EngineOptions(tick_cron="0 0 1 1 *", tick_seconds=300, poll_seconds=0.15, beat_seconds=0.2, lease_seconds=5)


@contextmanager
def free_socket() -> Iterator[socket.socket]:
    """A socket on a port of its own, on this machine only."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        yield listening
