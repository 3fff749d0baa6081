"""Leases in the store: a worker's heartbeat, and the right to run one evaluation.

Invariant: a holder that cannot renew its lease stops at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import structlog

from clara_eval.core.errors import Temporary
from clara_eval.core.tasks import checking_lease
from clara_eval.documents.store_keys import KeyOfOne
from clara_eval.store.sql_store import Leases

_log = structlog.get_logger(__name__)
worker_lease: KeyOfOne = "worker:{}".format
evaluation_lease: Callable[[int, str], str] = "evaluation:{}:{}".format


class Busy(Temporary):
    """Another process holds this lease."""


@dataclass(slots=True)
class _HeldLease:
    """A lease that is renewed while the body runs; losing it cancels the body."""

    leases: Leases
    name: str
    holder: str
    seconds: float
    body: asyncio.Task[object] | None
    renewed_at: float
    is_lost: bool = False

    async def renew(self) -> None:
        now = since_start()
        if await self.leases.take_lease(self.name, self.holder, self.seconds):
            self.renewed_at = now
        elif not self.is_lost:
            self.is_lost = True
            _log.error("lease_lost", lease=self.name)
            if self.body is not None:
                self.body.cancel()

    async def keep(self) -> None:
        while not self.is_lost:
            await asyncio.sleep(self.seconds / 3)
            try:
                await self.renew()
            except Temporary as bad:
                _log.warning("lease_not_renewed", lease=self.name, problem=str(bad))

    async def check(self) -> None:
        """Raise Busy if the lease is lost; renew it first if it may have expired, as after a suspend."""
        if since_start() - self.renewed_at >= self.seconds:
            await self.renew()
        if self.is_lost:
            raise self.taken_over

    @property
    def taken_over(self) -> Busy:
        return Busy(f"Another worker has taken over {self.name}.", remedy="It continues there.")


@asynccontextmanager
async def held(leases: Leases, name: str, holder: str, seconds: float) -> AsyncIterator[None]:
    """Hold a lease while the body runs; Busy if another process holds it or takes it over."""
    lease = _HeldLease(leases, name, holder, seconds, asyncio.current_task(), since_start())
    if not await leases.take_lease(name, holder, seconds):
        raise Busy(
            f"Another process holds {name}.", remedy=f"It is free again at most {seconds:.0f} s after that one ends."
        )
    keeping = asyncio.create_task(lease.keep())
    try:
        with checking_lease(lease.check):
            yield
    except asyncio.CancelledError:
        if not lease.is_lost or lease.body is None:
            raise
        lease.body.uncancel()
        raise lease.taken_over from None
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        with suppress(Temporary):
            await leases.drop_lease(name, holder)


def since_start() -> float:
    """Return the seconds since the machine started, with suspended time; nothing can set this clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
