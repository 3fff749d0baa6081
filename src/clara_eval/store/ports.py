"""What is kept, and the ports through which it is kept, one for each need.

Journal entries (results of an evaluation's steps), paid answers (under the hash of their request), public keys (the
specification's `challenges:{address}:…`), signed transactions with the wallet's lease, the reader's place, spending.
First write wins for entries, answers and transactions: a second writer gets back what is already there, so two workers
cannot disagree. Code asks for the port it needs; `Store` is all of them, for whoever builds one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from clara_eval.chain.events import Checkpoints
from clara_eval.chain.model import Checkpoint
from clara_eval.chain.sender import TransactionLog
from clara_eval.chain.transaction import StoredTransaction
from clara_eval.evaluation.trace.journal import Entries
from clara_eval.judge.costs.ledger import Ledger
from clara_eval.judge.port import AnswerBook, PaidAnswer

__all__ = ["Checkpoint", "KeyedDocuments", "PublicKeys", "RunAnswers", "RunEntries", "Store", "StoredTransaction"]


class RunEntries(Entries, Protocol):
    """The journals of all runs."""

    async def entries(self, run: str, prefix: str) -> list[tuple[str, str]]:
        """All (key, value) below `prefix`, in order of key."""
        ...

    async def forget_entry(self, run: str, key: str) -> None:
        """Drop one entry, so that it is made anew."""
        ...


class RunAnswers(AnswerBook, Protocol):
    """Paid answers, by request and by run; they outlive every journal."""

    def answers_of(self, run: str) -> AsyncIterator[PaidAnswer]: ...


class KeyedDocuments(Protocol):
    """JSON documents by key and network; the last write counts."""

    async def get(self, chain_id: int, key: str) -> str | None: ...
    async def put(self, chain_id: int, key: str, value: str) -> None: ...


class PublicKeys(KeyedDocuments, Protocol):
    """The same, many at once."""

    async def get_many(self, chain_id: int, keys: Sequence[str]) -> dict[str, str]:
        """What stands under these keys; the others are not in it."""
        ...

    async def put_many(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None: ...
    async def keys(self, chain_id: int, prefix: str) -> list[str]: ...
    async def items(self, chain_id: int, prefix: str) -> list[tuple[str, str]]:
        """All (key, value) below `prefix`, in order of key."""
        ...

    async def copy_keys(self, chain_id: int, prefix: str, *, cut: int = 0, add: str = "", but: str = "") -> None:
        """Put what lies below `prefix`, all but one key, under other keys too, all or none: without the first `cut`
        characters, after `add`. Nothing of it comes here, whatever its size.
        """
        ...


class Store(RunEntries, RunAnswers, PublicKeys, TransactionLog, Checkpoints, Ledger, Protocol):
    """SQLite in one process, Postgres for several: the same promises."""

    async def close(self) -> None: ...
