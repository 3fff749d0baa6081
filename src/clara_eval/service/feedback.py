"""Give ERC-8004 feedback on the agents of final results, if a registry is set.

To remove the feature delete this file, its line in `loop.LAST_DUTIES`, and `actions/reputation.py`.
"""

from __future__ import annotations

import asyncio

from clara_eval.actions.reputation import give_missing_feedback
from clara_eval.service.duty import Tick


async def give_feedback(tick: Tick) -> None:
    try:
        async with asyncio.timeout(tick.limits.finalize_seconds):
            async for receipt in give_missing_feedback(tick.app):
                tick.metrics.transactions.labels("feedback", receipt.outcome.value).inc()
    except TimeoutError:
        tick.report.problems.append("Giving feedback is taking long: it continues at the next tick.")
