"""Sentences of the pages: states and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clara_eval.actions.published import SpendLine
from clara_eval.core.dollars import MICRO
from clara_eval.documents.rest import ChallengeSummary
from clara_eval.documents.results import MEANINGS, REJECTED_IN_REVIEW, EvalStatus, State
from clara_eval.interfaces.api.templating import usd

Tone = Literal["open", "busy", "wait", "good", "bad", "quiet"]
Group = Literal["open", "judging", "review", "posted", "ended"]
GROUPS: dict[Group, str] = {
    "open": "Open",
    "judging": "Being judged",
    "review": "In review",
    "posted": "Scores posted",
    "ended": "No result",
}
"""Filters of the list, and their headings."""
RUNNING = frozenset(("extracting", "comparing", "publishing"))


@dataclass(frozen=True, slots=True)
class Phase:
    label: str
    tone: Tone
    sentence: str
    next: str = ""  # what happens then, and who can do what
    group: Group = "judging"


_THEN = "Then the scores are posted; prizes can be claimed 12 hours later."
_REFUND = "Without scores by the scoring deadline every submitter can claim an equal share."
_OF_CHAIN = {
    "cancelled": Phase("Cancelled", "quiet", "The poster cancelled the challenge and has the prize back.",
                       "Nothing was judged, and nothing can be claimed.", "ended"),
    "expired": Phase("Expired", "bad", "No scores came in time: every submitter can claim an equal share.",
                     "Submitters claim with `clara-eval challenge claim` or the tool challenge_claim.", "ended"),
    "finalized": Phase("Final", "good", "The result is final and winners can claim.", group="posted"),
}  # fmt: skip
_OF_STATUS: dict[State, tuple[str, Tone, str, Group]] = {
    "pending": ("Queued", "wait", _THEN, "judging"),
    "extracting": ("Reading", "busy", _THEN, "judging"),
    "comparing": ("Comparing", "busy", _THEN, "judging"),
    "publishing": ("Posting", "busy", "Prizes can be claimed 12 hours after the post.", "judging"),
    "complete": ("Scores posted", "good", "", "posted"),
    "review": ("In review", "wait", _REFUND, "review"),
    "deferred": ("Deferred", "wait", _REFUND, "judging"),
    "failed": ("Not evaluated", "bad", _REFUND, "ended"),
    "unscorable": ("No result", "bad", "", "ended"),
    "elsewhere": ("Scored elsewhere", "quiet", "", "judging"),
}
_OF_STAGE = {
    "collecting": Phase("Collecting", "busy", "Submissions are being fetched and checked.", _THEN),
    "executing": Phase("Running", "busy", "The tests are being run on every submission.", _THEN),
}
"""Stages that the status counts as extracting."""
_REJECTED = "A person rejected the result: nothing is posted. The poster may post scores."
_ANNOUNCED = "The result is announced; submitters may object before it is posted."


def phase(row: ChallengeSummary, now: float) -> Phase:
    """The label of a challenge: by its status on chain, else by its evaluation."""
    evaluation = row.evaluation
    state, stage = evaluation.status, evaluation.stage
    if row.chainStatus in _OF_CHAIN:
        return _OF_CHAIN[row.chainStatus]
    if state in {"pending", "elsewhere"} and now < row.deadline:
        return Phase("Open", "open", "Entries are accepted.", evaluation.reason or "", "open")
    if state == "failed" and (evaluation.reason or "").startswith(REJECTED_IN_REVIEW):
        return Phase("Rejected in review", "bad", _REJECTED, _REFUND, "ended")
    if state == "publishing" and (evaluation.objectionsUntil or 0) > now:
        return Phase("Objections open", "wait", _ANNOUNCED, _THEN)
    if state == "extracting" and stage and stage.name in _OF_STAGE:
        return _OF_STAGE[stage.name]
    label, tone, after, group = _OF_STATUS[state]
    return Phase(label, tone, MEANINGS[state], after, group)


def counted(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def money(found: SpendLine | None, evaluation: EvalStatus, cap: float | None) -> dict[str, str]:
    """The costs of one evaluation. While it runs its own meter is newer than the ledger, which holds a reserve."""
    has_begun, expected = bool(evaluation.startedAt), evaluation.estimateUsd
    if expected is None:
        estimate = "Not known" if has_begun and found else "Nothing" if has_begun else "Known when scoring starts"
    else:
        estimate = f"About {usd(expected)}" if expected else "$0 (no model used)"
    whole, reserved = (found.micro_usd / MICRO, found.open_micro_usd / MICRO) if found else (0.0, 0.0)
    spent = whole - reserved
    if reserved:
        so_far = max(spent, (evaluation.stage.costUsd if evaluation.stage else None) or 0.0)
        told = f"{usd(so_far)} so far, {usd(reserved)} reserved"
    else:
        told = usd(spent) if has_begun else "Nothing yet"
    return {"estimate": estimate, "spent": told, "cap": f"{usd(cap)} for one challenge" if cap is not None else "None"}
