"""Decide what the end of an attempt means: its status, the pause before the next, and the alert.

Invariant: an outage is tried again and is never a verdict; an unexpected error is a bug and is loud.
"""

from __future__ import annotations

from dataclasses import dataclass

from clara_eval.chain.posted import PostedBy
from clara_eval.chain.sender import SendOutcome
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.status import gravest, reason_of, state_of
from clara_eval.core.errors import (
    BadInput,
    CannotPublish,
    ConfigError,
    Deferred,
    Disagrees,
    NeedsReview,
    NotFound,
    NotYet,
    Stalled,
    Temporary,
    Unscorable,
)
from clara_eval.documents.results import State
from clara_eval.service.alerts import Alert
from clara_eval.service.options import EngineOptions
from clara_eval.store.leases import Busy

DEFER_SECONDS = 3600
NOT_YET_SECONDS = 30
UNKNOWN_SECONDS = 30
STALLED_SECONDS = 60
LONG_SECONDS = 600
"""A wait this long raises an alert at once, not after the third failure."""


@dataclass(frozen=True, slots=True)
class Ending:
    outcome: str
    """For metrics and logs."""
    status: State | None = None
    """The new status; None leaves it as it is."""
    reason: str | None = None
    retry_at: int | None = None
    alert: Alert | None = None
    is_bug: bool = False

    @property
    def is_retried(self) -> bool:
        return self.retry_at is not None


def ending_of(error: BaseException, address: str, *, failures: int, now: float, options: EngineOptions) -> Ending:
    """Decide what an error means for this challenge; of several at once the gravest counts."""
    bad = gravest(error)
    pause = min(options.retry_seconds_max, options.retry_seconds * 2 ** min(failures, 20))
    state, reason = state_of(bad), reason_of(bad)
    match bad:
        case NotYet() | Busy():
            soon = int(now + min(NOT_YET_SECONDS, options.retry_seconds))
            return Ending("busy" if isinstance(bad, Busy) else "not_yet", state, reason, soon)
        case Temporary():
            return _outage(bad, state, reason, address, failures=failures, now=now, pause=pause)
        case Deferred():
            alert = Alert("BudgetReached", "warning", reason, address)
            return Ending("deferred", state, reason, bad.retry_at or int(now + DEFER_SECONDS), alert)
        case ConfigError():
            alert = Alert("SettingsWrong", "critical", reason, address)
            return Ending("settings", state, reason, int(now + pause), alert)
        case NeedsReview():
            return Ending("rejected", state, reason, alert=Alert("EvaluationFailed", "warning", reason, address))
        case Unscorable():
            return Ending("unscorable", state, reason, alert=Alert("Unscorable", "warning", reason, address))
        case CannotPublish() | Disagrees() | BadInput() | NotFound():
            return Ending("failed", state, reason, alert=Alert("EvaluationFailed", "critical", reason, address))
        case _:
            alert = Alert("EvaluationFailed", "critical", reason, address, {"error": type(bad).__name__})
            return Ending("bug", state, reason, alert=alert, is_bug=True)


def _outage(
    bad: Temporary, state: State | None, reason: str, address: str, *, failures: int, now: float, pause: float
) -> Ending:
    """Try again: soon if only something outside is missing, else after growing pauses."""
    if isinstance(bad, Stalled):
        return Ending("stalled", state, reason, int(now + min(pause, STALLED_SECONDS)), stalled_alert(bad, address))
    wait = max(pause, bad.retry_after_seconds or 0)
    wait = wait if bad.longest_pause_seconds is None else min(wait, bad.longest_pause_seconds)
    is_long = failures >= 3 or wait >= LONG_SECONDS
    alert = Alert("EvaluationStuck", "warning", reason, address) if is_long else None
    return Ending("temporary", state, reason, int(now + wait), alert)


STALL_ALERTS = {"balance": "BalanceLow", "gas_cap": "GasCapReached", "nonces": "NoncesLost", "gap": "NonceGap"}


def stalled_alert(bad: Stalled, address: str) -> Alert:
    """The alert of a transaction that cannot be sent now; it continues by itself once the cause is gone."""
    return Alert(STALL_ALERTS[bad.cause], "critical", str(bad), address)


def ending_of_result(evaluation: Evaluation, now: float) -> Ending:
    """Decide what an evaluation that ran to its end means."""
    address, receipt = evaluation.challenge.address, evaluation.receipt
    if evaluation.is_recognised:
        return Ending("recognised")
    wait = evaluation.retry_seconds
    retry_at = int(now + wait) + 1 if wait is not None else None
    if evaluation.draft is not None:
        return Ending("announced", retry_at=retry_at)
    if receipt is None:
        review = evaluation.review
        told = f"{review.unless_decided} {'; '.join(review.reasons)}" if review else "A person has to look."
        return Ending("review", retry_at=retry_at, alert=Alert("ReviewWaiting", "warning", told, address))
    match receipt.outcome:
        case SendOutcome.CONFIRMED:
            return Ending("complete")
        case SendOutcome.DRY_RUN:
            return Ending("dry_run")
        case SendOutcome.ALREADY_DONE:
            said = receipt.detail or "Scores were posted by somebody else."
            is_ours = receipt.posted_by is PostedBy.EVALUATOR
            alert = None if is_ours else Alert("PostedByAnother", "warning", said, address)
            return Ending("posted_elsewhere", alert=alert)
        case SendOutcome.UNKNOWN:
            said = f"Scores were sent and are not seen mined. {receipt.detail}".strip()
            alert = Alert("TransactionUnknown", "critical", said, address)
            return Ending("unknown", retry_at=int(now) + UNKNOWN_SECONDS, alert=alert)
        case SendOutcome.REVERTED:
            said = receipt.detail or "The post was mined and reverted."
            return Ending("reverted", alert=Alert("EvaluationFailed", "critical", said, address))
