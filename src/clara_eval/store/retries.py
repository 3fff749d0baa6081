"""How long callers wait for the database: one policy for SQLite and Postgres.

Invariant: a statement waits at most `statement_seconds`, and a write that must not be lost at most `longest_seconds`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from clara_eval.core.errors import Temporary

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseRetries:
    open_seconds: float = 15.0
    """For a Postgres server to answer at the start."""
    statement_seconds: float = 20.0
    """For a file that another program holds, or a free connection of the pool."""
    write_seconds: float = 60.0
    """How long a write that must not be lost is tried again: a database restarts within a minute."""
    pause_seconds: float = 1.0

    @property
    def longest_seconds(self) -> float:
        """The longest wait of `until_written`."""
        return self.write_seconds + self.pause_seconds + self.statement_seconds

    async def until_written(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write, again and again while the database does not answer; Temporary after `write_seconds`."""
        until = time.monotonic() + self.write_seconds
        while True:
            try:
                await write()
            except Temporary as bad:
                if time.monotonic() >= until:
                    raise
                _log.warning("store_not_answering", problem=str(bad))
                await asyncio.sleep(self.pause_seconds)
            else:
                return


DATABASE = DatabaseRetries()
