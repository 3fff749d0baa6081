"""The ledger of spending.

Invariant: caps are checked and a reservation written under one exclusive lock, so they hold for all workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from clara_eval.core.errors import Deferred
from clara_eval.judge.costs.budgets import KNOWN_AFTER_SECONDS, Caps, Spend
from clara_eval.store.driver import Driver

ROOM_SECONDS = 60
"""When to look again at a cap that only running evaluations fill."""
_UNSURE = "unsure"
"""The purpose of a run's line for calls that were sent and never answered."""


class SpendLedger:
    driver: Driver
    now: Callable[[], float] | None

    async def reserve_spend(self, run: str, poster: str, purpose: str, micro_usd: int, caps: Caps) -> int:
        moment = datetime.fromtimestamp(self._wall_now(), UTC)
        async with self.driver.exclusive() as tx:
            await _check_caps(tx, run, poster, purpose, micro_usd, caps, moment)
            rows = await tx.fetch(
                "INSERT INTO spends (run, poster, purpose, reserved_micro_usd, at) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (run, purpose) DO UPDATE SET reserved_micro_usd = excluded.reserved_micro_usd, "
                "settled_micro_usd = NULL, at = excluded.at RETURNING id",
                (run, poster, purpose, micro_usd, int(moment.timestamp())),
            )
        return int(rows[0][0])

    async def settle_spend(self, spend_id: int, micro_usd: int) -> None:
        await self.driver.fetch("UPDATE spends SET settled_micro_usd = ? WHERE id = ?", (micro_usd, spend_id))

    async def add_unsure(self, run: str, micro_usd: int) -> None:
        await self.driver.fetch(
            "INSERT INTO spends (run, poster, purpose, reserved_micro_usd, settled_micro_usd, at) "
            "SELECT run, poster, CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT) FROM spends "
            "WHERE run = ? ORDER BY id LIMIT 1 ON CONFLICT (run, purpose) DO UPDATE SET "
            "reserved_micro_usd = spends.reserved_micro_usd + excluded.reserved_micro_usd, "
            "settled_micro_usd = spends.settled_micro_usd + excluded.settled_micro_usd, at = excluded.at",
            (_UNSURE, micro_usd, micro_usd, int(self._wall_now()), run),
        )

    async def unsure_of(self, run: str) -> int:
        rows = await self.driver.fetch(
            "SELECT settled_micro_usd FROM spends WHERE run = ? AND purpose = ?", (run, _UNSURE)
        )
        return int(rows[0][0]) if rows else 0

    async def spends(self, *, since: int = 0) -> list[Spend]:
        rows = await self.driver.fetch(
            "SELECT id, run, poster, purpose, reserved_micro_usd, settled_micro_usd, at FROM spends WHERE at >= ? "
            "ORDER BY id",
            (since,),
        )
        return [Spend(*row) for row in rows]

    def _wall_now(self) -> float:
        return time.time() if self.now is None else self.now()


_NEW_POSTERS = "month for new posters"
_KNOWN = "SELECT poster FROM spends WHERE settled_micro_usd > 0 AND at <= ?"


async def _new_posters_cap(tx: Driver, poster: str, caps: Caps, known_at: int) -> int | None:
    """The cap that new posters share; None for a known poster."""
    if caps.new_posters_month is None:
        return None
    known = await tx.fetch(f"{_KNOWN} AND poster = ? LIMIT 1", (known_at, poster))
    return None if known else caps.new_posters_month


async def _check_caps(
    tx: Driver, run: str, poster: str, purpose: str, micro_usd: int, caps: Caps, moment: datetime
) -> None:
    """Raise Deferred if what all other lines spent or reserved leaves too little under a cap."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    next_month = (month + timedelta(days=32)).replace(day=1)
    known_at = int(moment.timestamp()) - KNOWN_AFTER_SECONDS
    scopes = (
        ("challenge", caps.per_challenge, "run = ?", (run,), None),
        ("poster and day", caps.per_poster_day, "poster = ? AND at >= ?", (poster, int(day.timestamp())),
         int((day + timedelta(days=1)).timestamp())),
        ("month", caps.per_month, "at >= ?", (int(month.timestamp()),), int(next_month.timestamp())),
        (_NEW_POSTERS, await _new_posters_cap(tx, poster, caps, known_at),
         f"at >= ? AND poster NOT IN ({_KNOWN})", (int(month.timestamp()), known_at), int(next_month.timestamp())),
    )  # fmt: skip
    for scope, cap, where, values, retry_at in scopes:
        if cap is None:
            continue
        rows = await tx.fetch(
            "SELECT COALESCE(SUM(COALESCE(settled_micro_usd, reserved_micro_usd)), 0), "  # noqa: S608 - `where` is one of these constants
            "COALESCE(SUM(CASE WHEN settled_micro_usd IS NULL THEN reserved_micro_usd ELSE 0 END), 0) FROM spends "
            f"WHERE {where} AND NOT (run = ? AND purpose = ?)",
            (*values, run, purpose),
        )
        spent, waiting = int(rows[0][0]), int(rows[0][1])
        if spent + micro_usd > cap:
            # Running evaluations give back what they do not use: if only they are in the way, look again soon.
            is_soon = spent - waiting + micro_usd <= cap
            raise Deferred(
                f"The budget per {scope} of ${cap / 1e6:.2f} does not allow another ${micro_usd / 1e6:.2f}: "
                f"${spent / 1e6:.2f} is spent or reserved.",
                remedy=f"Raise {'CLARA_NEW_POSTERS_SHARE' if scope == _NEW_POSTERS else 'the cap'}, or wait.",
                retry_at=int(moment.timestamp()) + ROOM_SECONDS if is_soon else retry_at,
            )
