"""Run coroutines concurrently; check that the running work still holds its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from sys import maxsize
from typing import TypeVar

T = TypeVar("T")


async def gather_or_raise(work: Iterable[Coroutine[object, object, T]], at_once: int = maxsize) -> list[T]:
    """Run at most `at_once` coroutines at a time; results in order, the first failure cancels the rest."""
    gate = asyncio.Semaphore(at_once)

    async def admitted(one: Coroutine[object, object, T]) -> T:
        with closing(one):  # a coroutine that is cancelled before its turn was never awaited
            async with gate:
                return await one

    caller = asyncio.current_task()
    assert caller is not None, "a coroutine runs in a task"
    before = caller.cancelling()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(admitted(one)) for one in work]
    except BaseExceptionGroup as failed:
        # Before Python 3.13 a failed group leaves its cancel request on the caller, and cancel scopes around the caller
        # (in the server libraries) take it for an outside request. Only the group's own request is undone.
        if caller.cancelling() > before:
            caller.uncancel()
        failure: BaseException = failed
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        raise failure from None
    return [task.result() for task in tasks]


Check = Callable[[], Awaitable[None]]
_check: ContextVar[Check | None] = ContextVar("lease_check", default=None)


@contextmanager
def checking_lease(check: Check) -> Iterator[None]:
    """Make `check_lease` call `check` in everything that runs inside this context."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


async def check_lease() -> None:
    """Raise if the running work has lost its lease, for example while the process was suspended."""
    check = _check.get()
    if check is not None:
        await check()
