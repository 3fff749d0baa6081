"""Run one attempt to evaluate a challenge, and record how it ended.

Invariant: an attempt never starts twice, and every attempt has an ending; an outage is retried and is never a verdict;
an unexpected error is logged as a bug and raises an alert.
"""

from __future__ import annotations

import math
import time
import uuid
from dataclasses import dataclass, field
from functools import partial

import structlog
from structlog.contextvars import bound_contextvars

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import App
from clara_eval.chain.model import PostedBy
from clara_eval.chain.sender import SendOutcome
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.status import StatusWriter, gravest, read_attempts, reason_of, save_attempts, state_of
from clara_eval.core import errors
from clara_eval.core.address import Address
from clara_eval.documents.results import EvalStatus, State
from clara_eval.evaluation.round import expected_speed
from clara_eval.service.due import EngineOptions
from clara_eval.service.metrics import STALLED_ALERTS, Alert, Alerts, Metrics
from clara_eval.service.record import index_own_post
from clara_eval.store.leases import Busy
from clara_eval.store.sql_store import DATABASE

_log = structlog.get_logger(__name__)
DEFER_SECONDS = 3600  # Pause after a reached budget without a known end
NOT_YET_SECONDS = 30  # Longest pause if nothing is due yet, or the challenge is leased
UNKNOWN_SECONDS = 30  # Pause after a transaction that is not seen mined
STALLED_SECONDS = 60  # Longest pause if nothing can be sent
LONG_SECONDS = 600  # A wait this long raises an alert at once, not after the third failure
LATE_SHARE = 0.25  # A post with a smaller share of the scoring window left raises an alert
BIASED_SHARE = 0.7  # A smaller share of verdicts that survive swapped sides raises an alert


@dataclass(frozen=True, slots=True)
class Ending:
    outcome: str  # For metrics and logs
    status: State | None = None  # The new status; None keeps the old one
    reason: str | None = None
    retry_at: int | None = None
    alert: Alert | None = None


def ending_of(error: BaseException, address: str, *, failures: int, now: float, options: EngineOptions) -> Ending:
    """Decide what an error means for this challenge; in a group the gravest error counts."""
    bad = gravest(error)
    pause = min(options.retry_seconds_max, options.retry_seconds * 2 ** min(failures, 20))
    reason = reason_of(bad)
    retry_at: float | None = None
    alert: Alert | None = None
    match bad:
        case errors.NotYet() | Busy():
            outcome = "busy" if isinstance(bad, Busy) else "not_yet"
            retry_at = now + min(NOT_YET_SECONDS, options.retry_seconds)
        case errors.Stalled():
            outcome, alert = "stalled", Alert(STALLED_ALERTS[bad.cause], "critical", reason, address)
            retry_at = now + min(pause, STALLED_SECONDS)
        case errors.Temporary():
            wait = min(max(pause, bad.retry_after_seconds or 0), bad.longest_pause_seconds or math.inf)
            outcome, retry_at = "temporary", now + wait
            if failures >= 3 or wait >= LONG_SECONDS:
                alert = Alert("EvaluationStuck", "warning", reason, address)
        case errors.Deferred():
            outcome, alert = "deferred", Alert("BudgetReached", "warning", reason, address)
            retry_at = bad.retry_at or now + DEFER_SECONDS
        case errors.ConfigError():
            outcome, alert = "settings", Alert("SettingsWrong", "critical", reason, address)
            retry_at = now + pause
        case errors.NeedsReview():
            outcome, alert = "rejected", Alert("EvaluationFailed", "warning", reason, address)
        case errors.Unscorable():
            outcome, alert = "unscorable", Alert("Unscorable", "warning", reason, address)
        case errors.CannotPublish() | errors.Disagrees() | errors.BadInput() | errors.NotFound():
            outcome, alert = "failed", Alert("EvaluationFailed", "critical", reason, address)
        case _:
            alert = Alert("EvaluationFailed", "critical", reason, address, {"error": type(bad).__name__})
            outcome = "bug"
    return Ending(outcome, state_of(bad), reason, None if retry_at is None else int(retry_at), alert)


def ending_of_result(evaluation: Evaluation, now: float) -> Ending:
    address, receipt, wait = evaluation.challenge.address, evaluation.receipt, evaluation.retry_seconds
    if evaluation.winners_found is None:
        return Ending("recognised")
    retry_at = int(now + wait) + 1 if wait is not None else None
    if evaluation.draft is not None:
        return Ending("announced", retry_at=retry_at)
    if receipt is None:
        review = evaluation.review
        summary = (
            f"{review.unless_decided} {'; '.join(review.reasons)}" if review else "A person must review the result."
        )
        return Ending("review", retry_at=retry_at, alert=Alert("ReviewWaiting", "warning", summary, address))
    match receipt.outcome:
        case SendOutcome.CONFIRMED:
            return Ending("complete")
        case SendOutcome.DRY_RUN:
            return Ending("dry_run")
        case SendOutcome.ALREADY_DONE:
            summary = receipt.detail or "Scores were posted by somebody else."
            is_ours = receipt.posted_by is PostedBy.EVALUATOR
            return Ending(
                "posted_elsewhere", alert=None if is_ours else Alert("PostedByAnother", "warning", summary, address)
            )
        case SendOutcome.UNKNOWN:
            summary = f"Scores were sent but are not mined yet. {receipt.detail}".strip()
            alert = Alert("TransactionUnknown", "critical", summary, address)
            return Ending("unknown", retry_at=int(now) + UNKNOWN_SECONDS, alert=alert)
        case SendOutcome.REVERTED:
            summary = receipt.detail or "The post was mined and reverted."
            return Ending("reverted", alert=Alert("EvaluationFailed", "critical", summary, address))


@dataclass(slots=True)
class AttemptRunner:
    app: App
    worker: str
    options: EngineOptions
    metrics: Metrics
    alerts: Alerts
    speed: float = field(init=False)

    def __post_init__(self) -> None:
        self.speed = expected_speed(self.app.settings.max_concurrency)

    async def attempt(self, address: Address, number: int) -> None:
        """Run one attempt to its end; raise if the process is stopped or the store stays down."""
        started, store, chain_id = time.monotonic(), self.app.store, self.app.chain_id
        with bound_contextvars(challenge=address, attempt=number), self.metrics.running.track_inprogress():
            attempts = await read_attempts(store, chain_id, address)
            if attempts.number != number:
                return
            try:
                ending = await self._make_ending(await evaluate(self.app, address, self._make_request(number)))
            except Exception as bad:  # noqa: BLE001 - every error has an ending; a bug is logged with its traceback
                ending = ending_of(bad, address, failures=attempts.failures, now=time.time(), options=self.options)
                _log.warning("attempt_failed", outcome=ending.outcome, reason=ending.reason,
                             exc_info=bad if ending.outcome == "bug" else None)  # fmt: skip
            # The next number is written first: after that this attempt cannot start again.
            following = attempts.after(ending.retry_at, failed=ending.outcome in {"temporary", "settings"})
            await DATABASE.until_written(lambda: save_attempts(store, chain_id, address, following))
            await DATABASE.until_written(partial(self._write_status, address, ending))
            if ending.alert is not None:
                self.alerts.raise_alert(ending.alert)
            seconds = time.monotonic() - started
            self.metrics.evaluations.labels(ending.outcome).inc()
            self.metrics.evaluation_seconds.observe(seconds)
            for listen in self.metrics.evaluation_listeners:
                listen(address, ending.outcome, seconds)
            _log.info("attempt_ended", outcome=ending.outcome, seconds=round(seconds, 2))

    async def _write_status(self, address: Address, ending: Ending) -> None:
        if ending.status is not None:
            status = await StatusWriter.resumed(self.app.store, self.app.chain_id, address)
            await status.say(ending.status, reason=ending.reason, retryAt=ending.retry_at)

    def _make_request(self, number: int) -> EvaluationRequest:
        def follow_speed(status: EvalStatus) -> None:
            stage = status.stage
            if stage is not None and stage.name == "comparing" and stage.calls and stage.callsPerSecond:
                self.speed = self.speed * 2 / 3 + stage.callsPerSecond / 3  # the newest speed has a weight of one third

        return EvaluationRequest(
            progress=follow_speed,
            sent=lambda receipt: self.metrics.transactions.labels(receipt.intention, receipt.outcome.value).inc(),
            degraded=lambda how: self.metrics.degraded.labels(how).inc(),
            speed=self.speed,
            # Unique per run: a workflow that is queued again may meet its older run in this process.
            holder=f"{self.worker}:{number}:{uuid.uuid4().hex[:8]}",
            lease_seconds=self.options.lease_seconds,
        )

    async def _make_ending(self, evaluation: Evaluation) -> Ending:
        address, ranking = evaluation.challenge.address, evaluation.ran.ranking if evaluation.ran else None
        consistency = ranking.consistency.swap_consistency if ranking else None
        if consistency is not None:
            self.metrics.swap_consistency.set(consistency)
            if consistency < BIASED_SHARE:
                summary = f"{100 * (1 - consistency):.0f} % of the verdicts changed when the sides were swapped."
                self.alerts.raise_alert(Alert("JudgeBiased", "warning", summary, address))
        ending = ending_of_result(evaluation, time.time())
        if ending.outcome == "complete":
            left = await index_own_post(self.app, self.metrics, evaluation.challenge)
            if left is not None and left < LATE_SHARE:
                summary = f"Scores were posted with {100 * left:.0f} % of the scoring window left."
                self.alerts.raise_alert(Alert("PostedLate", "warning", summary, address))
        return ending
