"""Finalize the challenges whose 12 hours are over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from clara_eval.chain.model import Challenge
from clara_eval.challenges.calls import finalize
from clara_eval.core.tasks import gather_or_raise
from clara_eval.service.duty import Tick

_log = structlog.get_logger(__name__)
FINALIZED_AT_ONCE = 16
"""The wallet signs one after the other; most of the time passes while transactions are mined."""


async def finalize_challenge(tick: Tick, challenge: Challenge) -> None:
    receipt = await finalize(challenge, sender=tick.app.sender, results=tick.app.chain.results)
    tick.metrics.transactions.labels("finalize", receipt.outcome.value).inc()
    _log.info("challenge_finalized", outcome=receipt.outcome.value)


async def finalize_all(tick: Tick, work: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Finalize several at once within the tick's limit; what is cut off continues with the same nonce."""
    gate = asyncio.Semaphore(FINALIZED_AT_ONCE)

    async def one(finalizing: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            await finalizing()

    async with tick.within(tick.limits.finalize_seconds, "Finalizing"):
        await gather_or_raise(one(item) for item in work)
