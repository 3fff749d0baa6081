"""Signed transactions, which are never overwritten, and how far event readers got."""

from __future__ import annotations

from dataclasses import astuple

from clara_eval.chain.model import Checkpoint
from clara_eval.chain.transaction import StoredTransaction
from clara_eval.store.driver import Driver

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
