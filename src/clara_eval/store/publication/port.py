"""A place of publication: takes the public keys of a challenge and its trace.

Invariant: putting twice changes nothing; a trace is visible only once its last part is there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from clara_eval.core.errors import Temporary


class Refused(Temporary):
    """The place answers and does not take these very documents: those of other challenges may go there."""


class Publication(Protocol):
    @property
    def name(self) -> str:
        """Under this name it is remembered how far publication got."""
        ...

    @property
    def takes_keys(self) -> bool:
        """Whether the keys go there; otherwise only the trace does."""
        ...

    async def put_keys(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        """Put some hundred (key, JSON) pairs at once; an outage is Temporary, what it does not take Refused."""
        ...

    async def trace_digest(self, chain_id: int, address: str) -> str | None:
        """The digest of the trace that is there as a whole."""
        ...

    async def take_trace(self, chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> str | None:
        """Take a whole trace, in parts of about a megabyte; its URI where the place gives it one that lasts."""
        ...
