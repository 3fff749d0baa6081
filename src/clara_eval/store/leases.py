"""Leases in the store: a worker's sign of life, and the right to run one evaluation.

A lease is held by renewing it. Whoever cannot renew has lost it and stops at once: `held` cancels what runs under it.
Taking a dead worker's lease is at the same time the proof that it is dead and the right to take over its work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import structlog

from clara_eval.core.errors import Temporary

_log = structlog.get_logger(__name__)


class Leases(Protocol):
    async def take_lease(self, name: str, holder: str, seconds: float) -> bool: ...
    async def drop_lease(self, name: str, holder: str) -> None: ...


class Busy(Temporary):
    """Another process holds this lease."""


def worker_lease(worker: str) -> str:
    return f"worker:{worker}"


def evaluation_lease(chain_id: int, address: str) -> str:
    """Whoever evaluates a challenge holds it, service or command: never two at once."""
    return f"evaluation:{chain_id}:{address}"


@asynccontextmanager
async def held(leases: Leases, name: str, holder: str, seconds: float) -> AsyncIterator[None]:
    """Hold a lease while the body runs. Raises `Busy` if another holds it; if it is lost, the body is cancelled."""
    if not await leases.take_lease(name, holder, seconds):
        raise Busy(
            f"Another process holds {name}.", remedy=f"It is free again at most {seconds:.0f} s after that one ends."
        )
    lost = False
    body = asyncio.current_task()

    async def renew() -> None:
        nonlocal lost
        while True:
            await asyncio.sleep(seconds / 3)
            try:
                is_ours = await leases.take_lease(name, holder, seconds)
            except Temporary as bad:
                _log.warning("lease_not_renewed", lease=name, problem=str(bad))
                continue
            if not is_ours:
                lost = True
                _log.error("lease_lost", lease=name)
                if body is not None:
                    body.cancel()
                return

    renewing = asyncio.create_task(renew())
    try:
        yield
    except asyncio.CancelledError:
        if not lost:
            raise
        if body is not None:
            body.uncancel()
        raise Busy(f"Another worker has taken over {name}.", remedy="It continues there.") from None
    finally:
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
        with suppress(Temporary):
            await leases.drop_lease(name, holder)
