"""Public documents by network and key; the last write counts."""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.store.driver import BULK, Driver, below, placeholders

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
        """List (key, value) below `prefix`, in order of key."""
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
