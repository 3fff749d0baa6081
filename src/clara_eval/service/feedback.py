"""Give ERC-8004 feedback on the agents of final results, if a registry is set.

To remove the feature delete this file, its line in `loop.LAST_DUTIES`, and `actions/reputation.py`.
"""

from __future__ import annotations

from clara_eval.actions.reputation import give_missing_feedback
from clara_eval.service.duty import Tick


async def give_feedback(tick: Tick) -> None:
    async with tick.within(tick.limits.finalize_seconds, "Giving feedback"):
        async for receipt in give_missing_feedback(tick.app):
            tick.metrics.transactions.labels("feedback", receipt.outcome.value).inc()
