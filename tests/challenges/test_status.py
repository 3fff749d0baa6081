"""The status of an evaluation survives a store that stumbles."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from clara_eval.challenges.status import StatusWriter, read_status
from clara_eval.core.errors import Temporary
from clara_eval.evaluation.round import Stage
from clara_eval.store.sql_store import PublicKeys, SqlStore
from clara_eval.store.sqlite import SqliteStore


@dataclass
class Stumbling(PublicKeys):
    """The real store, whose first write is lost."""

    inner: SqlStore
    stumbles: int = 1

    async def get(self, chain_id: int, key: str) -> str | None:
        return await self.inner.get(chain_id, key)

    async def put(self, chain_id: int, key: str, value: str) -> None:
        if self.stumbles:
            self.stumbles -= 1
            raise Temporary("Postgres does not answer.")
        await self.inner.put(chain_id, key, value)


async def test_a_lost_line_of_progress_stops_nothing(tmp_path: Path) -> None:
    """When progress cannot be written in passing, the next change of state is written all the same."""
    store = await SqliteStore.open(tmp_path / "store.db")
    try:
        board = StatusWriter(Stumbling(store), 1, "0xa")
        board("comparing", 1, 2)
        await asyncio.sleep(0)
        await board.say("publishing", 92)
        status = await read_status(store, 1, "0xa")
    finally:
        await store.close()
    assert status is not None
    assert status["status"] == "publishing"


async def test_progress_never_goes_back(tmp_path: Path) -> None:
    """A stage that grows, an earlier stage, or another attempt leaves progress where it was; a new round starts at 0."""
    store = await SqliteStore.open(tmp_path / "store.db")
    told: list[tuple[str | None, int]] = []
    try:
        board = StatusWriter(
            store,
            1,
            "0xa",
            listener=lambda status: told.append((status.stage.name if status.stage else None, status.progress)),
        )
        for stage, done, total in (
            ("collecting", 2, 2),
            ("executing", 1, 2),
            ("comparing", 21, 21),
            ("comparing", 22, 42),
        ):
            board(cast("Stage", stage), done, total)
        await board.say("publishing", 92)
        assert told == [("collecting", 10), ("executing", 15), ("comparing", 90), ("comparing", 90), (None, 92)]
        again = await StatusWriter.resumed(store, 1, "0xa")
        again("collecting", 1, 2)
        assert again.status.progress == 92
        await again.say("failed")
        anew = await StatusWriter.resumed(store, 1, "0xa")
        anew("collecting", 1, 2)
        assert anew.status.progress == 5
        await anew.say("pending")
    finally:
        await store.close()
