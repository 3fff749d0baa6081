"""Do what is due for one challenge; a failure is a problem of the report and stops no other challenge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from clara_eval.chain.model import Challenge
from clara_eval.core.errors import Stalled
from clara_eval.service.due import Due, DueAction
from clara_eval.service.duty import Tick, unexpected
from clara_eval.service.endings import stalled_alert
from clara_eval.service.finalize import finalize_challenge
from clara_eval.service.logs import bound_challenge
from clara_eval.service.record import record_end, record_post, resend_post

_log = structlog.get_logger(__name__)


async def start_evaluation(tick: Tick, challenge: Challenge) -> None:
    await tick.start(challenge)
    tick.report.started += 1


ACTIONS: dict[DueAction, Callable[[Tick, Challenge], Awaitable[None]]] = {
    DueAction.EVALUATE: start_evaluation,
    DueAction.RECORD: record_post,
    DueAction.RESEND: resend_post,
    DueAction.FINALIZE: finalize_challenge,
    DueAction.CLOSE: record_end,
}


async def act(tick: Tick, challenge: Challenge, found: Due) -> None:
    if found.action is DueAction.NONE:
        return
    with bound_challenge(challenge.address):
        try:
            await ACTIONS[found.action](tick, challenge)
        except Exception as bad:  # noqa: BLE001 - one failing challenge must not block the others
            if isinstance(bad, Stalled):
                tick.alerts.raise_alert(stalled_alert(bad, challenge.address))
            _log.warning("action_failed", action=found.action.value, problem=str(bad), exc_info=unexpected(bad))
            tick.report.problems.append(f"{challenge.address}: {bad}")
