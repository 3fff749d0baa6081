"""Create files that only their owner can read."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

OWNER_ONLY = 0o600
_SQLITE_JOURNALS = ("-wal", "-shm", "-journal")
"""SQLite creates these with the mode of the database; an earlier version may have left them readable."""


def make_private(path: Path) -> None:
    """Create the file and its folder for the owner only; remove others' rights from existing files."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=OWNER_ONLY)
    for file in (path, *(path.with_name(path.name + ending) for ending in _SQLITE_JOURNALS)):
        with suppress(FileNotFoundError):  # SQLite may remove a journal at any moment
            status = file.stat()
            if status.st_uid == os.geteuid() and status.st_mode & 0o077:
                file.chmod(OWNER_ONLY)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; FileExistsError if it exists."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
