"""Traces are written and read in streams: memory follows neither their size nor the number of their entries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.evidence import ANSWERS, answers, peak

from clara_eval.core.errors import BadTrace
from clara_eval.core.hashing import keccak_hex
from clara_eval.documents.store_keys import scores_key, status_key
from clara_eval.evaluation.trace import OPENING, Evidence, TraceFile
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.sqlite import SqliteStore
from clara_eval.store.trace_archive import (
    bring_back,
    drafted,
    keep_result,
    save_trace,
    stream_trace,
    trace_keccak,
)

MEGABYTE = 1_000_000


async def test_a_large_trace_is_written_and_read_in_a_fraction_of_its_size(tmp_path: Path) -> None:
    """Writing, serving and checking a trace of models each hold a few of its parts, never all of it."""
    store = await SqliteStore.open(tmp_path / "store.db")
    with peak() as writing, drafted(answers(ANSWERS)) as draft:
        await save_trace(store, 1, "0xa", draft.pieces(), draft.digest)
    with peak() as serving, (tmp_path / "trace.json").open("w", encoding="utf-8", newline="\n") as file:
        async for part in stream_trace(store, 1, "0xa"):
            file.write(part)
    await store.close()
    size = (tmp_path / "trace.json").stat().st_size
    with peak() as checking, (tmp_path / "trace.json").open(encoding="utf-8", newline="\n") as lines:
        evidence = Evidence(lines)
        assert sum(bool(evidence.at(seq)[1]) for seq in range(evidence.count)) == ANSWERS + 2
    assert evidence.digest == draft.digest
    assert size > 10 * MEGABYTE
    assert writing[0] < size / 2, (writing, size)
    assert serving[0] < size / 2, (serving, size)
    assert checking[0] < size / 8, (checking, size)


async def test_evidence_says_what_was_written_by_key_and_by_number(store: SqlStore) -> None:
    """Every entry is found under its key and at its place, whatever the parts were cut into; nothing else is there."""
    wanted = [("header", {"rules": 6}), ("answer/ü", {"text": "a\u2028b,\n"}), ("empty", None), ("calldata", "0x")]
    with drafted(wanted) as draft:
        await save_trace(store, 1, "0xb", draft.pieces(), draft.digest)
    text = "".join([part async for part in stream_trace(store, 1, "0xb")])

    async def crumbs() -> AsyncIterator[str]:
        for place in range(0, len(text), 7):
            yield text[place : place + 7]

    lines = await TraceFile.of(crumbs())
    assert lines is not None
    with lines:
        evidence = Evidence(lines)
        assert "".join(lines) == text, "as often as they are asked for"
    assert [evidence.at(seq) for seq in range(evidence.count)] == wanted
    assert dict(evidence) == dict(wanted)
    assert evidence.get("answer/other") is None
    assert evidence.digest == draft.digest


async def test_a_kept_result_comes_back_whole_and_never_through_memory(store: SqlStore) -> None:
    """Setting a large trace aside, bringing it back and hashing it hold a part of it; the status is not brought back."""
    with drafted(answers(ANSWERS)) as draft:
        await save_trace(store, 1, "0xa", draft.pieces(), draft.digest)
    await store.put_many(1, [(scores_key("0xa"), "mine"), (status_key("0xa"), "old"), (scores_key("0xb"), "other")])
    before = dict(await store.items(1, "challenges:0xa:"))
    with peak() as keeping:
        await keep_result(store, 1, "0xa")
    await save_trace(store, 1, "0xa", ["another"], "0x02")
    await store.put_many(1, [(scores_key("0xa"), "another"), (status_key("0xa"), "new")])
    with peak() as bringing:
        await bring_back(store, 1, "0xa", draft.digest)
    with peak() as hashing:
        hashed = await trace_keccak(store, 1, "0xa")
    text = "".join([part async for part in stream_trace(store, 1, "0xa")])
    assert dict(await store.items(1, "challenges:0xa:")) == before | {status_key("0xa"): "new"}
    assert await store.get(1, scores_key("0xb")) == "other"
    assert hashed == keccak_hex(text.encode())
    assert keeping[0] < MEGABYTE
    assert bringing[0] < MEGABYTE
    assert hashing[0] < 4 * MEGABYTE < len(text) / 2


def test_a_line_that_was_changed_is_named_before_anything_is_asked() -> None:
    """Evidence of a trace that does not hold together is not handed out."""
    with drafted([("header", {"rules": 6})]) as draft:
        lines = "".join(draft.pieces()).splitlines(keepends=True)
    with pytest.raises(BadTrace, match="#0 header was changed"):
        Evidence([lines[0], lines[1].replace("6", "7"), lines[2]])
    with pytest.raises(BadTrace, match="before its digest"):
        Evidence([OPENING + "\n"])
