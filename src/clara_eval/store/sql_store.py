"""The store in SQL: the same statements for SQLite and Postgres, one class for each kind of data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from clara_eval.judge.port import PaidAnswer
from clara_eval.store.answers import RunAnswers, WriteBatcher, write_answers
from clara_eval.store.driver import Driver
from clara_eval.store.entries import RunEntries
from clara_eval.store.leases import Leases
from clara_eval.store.ledger import SpendLedger
from clara_eval.store.public_keys import PublicKeys
from clara_eval.store.transactions import SignedTransactions


@dataclass(frozen=True)
class SqlStore(RunEntries, RunAnswers, PublicKeys, SignedTransactions, Leases, SpendLedger):
    driver: Driver
    now: Callable[[], float] | None = None
    """For tests. Otherwise money is counted by this machine's clock, and leases by the database's."""
    answer_listeners: list[Callable[[PaidAnswer], None]] = field(default_factory=list)
    """Called once for every newly paid answer."""
    batcher: WriteBatcher = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batcher", WriteBatcher(partial(write_answers, self.driver)))

    async def close(self) -> None:
        await self.driver.close()
