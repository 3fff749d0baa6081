"""Answers that arrive together: written together, each caller told about its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from clara_eval.core.errors import Temporary
from clara_eval.judge.port import Answer, PaidAnswer
from clara_eval.store.sql_store import MOST_AT_ONCE, WriteBatcher
from clara_eval.store.sqlite import SqliteStore


def paid(request: str, text: str = "{}") -> PaidAnswer:
    return PaidAnswer(request, "run", "openai:m", "comparison", Answer(text, "m", "end", 1, 1), 1)


class _Book:
    """A database whose statements can be held up and refused; it keeps what each of them wrote."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []
        self.held = asyncio.Event()
        self.held.set()
        self.refuses: dict[str, Exception] = {}

    async def write(self, arrived: Sequence[PaidAnswer]) -> set[str]:
        await self.held.wait()
        for one in arrived:
            if one.request in self.refuses:
                raise self.refuses[one.request]
        before = {request for requests in self.written for request in requests}
        self.written.append([one.request for one in arrived])
        return {one.request for one in arrived} - before


async def test_what_comes_together_is_written_together() -> None:
    """A hundred callers of one moment take two statements, and each is the first of its request."""
    book = _Book()
    arrivals = WriteBatcher(book.write)
    told = await asyncio.gather(*(arrivals.is_first(paid(f"{number:03}")) for number in range(100)))
    assert told == [True] * 100
    assert [len(requests) for requests in book.written] == [MOST_AT_ONCE, 100 - MOST_AT_ONCE]


async def test_what_comes_while_one_is_on_its_way_goes_next() -> None:
    """Nobody goes on before its own answer is written, and those that wait go in one statement."""
    book = _Book()
    arrivals = WriteBatcher(book.write)
    book.held.clear()
    first = asyncio.create_task(arrivals.is_first(paid("a")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.create_task(arrivals.is_first(paid(request))) for request in "bcd"]
    done, _ = await asyncio.wait([first, *later], timeout=0.05)
    assert not done
    book.held.set()
    assert await asyncio.gather(first, *later) == [True] * 4
    assert book.written == [["a"], ["b", "c", "d"]]


async def test_the_same_request_twice_has_one_first() -> None:
    """Of two answers to one request, in one statement or in two, one is told that it is the first."""
    arrivals = WriteBatcher(_Book().write)
    together = await asyncio.gather(*(arrivals.is_first(paid("a")) for _ in range(3)))
    assert together == [True, False, False]
    assert not await arrivals.is_first(paid("a"))


async def test_one_refused_answer_is_its_own() -> None:
    """A row that the database does not take keeps its neighbours from nothing; an outage concerns all of them."""
    book = _Book()
    arrivals = WriteBatcher(book.write)
    book.refuses["b"] = ValueError("not this one")
    told = await asyncio.gather(*(arrivals.is_first(paid(request)) for request in "abc"), return_exceptions=True)
    assert (told[0], type(told[1]), told[2]) == (True, ValueError, True)
    book.refuses = {"e": Temporary("The disk is full.")}
    told = await asyncio.gather(*(arrivals.is_first(paid(request)) for request in "def"), return_exceptions=True)
    assert [type(one) for one in told] == [Temporary] * 3
    book.refuses = {}
    assert await arrivals.is_first(paid("d")), "the next one is written again"


async def test_who_goes_away_stops_no_writing() -> None:
    """A caller that is cancelled while its answer waits leaves it to be written."""
    book = _Book()
    arrivals = WriteBatcher(book.write)
    book.held.clear()
    waiting = [asyncio.create_task(arrivals.is_first(paid(request))) for request in "ab"]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    await asyncio.sleep(0.01)
    book.held.set()
    assert await waiting[1]
    assert book.written == [["a", "b"]]


async def test_an_end_from_outside_ends_the_callers() -> None:
    """When the whole program is cancelled nobody waits for ever, and the next answer finds its way."""
    book = _Book()
    arrivals = WriteBatcher(book.write)
    book.held.clear()
    callers = [asyncio.create_task(arrivals.is_first(paid(request))) for request in "ab"]
    await asyncio.sleep(0.01)
    late = asyncio.create_task(arrivals.is_first(paid("c")))
    await asyncio.sleep(0.01)
    assert arrivals._task is not None
    arrivals._task.cancel()
    ends = await asyncio.gather(*callers, late, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 3
    book.held.set()
    assert await arrivals.is_first(paid("d"))


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
