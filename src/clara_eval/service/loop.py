"""One tick: survey the challenges, act on what is due, then run the other duties.

Invariant: a failure about one challenge is a problem of the report and stops no other; a transaction that does not land
delays no evaluation, because finalizing comes after the other actions.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial

import structlog
from structlog.contextvars import bound_contextvars

from clara_eval.app import App
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.core.address import Address
from clara_eval.core.errors import Stalled
from clara_eval.service.alerts import Alerts
from clara_eval.service.attempt_runner import stalled_alert
from clara_eval.service.due import Due, DueAction
from clara_eval.service.duties import (
    fill_nonces,
    finalize_all,
    finalize_challenge,
    give_feedback,
    measure_entries,
    publish_results,
    watch_balance,
)
from clara_eval.service.duty import Active, Start, Tick, TickReport, count, unexpected
from clara_eval.service.metrics import Metrics
from clara_eval.service.options import EngineOptions
from clara_eval.service.record import record_claims, record_end, record_post, record_results, resend_post
from clara_eval.service.survey import Found, Survey, discover, save_changes

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
    with bound_contextvars(challenge=challenge.address):
        try:
            await ACTIONS[found.action](tick, challenge)
        except Exception as bad:  # noqa: BLE001 - one failing challenge must not block the others
            if isinstance(bad, Stalled):
                tick.alerts.raise_alert(stalled_alert(bad, challenge.address))
            _log.warning("action_failed", action=found.action.value, problem=str(bad), exc_info=unexpected(bad))
            tick.report.problems.append(f"{challenge.address}: {bad}")


Duty = Callable[[Tick], Awaitable[None]]


async def none_active() -> frozenset[Address]:
    return frozenset()


async def run_tick(
    app: App,
    alerts: Alerts,
    metrics: Metrics,
    start: Start,
    *,
    active: Active = none_active,
    options: EngineOptions | None = None,
) -> TickReport:
    """Run every duty once.

    Raises:
        ClaraError: what stops the whole tick, such as a node that does not answer.

    """
    head = await app.chain.blocks.head()
    report = TickReport(int(time.time()), head.number, max(0.0, time.time() - head.timestamp))
    safe = await app.chain.blocks.safe_block()
    tick = Tick(app, alerts, metrics, start, active, options or EngineOptions(), head, safe, report)
    for name, duty in FIRST_DUTIES.items():
        await tick.apart(name, duty(tick))
    await act_on_due(tick)
    for name, duty in LAST_DUTIES.items():
        await tick.apart(name, duty(tick))
    await save_changes(tick)
    await count(tick)
    return report


async def act_on_due(tick: Tick) -> None:
    survey, final = Survey(tick), list[Found]()
    async for group in survey.run():
        for challenge, found in group:
            tick.watch_deadline(challenge, found)
            is_ours = challenge.evaluator == tick.app.evaluator and challenge.submission_count > 0
            if is_ours and challenge.status is ChallengeStatus.OPEN and tick.head.timestamp <= challenge.deadline:
                tick.opened.append(challenge)
            if found.action is DueAction.FINALIZE:
                final.append((challenge, found))
            elif not survey.is_active(challenge, found):
                await act(tick, challenge, found)
    await finalize_all(tick, [partial(act, tick, *one) for one in final])


FIRST_DUTIES: dict[str, Duty] = {
    "discovery": discover,
    "balance": watch_balance,
    "nonces": fill_nonces,
}
LAST_DUTIES: dict[str, Duty] = {
    "publication": publish_results,
    "feedback": give_feedback,
    "results": record_results,
    "claims": record_claims,
    "boards": measure_entries,
}
