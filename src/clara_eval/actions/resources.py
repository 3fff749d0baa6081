"""What the service needs of its machine and database, and whether it has it."""

from __future__ import annotations

import resource
from pathlib import Path

from clara_eval.app import App
from clara_eval.core.errors import ClaraError
from clara_eval.store.open import is_sqlite
from clara_eval.store.sql_store import QUEUE_CONNECTIONS, STORE_CONNECTIONS

CONNECTIONS = STORE_CONNECTIONS + QUEUE_CONNECTIONS + 1
FILES = 256
"""Connections to nodes, judges and the database, and some tens of readers."""
MEMORY_BYTES = 512 * 1024**2
"""A round of 300 entries takes 152 MB; eight rounds at once share most of it."""
ADDRESS_BYTES = 2 * 1024**3
"""Libraries, stacks of threads and the compiled sandboxes."""
_MB = 1024**2
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_FREE = (
    "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
    "- (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())"
)


async def check_resources(app: App) -> str:
    """Say in one sentence what the service needs; ClaraError if it has less."""
    files, space, memory = _allowed(resource.RLIMIT_NOFILE), _allowed(resource.RLIMIT_AS) / _MB, _memory() / _MB
    # Name, needed, allowed, remedy.
    found = [
        ("file descriptors", FILES, files, "Raise `ulimit -n` or LimitNOFILE."),
        ("MB of memory", MEMORY_BYTES // _MB, memory, "Raise the memory limit."),
        ("MB of address space", ADDRESS_BYTES // _MB, space, "Raise `ulimit -v`."),
    ]
    if not is_sqlite(app.settings.database_url):
        ((free,),) = await app.store.driver.fetch(_FREE)
        found.append(("Postgres connections", CONNECTIONS, free, "Raise max_connections, or end other clients."))
    words = []
    for name, needed, allowed, _ in found:
        limit = "no limit" if allowed == float("inf") else f"{allowed:,.0f} allowed"
        words.append(f"{needed:,} {name} ({limit})")
    if short := [remedy for _, needed, allowed, remedy in found if allowed < needed]:
        raise ClaraError(f"The service needs {', '.join(words)}.", remedy=" ".join(short))
    return f"needs {', '.join(words)}"


def _memory() -> float:
    text = _MEMORY_LIMIT.read_text(encoding="ascii").strip() if _MEMORY_LIMIT.is_file() else "max"
    return float(text) if text.isdigit() else float("inf")


def _allowed(kind: int) -> float:
    """The hard limit: the service raises the soft one to it."""
    _, hard = resource.getrlimit(kind)
    return float("inf") if hard == resource.RLIM_INFINITY else float(hard)
