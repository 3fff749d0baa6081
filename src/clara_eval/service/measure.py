"""Measure new entries of open challenges for their provisional boards, a few at each tick."""

from __future__ import annotations

from clara_eval.actions.provisional import measure_open
from clara_eval.core.errors import ConfigError
from clara_eval.service.duty import Tick

MOST_RUNS, MOST_OF_ONE = 20, 10
"""New measurements in a tick, and of them in one challenge: neither a flood nor a board delays an evaluation."""
MOST_WAITING = 100
"""Challenges that are looked at again for entries left over; others wait for their next entry."""


async def measure_entries(tick: Tick) -> None:
    runs, waiting = MOST_RUNS, []
    async with tick.within(tick.limits.measure_seconds, "Measuring the entries of open challenges"):
        for challenge in tick.opened:
            if runs <= 0:
                waiting.append(challenge.address)
                continue
            try:
                done, is_left = await measure_open(tick.app.ports, challenge, tick.head, min(runs, MOST_OF_ONE))
            except ConfigError:  # no engine for its language: the evaluation says so when it is due
                continue
            runs -= done
            waiting += [challenge.address] if is_left else []
    tick.read_again.update(waiting[:MOST_WAITING])
