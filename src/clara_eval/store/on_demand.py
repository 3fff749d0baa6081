"""A store that is opened at the first need: for callers who mostly look and seldom write.

Comes in: the database's URL, or a store that somebody else has open. Goes out: the store. Must hold: an SQLite file
that does not exist is created only by whoever has to write; two who ask at once get the same store; a store that was
given stays its owner's.
"""

from __future__ import annotations

import asyncio

from clara_eval.store.open import is_there, open_store
from clara_eval.store.ports import Store


class StoreOnDemand:
    def __init__(self, database_url: str, store: Store | None = None) -> None:
        self._url = database_url
        self._store = store
        self._is_ours = store is None
        self._opening = asyncio.Lock()

    async def existing(self) -> Store | None:
        """Open the store; None if its file does not exist."""
        if self._store is None and not is_there(self._url):
            return None
        return await self.opened()

    async def opened(self) -> Store:
        async with self._opening:  # two questions at once must not open two, of which one would never be closed
            if self._store is None:
                self._store = await open_store(self._url)
        return self._store

    async def close(self) -> None:
        if self._store is not None and self._is_ours:
            await self._store.close()
