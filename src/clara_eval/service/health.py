"""The health of the process, written by the engine and read by `/healthz`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

BEAT_STALE_SECONDS = 30.0
TICKS_MISSED = 3


@dataclass(slots=True)
class ServiceHealth:
    mode: str
    """`all`, `worker-only` or `api-only`."""
    tick_seconds: float
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)
    beat: float = field(init=False)
    tick: float | None = None
    tick_problem: str | None = None
    wallet_problem: str | None = None
    """What keeps the wallet from sending."""

    def __post_init__(self) -> None:
        self.started = self.beat = self.clock()

    def beating(self) -> None:
        self.beat = self.clock()

    def ticked(self, problem: str | None = None) -> None:
        self.tick, self.tick_problem = self.clock(), problem

    @property
    def stale_reason(self) -> str | None:
        now = self.clock()
        if now - self.beat > BEAT_STALE_SECONDS:
            return f"The event loop has not run for {now - self.beat:.0f} s."
        since = now - (self.started if self.tick is None else self.tick)
        if self.mode != "api-only" and since > TICKS_MISSED * self.tick_seconds:
            return f"No tick has ended for {since:.0f} s; one is due every {self.tick_seconds:.0f} s."
        return None

    def report(self, version: str) -> dict[str, object]:
        now, stale = self.clock(), self.stale_reason
        problems = [problem for problem in (stale, self.wallet_problem, self.tick_problem) if problem]
        return {
            "status": "stale" if stale else "degraded" if problems else "ok",
            "mode": self.mode,
            "version": version,
            "uptimeSeconds": round(now - self.started, 1),
            "beatAgeSeconds": round(now - self.beat, 1),
            "tickAgeSeconds": None if self.tick is None else round(now - self.tick, 1),
            "problems": problems,
        }
