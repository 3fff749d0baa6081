"""Enforce one process on SQLite by a file lock that the operating system drops with the process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clara_eval.core.errors import ConfigError
from clara_eval.core.private_file import make_private


@contextmanager
def only_process(database: Path) -> Iterator[None]:
    """Hold the lock beside the database; ConfigError if another process holds it."""
    place = database.with_name(database.name + ".lock")
    make_private(place)
    with place.open("a+", encoding="utf-8") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.seek(0)
            holder = held.read(20).strip() or "unknown"
            raise ConfigError(
                f"Another clara-eval process (id {holder}) already works with {database}.",
                remedy="SQLite serves one process: stop the other one, or set CLARA_DATABASE_URL to Postgres.",
            ) from None
        held.seek(0)
        held.truncate()
        held.write(f"{os.getpid()}\n")
        held.flush()
        yield
