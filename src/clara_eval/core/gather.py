"""Run coroutines at once; the first failure ends the others and is raised as itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_or_raise(work: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Return results in the order of the work."""
    caller = asyncio.current_task()
    assert caller is not None, "a coroutine runs in a task"
    before = caller.cancelling()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item) for item in work]
    except BaseExceptionGroup as failures:
        # Until Python 3.13 a group that fails leaves its own cancel request on the caller, and cancel scopes around
        # the caller (in the servers' libraries) then take it for somebody else's.
        if caller.cancelling() > before:
            caller.uncancel()  # the group asked once; a second request would be somebody else's
        raise _first(failures) from None
    return [task.result() for task in tasks]


def _first(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
