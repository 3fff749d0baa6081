"""A place of publication: takes the public keys of a challenge and its trace.

Invariant: putting twice changes nothing; a trace is visible only once its last part is there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from clara_eval.core.errors import Temporary


class Refused(Temporary):
    """The place answers and refuses these documents; others may go there."""


class Publication(Protocol):
    @property
    def name(self) -> str:
        """The name under which progress is recorded."""
        ...

    @property
    def takes_keys(self) -> bool:
        """Whether the keys go there, or only the trace."""
        ...

    async def put_keys(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        """Put some hundred (key, JSON) pairs; Temporary in an outage, Refused if it does not take them."""
        ...

    async def trace_digest(self, chain_id: int, address: str) -> str | None:
        """The digest of the trace that is there completely."""
        ...

    async def take_trace(self, chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> str | None:
        """Take a trace in parts of about a megabyte, and return its lasting URI if it has one."""
        ...
