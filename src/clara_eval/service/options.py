"""How the engine runs: its intervals and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

APPLICATION = "clara-eval"
APPLICATION_VERSION = "1"
"""Of the workflows' shape, not of the package: it changes only when running workflows could not be continued."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    tick_cron: str = "*/5 * * * *"
    tick_seconds: float = 300  # Between ticks; `/healthz` calls the engine stale after three of them
    beat_seconds: float = 5
    lease_seconds: float = 30  # After this long without renewal a worker is dead, and its work is taken over
    poll_seconds: float = 1.0  # How often a worker looks for queued work
    worker_evaluations: int = 8  # Evaluations at once in one process, each until its post is deep enough in the chain
    global_evaluations: int = 64  # Evaluations at once in all processes
    retry_seconds: float = 60  # First pause after a passing failure; it doubles up to `retry_seconds_max`
    retry_seconds_max: float = 1800
    keep_days: int = 30  # Finished workflow rows older than this are removed
    finalize_seconds: float = 120.0
    """For this part of a tick, as the next three: what is cut off continues at the next tick."""
    publish_seconds: float = 120.0
    measure_seconds: float = 30.0
    read_seconds: float = 60.0  # For one challenge

    @classmethod
    def ticking(cls, seconds: int) -> Self:
        """The defaults with a tick every `seconds`, which divide a minute, an hour or a day evenly."""
        if seconds < 60:
            return cls(f"*/{seconds} * * * * *", seconds)
        if seconds < 3600:
            return cls(f"*/{seconds // 60} * * * *", seconds)
        return cls(f"0 */{seconds // 3600} * * *", seconds)


DEFAULTS = EngineOptions()
