"""The store in SQL: the same statements for SQLite and Postgres, one class for each kind of data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial

from clara_eval.chain.model import Checkpoint
from clara_eval.chain.transaction import StoredTransaction
from clara_eval.judge.port import PaidAnswer
from clara_eval.store.answers import RunAnswers, WriteBatcher, write_answers
from clara_eval.store.driver import BULK, Driver, below, placeholders
from clara_eval.store.leases import Leases
from clara_eval.store.ledger import SpendLedger


class RunEntries:
    driver: Driver

    async def entry(self, run: str, key: str) -> str | None:
        rows = await self.driver.fetch("SELECT value FROM entries WHERE run = ? AND key = ?", (run, key))
        return rows[0][0] if rows else None

    async def entries(self, run: str, prefix: str) -> list[tuple[str, str]]:
        rows = await self.driver.fetch(
            "SELECT key, value FROM entries WHERE run = ? AND key >= ? AND key < ?", (run, *below(prefix))
        )
        return sorted((row[0], row[1]) for row in rows)

    async def add_entry(self, run: str, key: str, value: str) -> str:
        """Write the entry unless there is one, and return the one that is there now."""
        rows = await self.driver.fetch(
            "INSERT INTO entries (run, key, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING value",
            (run, key, value),
        )
        return value if rows else await self.entry(run, key) or value

    async def forget_run(self, run: str) -> None:
        await self.driver.fetch("DELETE FROM entries WHERE run = ?", (run,))

    async def forget_entry(self, run: str, key: str) -> None:
        await self.driver.fetch("DELETE FROM entries WHERE run = ? AND key = ?", (run, key))


_UPSERT = "ON CONFLICT (chain_id, key) DO UPDATE SET value = excluded.value"


class PublicKeys:
    driver: Driver

    async def get(self, chain_id: int, key: str) -> str | None:
        return (await self.get_many(chain_id, [key])).get(key)

    async def get_many(self, chain_id: int, keys: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for start in range(0, len(keys), BULK):
            part = keys[start : start + BULK]
            rows = await self.driver.fetch(
                f"SELECT key, value FROM public_keys WHERE chain_id = ? AND key IN ({placeholders(part)})",  # noqa: S608 - only placeholders are put in
                (chain_id, *part),
            )
            found.update((row[0], row[1]) for row in rows)
        return found

    async def put(self, chain_id: int, key: str, value: str) -> None:
        await self.put_many(chain_id, [(key, value)])

    async def put_many(self, chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        await self.driver.many(
            f"INSERT INTO public_keys (chain_id, key, value) VALUES (?, ?, ?) {_UPSERT}",  # noqa: S608 - a constant
            [(chain_id, key, value) for key, value in dict(pairs).items()],
        )

    async def keys(self, chain_id: int, prefix: str) -> list[str]:
        rows = await self.driver.fetch(
            "SELECT key FROM public_keys WHERE chain_id = ? AND key >= ? AND key < ?", (chain_id, *below(prefix))
        )
        return sorted(row[0] for row in rows)

    async def items(self, chain_id: int, prefix: str) -> list[tuple[str, str]]:
        rows = await self.driver.fetch(
            "SELECT key, value FROM public_keys WHERE chain_id = ? AND key >= ? AND key < ?",
            (chain_id, *below(prefix)),
        )
        return sorted((row[0], row[1]) for row in rows)

    async def copy_keys(self, chain_id: int, prefix: str, *, cut: int = 0, add: str = "", but: str = "") -> None:
        """Copy what is below `prefix`, except the key `but`, in the database: without `cut` characters, after `add`."""
        await self.driver.fetch(
            "INSERT INTO public_keys (chain_id, key, value) "  # noqa: S608 - a constant is put in
            "SELECT chain_id, CAST(? AS TEXT) || substr(key, CAST(? AS INTEGER)), value FROM public_keys "
            f"WHERE chain_id = ? AND key >= ? AND key < ? AND key <> ? {_UPSERT}",
            (add, cut + 1, chain_id, *below(prefix), but),
        )


_COLUMNS = "run, intention, attempt, sender, nonce, tx_hash, raw, max_fee_per_gas, max_priority_fee_per_gas, signed_at"
_SELECT = f"SELECT {_COLUMNS} FROM transactions"  # noqa: S608 - a constant


class SignedTransactions:
    driver: Driver

    async def transactions(self, run: str, intention: str) -> list[StoredTransaction]:
        rows = await self.driver.fetch(f"{_SELECT} WHERE run = ? AND intention = ? ORDER BY attempt", (run, intention))
        return [StoredTransaction(*row) for row in rows]

    async def pending_nonces(self, sender: str, from_nonce: int = 0) -> list[StoredTransaction]:
        rows = await self.driver.fetch(
            f"{_SELECT} WHERE sender = ? AND nonce >= ? ORDER BY nonce DESC, attempt DESC", (sender, from_nonce)
        )
        return [StoredTransaction(*row) for row in rows]

    async def save_transaction(self, tx: StoredTransaction) -> None:
        await self.driver.fetch(
            f"INSERT INTO transactions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",  # noqa: S608 - a constant
            astuple(tx),
        )

    async def checkpoint(self, name: str) -> Checkpoint | None:
        rows = await self.driver.fetch("SELECT block_number, block_hash FROM checkpoints WHERE name = ?", (name,))
        return Checkpoint(*rows[0]) if rows else None

    async def save_checkpoint(self, name: str, checkpoint: Checkpoint) -> None:
        await self.driver.fetch(
            "INSERT INTO checkpoints (name, block_number, block_hash) VALUES (?, ?, ?) ON CONFLICT (name) "
            "DO UPDATE SET block_number = excluded.block_number, block_hash = excluded.block_hash",
            (name, checkpoint.block_number, checkpoint.block_hash),
        )


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
