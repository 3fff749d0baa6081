"""Record who claimed which prize, for the timelines; a long past is read over several ticks."""

from __future__ import annotations

import asyncio

from clara_eval.challenges.chain_records import record_claims
from clara_eval.service.duty import Tick


async def record_new_claims(tick: Tick) -> None:
    try:
        async with asyncio.timeout(tick.limits.read_seconds):
            await record_claims(tick.app.store, tick.app.chain, tick.safe)
    except TimeoutError:
        tick.report.problems.append("Reading old claims is taking long: it continues at the next tick.")
