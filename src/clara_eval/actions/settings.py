"""List the settings, make the evaluator's key, and copy the SQLite database while the service runs."""

from __future__ import annotations

import difflib
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from clara_eval.chain.wallet import new_keystore
from clara_eval.config.settings import Settings, given_names, unknown_names
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, ConfigError, NotFound
from clara_eval.core.private_file import make_private
from clara_eval.store.open import is_sqlite, is_there, sqlite_path

SHORTEST_PASSWORD = 12
FEWEST_SIGNS = 6


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting; a secret's value is hidden, and of an address that may hold one only the host is shown."""

    name: str
    value: str | None
    default: str | None
    source: str


def list_settings(settings: Settings) -> tuple[list[SettingRow], list[str]]:
    """Every setting, and a warning for each CLARA_… name that is none."""
    given, known = given_names(), {str(field.alias): name for name, field in Settings.model_fields.items()}
    rows = []
    for alias, name in known.items():
        value, field = getattr(settings, name), Settings.model_fields[name]
        source = given.get(alias) or (f"{alias}_FILE" if f"{alias}_FILE" in given else "default")
        if isinstance(value, SecretStr):
            value = "(hidden)"
        elif not field.repr and value and source != "default":
            value = _host_of(value)
        default = None if field.default is None else str(field.default)
        rows.append(SettingRow(alias, None if value is None else str(value), default, source))
    return rows, unknown_settings()


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    return f"{parts.scheme}://{parts.hostname or ''}/…"


def unknown_settings() -> list[str]:
    """A warning for each CLARA_… name that is no setting, with the one that may be meant."""
    warnings, known = [], [str(field.alias) for field in Settings.model_fields.values()]
    for name in unknown_names(given_names()):
        close = difflib.get_close_matches(name, known, n=1)
        warnings.append(f"{name} is not a setting.{f' Did you mean {close[0]}?' if close else ''}")
    return warnings


def new_key(path: Path, password: SecretStr) -> Address:
    """Write a new key; its password is long and varied, because a keystore can be tried offline."""
    text = password.get_secret_value()
    if len(text) < SHORTEST_PASSWORD or len(set(text)) < FEWEST_SIGNS:
        raise ConfigError(
            f"The password of the keystore is weak: fewer than {SHORTEST_PASSWORD} characters, or fewer than "
            f"{FEWEST_SIGNS} different ones.",
            remedy="Choose several random words.",
        )
    return new_keystore(path, password)


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
