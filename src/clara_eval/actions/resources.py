"""What the service needs of its machine and database, and whether it has it."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from clara_eval.app import App
from clara_eval.core.errors import ClaraError
from clara_eval.store.driver import QUEUE_CONNECTIONS, STORE_CONNECTIONS
from clara_eval.store.open import is_sqlite

CONNECTIONS = STORE_CONNECTIONS + QUEUE_CONNECTIONS + 1
FILES = 256
"""Connections to nodes, judges and the database, and some tens of readers."""
MEMORY_BYTES = 512 * 1024**2
"""A round of 300 entries takes 152 MB; eight rounds at once share most of it."""
ADDRESS_BYTES = 2 * 1024**3
"""Libraries, stacks of threads and the compiled sandboxes."""
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_FREE = (
    "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
    "- (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())"
)


@dataclass(frozen=True, slots=True)
class Resource:
    name: str
    needed: int
    allowed: float
    remedy: str

    @property
    def words(self) -> str:
        allowed = "no limit" if self.allowed == float("inf") else f"{self.allowed:,.0f} allowed"
        return f"{self.needed:,} {self.name} ({allowed})"


async def check_resources(app: App) -> str:
    """Say in one sentence what the service needs; ClaraError if it has less."""
    found = [*_of_machine(), *await _of_database(app)]
    said = f"needs {', '.join(one.words for one in found)}"
    short = [one for one in found if one.allowed < one.needed]
    if short:
        raise ClaraError(f"The service {said}.", remedy=" ".join(one.remedy for one in short))
    return said


def _of_machine() -> list[Resource]:
    megabyte = 1024**2
    address = _allowed(resource.RLIMIT_AS)
    text = _MEMORY_LIMIT.read_text(encoding="ascii").strip() if _MEMORY_LIMIT.is_file() else "max"
    memory = float(text) if text.isdigit() else float("inf")
    return [
        Resource("file descriptors", FILES, _allowed(resource.RLIMIT_NOFILE), "Raise `ulimit -n` or LimitNOFILE."),
        Resource("MB of memory", MEMORY_BYTES // megabyte, memory / megabyte, "Raise the memory limit."),
        Resource("MB of address space", ADDRESS_BYTES // megabyte, address / megabyte, "Raise `ulimit -v`."),
    ]


def _allowed(kind: int) -> float:
    """The hard limit: the service raises the soft one to it."""
    _, hard = resource.getrlimit(kind)
    return float("inf") if hard == resource.RLIM_INFINITY else float(hard)


async def _of_database(app: App) -> list[Resource]:
    if is_sqlite(app.settings.database_url):
        return []
    ((free,),) = await app.store.driver.fetch(_FREE)
    return [Resource("Postgres connections", CONNECTIONS, free, "Raise max_connections, or end other clients.")]
