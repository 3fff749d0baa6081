"""How an attempt ended, and what follows: the one place where errors become statuses, pauses and alerts.

Comes in: the error that ended an attempt (or the receipt). Goes out: an `Ending`. An outage is never a verdict: it is
tried again. What the contract refuses, or what came out differently than before, stops the challenge and calls a
person. Anything nobody foresaw is a bug: failed, and loud.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from clara_eval.engine.leases import Busy
from clara_eval.engine.options import EngineOptions
from clara_eval.errors import (
    BadInput,
    CannotPublish,
    ClaraError,
    ConfigError,
    Deferred,
    Disagrees,
    NeedsReview,
    NotFound,
    NotYet,
    Temporary,
    Unscorable,
)
from clara_eval.observe.alerts import Alert
from clara_eval.pipeline.evaluate import Evaluation
from clara_eval.publish.posted import PostedBy
from clara_eval.publish.send import Outcome

DEFER_SECONDS = 3600
NOT_YET_SECONDS = 30
UNKNOWN_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Ending:
    outcome: str
    """For metrics and logs."""
    status: str | None = None
    """The new evaluation status; None leaves it as the evaluation said."""
    reason: str | None = None
    retry_at: int | None = None
    alert: Alert | None = None
    is_bug: bool = False

    @property
    def is_retried(self) -> bool:
        return self.retry_at is not None


def ending_of(error: BaseException, address: str, *, failures: int, now: float, options: EngineOptions) -> Ending:
    """What an error means for this challenge; of several at once the gravest counts."""
    bad = gravest(error)
    pause = min(options.retry_seconds_max, options.retry_seconds * 2 ** min(failures, 20))
    reason = str(bad)
    match bad:
        case NotYet() | Busy():
            soon = int(now + min(NOT_YET_SECONDS, options.retry_seconds))
            # While another worker is at it, the status is the other's to write.
            is_held = isinstance(bad, Busy)
            return Ending("busy", retry_at=soon) if is_held else Ending("not_yet", "pending", reason, soon)
        case Temporary():
            wait = max(pause, bad.retry_after_seconds or 0)
            alert = Alert("EvaluationStuck", "warning", reason, address) if failures >= 3 else None
            return Ending("temporary", "pending", reason, int(now + wait), alert)
        case Deferred():
            alert = Alert("BudgetReached", "warning", reason, address)
            return Ending("deferred", "deferred", reason, bad.retry_at or int(now + DEFER_SECONDS), alert)
        case ConfigError():
            alert = Alert("SettingsWrong", "critical", reason, address)
            return Ending("settings", "pending", reason, int(now + pause), alert)
        case NeedsReview():
            return Ending("rejected", "failed", reason, alert=Alert("EvaluationFailed", "warning", reason, address))
        case Unscorable():
            return Ending("unscorable", "unscorable", reason, alert=Alert("Unscorable", "warning", reason, address))
        case CannotPublish() | Disagrees() | BadInput() | NotFound():
            return Ending("failed", "failed", reason, alert=Alert("EvaluationFailed", "critical", reason, address))
        case _:
            shown = f"An unexpected error ended the evaluation ({type(bad).__name__})."
            alert = Alert("EvaluationFailed", "critical", shown, address, {"error": type(bad).__name__})
            return Ending("bug", "failed", shown, alert=alert, is_bug=True)


def ending_of_result(evaluation: Evaluation, now: float) -> Ending:
    """What an evaluation that was walked to its end means."""
    address, receipt = evaluation.challenge.address, evaluation.receipt
    if receipt is None:
        reasons = "; ".join(evaluation.review.reasons) if evaluation.review else "A person has to look."
        return Ending("review", alert=Alert("ReviewWaiting", "warning", reasons, address))
    match receipt.outcome:
        case Outcome.CONFIRMED:
            return Ending("complete")
        case Outcome.DRY_RUN:
            return Ending("dry_run")
        case Outcome.ALREADY_DONE:
            said = receipt.detail or "Scores were posted by somebody else."
            is_ours = receipt.posted_by is PostedBy.EVALUATOR
            alert = None if is_ours else Alert("PostedByAnother", "warning", said, address)
            return Ending("posted_elsewhere", alert=alert)
        case Outcome.UNKNOWN:
            alert = Alert("TransactionUnknown", "critical", "Scores were sent and are not seen mined.", address)
            return Ending("unknown", retry_at=int(now) + UNKNOWN_SECONDS, alert=alert)
        case Outcome.REVERTED:
            said = receipt.detail or "The post was mined and reverted."
            return Ending("reverted", alert=Alert("EvaluationFailed", "critical", said, address))


_GRAVITY: tuple[type[BaseException], ...] = (
    NotYet, Temporary, Deferred, NeedsReview, BadInput, NotFound, ConfigError, Unscorable, CannotPublish, Disagrees,
)  # fmt: skip


def gravest(error: BaseException) -> BaseException:
    """The error itself, or the gravest one of a group: a bug before a refusal, a refusal before an outage."""
    return max(_leaves(error), key=_gravity)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _gravity(error: BaseException) -> int:
    exact = [rank for rank, kind in enumerate(_GRAVITY) if isinstance(error, kind)]
    if exact:
        return min(exact) if not isinstance(error, CannotPublish) else max(exact)
    return len(_GRAVITY) + (0 if isinstance(error, ClaraError) else 1)
