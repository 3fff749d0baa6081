"""Several coroutines at once."""

from __future__ import annotations

import asyncio

import pytest

from clara_eval.core.errors import Temporary
from clara_eval.core.tasks import gather_or_raise


async def _fails() -> int:
    await asyncio.sleep(0)
    raise Temporary("The node went away.")


async def test_a_failure_is_raised_as_itself_and_leaves_no_cancellation() -> None:
    """The caller catches the named error and goes on, with no cancel request left on its task."""
    caller = asyncio.current_task()
    assert caller is not None
    with pytest.raises(Temporary):
        await gather_or_raise([_fails(), asyncio.sleep(10, 0)])
    assert caller.cancelling() == 0
    assert await gather_or_raise([asyncio.sleep(0, 1), asyncio.sleep(0, 2)]) == [1, 2]


async def test_a_cancelled_caller_stays_cancelled() -> None:
    """Somebody else's cancellation is not swallowed."""
    task = asyncio.create_task(gather_or_raise([asyncio.sleep(10)]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
