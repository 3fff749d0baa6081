"""The journals of all runs: the first write of an entry wins."""

from __future__ import annotations

from clara_eval.store.driver import Driver, below


class RunEntries:
    driver: Driver

    async def entry(self, run: str, key: str) -> str | None:
        rows = await self.driver.fetch("SELECT value FROM entries WHERE run = ? AND key = ?", (run, key))
        return rows[0][0] if rows else None

    async def entries(self, run: str, prefix: str) -> list[tuple[str, str]]:
        """List (key, value) below `prefix`, in order of key."""
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
