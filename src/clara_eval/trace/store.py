"""What is kept, and the port through which it is kept.

Five kinds of rows: journal entries (results of an evaluation's steps), paid answers (under the hash of their request),
public keys (the specification's `challenges:{address}:…`), signed transactions, and spending. First write wins for
entries, answers and transactions: a second writer gets back what is already there, so two workers cannot disagree.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from clara_eval.challenge.model import Checkpoint
from clara_eval.judge.port import PaidAnswer
from clara_eval.money.ledger import Ledger
from clara_eval.publish.transaction import StoredTransaction

__all__ = ["Checkpoint", "Store", "StoredTransaction"]


class Store(Ledger, Protocol):
    """SQLite in one process, Postgres for several: the same promises."""

    async def close(self) -> None: ...

    # journal
    async def entry(self, run: str, key: str) -> str | None: ...
    async def entries(self, run: str, prefix: str) -> list[tuple[str, str]]:
        """All (key, value) below `prefix`, in order of key."""
        ...

    async def add_entry(self, run: str, key: str, value: str) -> str:
        """Save, unless something is saved already; return what is saved now."""
        ...

    async def forget_run(self, run: str) -> None:
        """Drop the journal of a run that must start anew (a reorg moved its pinned block); paid answers stay."""
        ...

    async def forget_entry(self, run: str, key: str) -> None:
        """Drop one entry, so that it is made anew."""
        ...

    # paid answers
    async def answers(self, requests: Sequence[str]) -> dict[str, PaidAnswer]: ...
    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
        """Save, unless this request is answered already; return what is saved now."""
        ...

    def answers_of(self, run: str) -> AsyncIterator[PaidAnswer]: ...

    # public keys, per network
    async def get(self, chain_id: int, key: str) -> str | None: ...
    async def put(self, chain_id: int, key: str, value: str) -> None: ...
    async def put_many(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None: ...
    async def keys(self, chain_id: int, prefix: str) -> list[str]: ...
    async def items(self, chain_id: int, prefix: str) -> list[tuple[str, str]]:
        """All (key, value) below `prefix`, in order of key."""
        ...

    # signed transactions
    async def transactions(self, run: str, intention: str) -> list[StoredTransaction]: ...
    async def pending_nonces(self, sender: str) -> list[StoredTransaction]:
        """Every recorded transaction of this sender, newest nonce first."""
        ...

    async def save_transaction(self, tx: StoredTransaction) -> None: ...

    # event reading
    async def checkpoint(self, name: str) -> Checkpoint | None: ...
    async def save_checkpoint(self, name: str, checkpoint: Checkpoint) -> None: ...

    # leases: one holder at a time, for a bounded time
    async def take_lease(self, name: str, holder: str, seconds: float) -> bool: ...
    async def drop_lease(self, name: str, holder: str) -> None: ...
