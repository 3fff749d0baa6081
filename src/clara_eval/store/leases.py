"""Leases in the store: a worker's sign of life, and the right to run one evaluation.

Invariant: a holder that cannot renew its lease stops at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from clara_eval.core.errors import Temporary
from clara_eval.store.driver import Driver

_log = structlog.get_logger(__name__)


_IS_FREE = "(leases.holder = excluded.holder OR leases.until_at < (SELECT at FROM moment))"


class Leases:
    driver: Driver
    now: Callable[[], float] | None

    async def take_lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease; another holder's lease counts until it runs out.

        A lease that lasts longer than it was taken for comes from a clock that was set back since: it is cut to its
        whole length, so that a living holder has the time to renew it.
        """
        clock, now = (self.driver.clock, ()) if self.now is None else ("CAST(? AS DOUBLE PRECISION)", (self.now(),))
        rows = await self.driver.fetch(
            f"WITH moment AS (SELECT {clock} AS at) INSERT INTO leases (name, holder, until_at, seconds) "  # noqa: S608 - constants
            "SELECT CAST(? AS TEXT), CAST(? AS TEXT), at + CAST(? AS DOUBLE PRECISION), CAST(? AS DOUBLE PRECISION) "
            "FROM moment WHERE true ON CONFLICT (name) DO UPDATE SET "
            f"holder = CASE WHEN {_IS_FREE} THEN excluded.holder ELSE leases.holder END, "
            f"seconds = CASE WHEN {_IS_FREE} THEN excluded.seconds ELSE leases.seconds END, "
            f"until_at = CASE WHEN {_IS_FREE} THEN excluded.until_at "
            "WHEN leases.until_at > (SELECT at FROM moment) + leases.seconds "
            "THEN (SELECT at FROM moment) + leases.seconds ELSE leases.until_at END RETURNING holder",
            (*now, name, holder, seconds, seconds),
        )
        return str(rows[0][0]) == holder

    async def drop_lease(self, name: str, holder: str) -> None:
        await self.driver.fetch("DELETE FROM leases WHERE name = ? AND holder = ?", (name, holder))


class Busy(Temporary):
    """Another process holds this lease."""


def worker_lease(worker: str) -> str:
    return f"worker:{worker}"


def evaluation_lease(chain_id: int, address: str) -> str:
    """The right to evaluate a challenge, for the service and for commands."""
    return f"evaluation:{chain_id}:{address}"


@asynccontextmanager
async def held(leases: Leases, name: str, holder: str, seconds: float) -> AsyncIterator[None]:
    """Hold a lease while the body runs; Busy if another holds it, or takes it while the body runs."""
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
