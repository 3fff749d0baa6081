"""Measure new entries of open challenges for their provisional boards, a few at each tick."""

from __future__ import annotations

import structlog

from clara_eval.actions.provisional import measure_open
from clara_eval.core.errors import ClaraError
from clara_eval.service.duty import Tick

_log = structlog.get_logger(__name__)
MOST_RUNS, MOST_OF_ONE = 20, 10
"""New measurements in a tick, and of them in one challenge: neither a flood nor a board delays an evaluation."""
MOST_WAITING = 100  # of the challenges with entries left over; others wait for their next entry


async def measure_entries(tick: Tick) -> None:
    runs, pending, waiting = MOST_RUNS, list(tick.opened), list[str]()
    async with tick.within(tick.limits.measure_seconds, "Measuring the entries of open challenges"):
        while pending and runs > 0:
            done, is_left, address = 0, False, pending[0].address
            try:
                done, is_left = await measure_open(tick.app.ports, pending[0], tick.head, min(runs, MOST_OF_ONE))
            except ClaraError as bad:  # no engine for its language, for example: the evaluation says so when it is due
                _log.warning("board_not_measured", challenge=address, problem=str(bad))
            runs, waiting = runs - done, [*waiting, *([address] if is_left else [])]
            del pending[0]
    tick.read_again.update([*waiting, *(one.address for one in pending)][:MOST_WAITING])
