"""Copy the SQLite database into one file while the service runs."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from clara_eval.core.errors import BadInput, ConfigError, NotFound
from clara_eval.core.private_file import make_private
from clara_eval.store.open import is_sqlite, is_there, sqlite_path


def back_up(database_url: str, target: Path) -> int:
    """Write everything that is committed, also what is still in the write-ahead log, and return the bytes."""
    if not is_sqlite(database_url):
        raise ConfigError(
            "CLARA_DATABASE_URL is a Postgres database, which its own tool backs up.",
            remedy='Run `pg_dump --format=custom --file FILE "$CLARA_DATABASE_URL"`.',
        )
    source = Path(sqlite_path(database_url))
    if not is_there(database_url):
        raise NotFound(f"There is no database {source} to back up.", remedy="Check CLARA_DATABASE_URL.")
    if target.exists():
        raise BadInput(f"{target} exists already.", remedy="Choose another name, or remove it.")
    part = target.with_name(target.name + ".part")
    try:
        make_private(part)
        with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(part)) as copy:
            live.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
            (found,) = copy.execute("PRAGMA quick_check").fetchone()
        if found != "ok":
            raise BadInput(f"The copy of {source} is damaged: {found}.", remedy="Is the database damaged?")
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.rename(target)
    except (OSError, sqlite3.Error) as bad:
        raise BadInput(f"{target} cannot be written: {bad}.", remedy="Name another file.") from bad
    finally:
        part.unlink(missing_ok=True)
    return target.stat().st_size
