"""Answers that arrive together: each is written before its caller goes on, and the first one counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from clara_eval.judge.port import Answer, PaidAnswer
from clara_eval.store.sqlite import SqliteStore


def paid(request: str, text: str = "{}") -> PaidAnswer:
    return PaidAnswer(request, "run", "openai:m", "comparison", Answer(text, "m", "end", 1, 1), 1)


async def test_the_same_request_twice_has_one_first(tmp_path: Path) -> None:
    """Of several answers to one request, together or later, the first is kept and counted; all callers get that one."""
    store = await SqliteStore.open(tmp_path / "a.db")
    counted: list[PaidAnswer] = []
    store.answer_listeners.append(counted.append)
    together = await asyncio.gather(*(store.save_answer(paid("a", text)) for text in ("1", "2", "3")))
    assert [*together, await store.save_answer(paid("a", "4"))] == [paid("a", "1")] * 4
    assert counted == [paid("a", "1")]
    await store.close()


async def test_what_callers_were_told_is_in_the_file(tmp_path: Path) -> None:
    """Another connection reads every answer while the first one is still open; a second answer changes none."""
    store = await SqliteStore.open(tmp_path / "a.db")
    answers = [paid(f"0x{number:064x}", text=f"é{number}") for number in range(200)]
    kept = await asyncio.gather(*(store.save_answer(one) for one in answers))
    assert kept == answers
    again = await asyncio.gather(*(store.save_answer(paid(one.request, "another")) for one in answers[:3]))
    assert again == answers[:3]
    other = await SqliteStore.open(tmp_path / "a.db")
    assert await other.answers([one.request for one in answers]) == {one.request: one for one in answers}
    await other.close()
    await store.close()
