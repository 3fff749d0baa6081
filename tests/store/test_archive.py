"""The archived trace is whole, or there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import Archived, archived_trace, save_trace, stream_trace


def dying(pieces: list[str]) -> Iterator[str]:
    yield from pieces
    raise KeyboardInterrupt


async def test_a_half_written_trace_is_not_taken_for_the_one_before(store: SqlStore) -> None:
    """Dying while another trace is written leaves no trace, never a mixture of both; writing again makes it whole."""
    old, new = ["a" * 1_000_000, "b"], ["c" * 1_000_000, "d"]
    await save_trace(store, 1, "0xa", old, "0x01")
    with pytest.raises(KeyboardInterrupt):
        await save_trace(store, 1, "0xa", dying(new), "0x02")
    assert await archived_trace(store, 1, "0xa") is None
    assert [part async for part in stream_trace(store, 1, "0xa")] == []
    await save_trace(store, 1, "0xa", new, "0x02")
    assert await archived_trace(store, 1, "0xa") == Archived("0x02", 2)
    assert [part async for part in stream_trace(store, 1, "0xa")] == new
