"""Run one tick: act on what is due, then run the other duties (wallet, publication, feedback, boards).

Invariant: a failure of one challenge is listed in the report and blocks no other; a transaction that is not mined
delays no evaluation, because finalizing comes after the other actions.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import structlog
from structlog.contextvars import bound_contextvars

from clara_eval.actions.provisional import measure_open
from clara_eval.actions.publication import NotTried, give_missing_feedback, publish_missing
from clara_eval.app import App
from clara_eval.chain.account import posts_covered
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.challenges.calls import finalize
from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError, Stalled
from clara_eval.core.tasks import gather_or_raise
from clara_eval.service.due import DEFAULTS, Active, Due, DueAction, EngineOptions, Start, Tick, TickReport
from clara_eval.service.metrics import STALLED_ALERTS, Alert, Alerts, Metrics
from clara_eval.service.record import record_claims, record_end, record_post, record_results, resend_post
from clara_eval.service.survey import Found, Survey, discover, save_changes
from clara_eval.store.leases import Busy

_log = structlog.get_logger(__name__)
Duty = Callable[[Tick], Awaitable[None]]
FINALIZED_AT_ONCE = 16  # Concurrent finalizations: signing is sequential, but most of the time is spent mining
_LOW_POSTS = 20  # The balance is low below this many posts; a post with many winners costs several
MAX_RUNS, MAX_RUNS_PER_CHALLENGE = 20, 10  # New measurements per tick: open boards must not delay evaluations
MAX_WAITING = 100  # Challenges with unmeasured entries to read again at the next tick; others wait for a new entry


async def watch_balance(tick: Tick) -> None:
    sender, report = tick.app.sender, tick.report
    if not sender.can_sign:
        return
    report.balance_wei, report.posts_left = await posts_covered(tick.app.chain, sender.address)
    if report.posts_left < _LOW_POSTS:
        summary = f"The balance of {sender.address} pays for {report.posts_left} more posts at the present fee."
        tick.alerts.raise_alert(Alert("BalanceLow", "critical", summary))


async def fill_nonces(tick: Tick) -> None:
    """Fill missing nonces before signed transactions, even if there is nothing to send."""
    app = tick.app
    gap = await app.sender.find_gap()
    if gap is None:
        return
    tick.report.nonce_gap = str(gap)
    tick.report.problems.append(str(gap))
    tick.alerts.raise_alert(Alert("NonceGap", "warning", str(gap)))
    await app.sender.close_gap()


async def finalize_challenge(tick: Tick, challenge: Challenge) -> None:
    receipt = await finalize(challenge, sender=tick.app.sender)
    tick.metrics.transactions.labels("finalize", receipt.outcome.value).inc()
    _log.info("challenge_finalized", outcome=receipt.outcome.value)


async def publish_results(tick: Tick) -> None:
    """Publish posted results to every target that lacks them: one that was down, or is new."""
    failed = [
        f"{attempt.address}: not published at {attempt.place}: {attempt.problem}"
        async for attempt in publish_missing(tick.app, tick.options.publish_seconds)
        if attempt.error is not None and not isinstance(attempt.error, (Busy, NotTried))
    ]
    if failed:
        tick.report.problems += failed
        tick.alerts.raise_alert(Alert("PublicationFailing", "warning", " ".join(failed[:3])))


async def give_feedback(tick: Tick) -> None:
    async with tick.within(tick.options.finalize_seconds, "Giving feedback"):
        async for receipt in give_missing_feedback(tick.app):
            tick.metrics.transactions.labels("feedback", receipt.outcome.value).inc()


async def measure_entries(tick: Tick) -> None:
    runs, pending, waiting = MAX_RUNS, list(tick.opened), list[str]()
    async with tick.within(tick.options.measure_seconds, "Measuring the entries of open challenges"):
        while pending and runs > 0:
            done, is_left, address = 0, False, pending[0].address
            try:
                done, is_left = await measure_open(tick.app, pending[0], tick.head, min(runs, MAX_RUNS_PER_CHALLENGE))
            except Exception as bad:  # noqa: BLE001 - one board must not delay the others; the evaluation reports it
                is_ours = isinstance(bad, ClaraError)
                _log.warning(
                    "board_not_measured", challenge=address, problem=str(bad), exc_info=None if is_ours else bad
                )
            runs, waiting = runs - done, [*waiting, *([address] if is_left else [])]
            del pending[0]
    tick.read_again.update([*waiting, *(one.address for one in pending)][:MAX_WAITING])


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
                tick.alerts.raise_alert(Alert(STALLED_ALERTS[bad.cause], "critical", str(bad), challenge.address))
            tick.add_failure("action_failed", challenge.address, bad, action=found.action.value)


async def no_active() -> frozenset[Address]:
    return frozenset()


async def run_tick(
    app: App,
    alerts: Alerts,
    metrics: Metrics,
    start: Start,
    *,
    active: Active = no_active,
    options: EngineOptions = DEFAULTS,
) -> TickReport:
    """Run every duty once. Raises errors that stop the whole tick, such as a node that does not respond."""
    head = await app.chain.blocks.head()
    report = TickReport(int(time.time()), head.number, max(0.0, time.time() - head.timestamp))
    tick = Tick(app, alerts, metrics, start, active, options, head, await app.chain.blocks.safe_block(), report)
    for name, duty in FIRST_DUTIES.items():
        await tick.run_isolated(name, duty(tick))
    await act_on_due(tick)
    for name, duty in LAST_DUTIES.items():
        await tick.run_isolated(name, duty(tick))
    await save_changes(tick)
    await tick.run_isolated("statuses", tick.count_statuses())
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

    # A finalization that is cut off continues with its nonce at the next tick.
    async with tick.within(tick.options.finalize_seconds, "Finalizing"):
        await gather_or_raise((act(tick, *one) for one in final), FINALIZED_AT_ONCE)


FIRST_DUTIES: dict[str, Duty] = {"discovery": discover, "balance": watch_balance, "nonces": fill_nonces}
LAST_DUTIES: dict[str, Duty] = {
    "publication": publish_results,
    "feedback": give_feedback,
    "results": record_results,
    "claims": record_claims,
    "boards": measure_entries,
}
