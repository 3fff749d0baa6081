"""Paid answers, by request and by run; answers that arrive together are written in one statement.

Invariant: a caller continues when its answer is in the database; a rejected row does not fail the rest of its batch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, fields
from functools import lru_cache

from clara_eval.core.errors import Temporary
from clara_eval.core.hashing import plain_json
from clara_eval.judge.attestation import Signed
from clara_eval.judge.port import Answer, PaidAnswer
from clara_eval.store.driver import BULK, Driver, Row, SqlValue, placeholders

MOST_AT_ONCE = 80
"""Six values each: below the 999 that SQLite takes at the least."""
_PAGE = 1000
_COLUMNS = "request, run, llm, purpose, answer, cost_micro_usd"
_ANSWER_FIELDS = tuple(one.name for one in fields(Answer))

Write = Callable[[Sequence[PaidAnswer]], Awaitable[set[str]]]
"""Writes all or none and returns the requests that had no answer before."""
Place = tuple[PaidAnswer, "asyncio.Future[bool]"]


class RunAnswers:
    driver: Driver
    answer_listeners: list[Callable[[PaidAnswer], None]]
    batcher: WriteBatcher

    async def answers(self, requests: Sequence[str]) -> dict[str, PaidAnswer]:
        return {row[0]: _paid(row) for row in await self._select(_COLUMNS, requests)}

    async def answered(self, requests: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._select("request", requests)}

    async def _select(self, columns: str, requests: Sequence[str]) -> list[Row]:
        found: list[Row] = []
        for start in range(0, len(requests), BULK):
            part = requests[start : start + BULK]
            query = f"SELECT {columns} FROM answers WHERE request IN ({placeholders(part)})"  # noqa: S608 - only placeholders are put in
            found += await self.driver.fetch(query, part)
        return found

    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
        """Save the first answer of a request, and return the one that is saved now."""
        if not await self.batcher.is_first(paid):
            # Two workers may have asked the same at once: both go on with the answer that was first.
            return (await self.answers((paid.request,))).get(paid.request, paid)
        for listen in self.answer_listeners:
            listen(paid)
        return paid

    async def answers_of(self, run: str) -> AsyncIterator[PaidAnswer]:
        last = ""
        while True:
            rows = await self.driver.fetch(
                f"SELECT {_COLUMNS} FROM answers WHERE run = ? AND request > ? ORDER BY request LIMIT {_PAGE}",  # noqa: S608 - constants
                (run, last),
            )
            for row in rows:
                yield _paid(row)
            if len(rows) < _PAGE:
                return
            last = rows[-1][0]


async def write_answers(driver: Driver, arrived: Sequence[PaidAnswer]) -> set[str]:
    """Write all or none, and return the requests that had no answer before."""
    rows = await driver.fetch(_insert(len(arrived)), [value for paid in arrived for value in _row(paid)])
    return {row[0] for row in rows}


class WriteBatcher:
    """Write in one statement what arrives in one turn of the event loop, or while another write is under way."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[Place] = []
        self._task: asyncio.Task[None] | None = None

    async def is_first(self, paid: PaidAnswer) -> bool:
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((paid, place))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await place

    async def _work(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                await self._settle(together)
        finally:
            self._task = None
            for _, place in self._waiting:  # only when this task is cancelled from outside
                place.cancel()
            self._waiting = []

    async def _settle(self, together: Sequence[Place]) -> None:
        try:
            new = await self._write([paid for paid, _ in together])
        except asyncio.CancelledError:
            for _, place in together:
                place.cancel()
            raise
        except Exception as bad:  # noqa: BLE001 - each caller gets its own
            if len(together) > 1 and not isinstance(bad, Temporary):
                for alone in together:
                    await self._settle((alone,))
                return
            for _, place in together:
                if not place.done():
                    place.set_exception(bad)
            return
        for paid, place in together:
            if not place.done():
                place.set_result(paid.request in new)
            new.discard(paid.request)  # the second answer of one request is not the first


@lru_cache(maxsize=128)
def _insert(count: int) -> str:
    rows = ", ".join(["(?, ?, ?, ?, ?, ?)"] * count)
    return f"INSERT INTO answers ({_COLUMNS}) VALUES {rows} ON CONFLICT DO NOTHING RETURNING request"  # noqa: S608 - only placeholders are put in


def _row(paid: PaidAnswer) -> tuple[SqlValue, ...]:
    answer = {name: getattr(paid.answer, name) for name in _ANSWER_FIELDS}
    if paid.answer.signed is not None:
        answer["signed"] = asdict(paid.answer.signed)
    return (paid.request, paid.run, paid.llm, paid.purpose, plain_json(answer), paid.cost_micro_usd)


def _paid(row: Row) -> PaidAnswer:
    request, run, llm, purpose, answer, cost = row
    told = json.loads(answer)
    signed = told.pop("signed", None)
    return PaidAnswer(request, run, llm, purpose, Answer(**told, signed=Signed(**signed) if signed else None), cost)
