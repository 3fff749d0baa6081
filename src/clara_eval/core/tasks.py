"""Run coroutines at once; check that the lease of the running work is still held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from sys import maxsize
from typing import TypeVar

T = TypeVar("T")


async def gather_or_raise(work: Iterable[Coroutine[object, object, T]], at_once: int = maxsize) -> list[T]:
    """Return results in the order of the work; the first failure ends the others and is raised as itself."""
    gate = asyncio.Semaphore(at_once)

    async def admitted(one: Coroutine[object, object, T]) -> T:
        with closing(one):  # if it is cancelled before its turn, it was never awaited
            async with gate:
                return await one

    caller = asyncio.current_task()
    assert caller is not None, "a coroutine runs in a task"
    before = caller.cancelling()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(admitted(one)) for one in work]
    except BaseExceptionGroup as failed:
        # Until Python 3.13 a group that fails leaves its own cancel request on the caller, and cancel scopes around
        # the caller (in the servers' libraries) then take it for somebody else's.
        if caller.cancelling() > before:
            caller.uncancel()  # the group asked once; a second request would be somebody else's
        failure: BaseException = failed
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        raise failure from None
    return [task.result() for task in tasks]


Check = Callable[[], Awaitable[None]]
_check: ContextVar[Check | None] = ContextVar("lease_check", default=None)


@contextmanager
def checking_lease(check: Check) -> Iterator[None]:
    """Have `check_lease` call `check` in everything that runs inside."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


async def check_lease() -> None:
    """Raise if the work that runs now has lost its lease, as after a frozen process thaws."""
    check = _check.get()
    if check is not None:
        await check()
