"""Sentences of the pages: states, rejections, consistency, costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from clara_eval.actions.published import Spent
from clara_eval.core.address import short
from clara_eval.documents.rest import ChallengeSummary
from clara_eval.documents.results import (
    MEANINGS,
    REJECTED_IN_REVIEW,
    Consistency,
    EvalStatus,
    JudgeConsistency,
    State,
)
from clara_eval.interfaces.api.templating import judge, share, usd

Tone = Literal["open", "busy", "wait", "good", "bad", "quiet"]
RUNNING = frozenset(("extracting", "comparing", "publishing"))


@dataclass(frozen=True, slots=True)
class Phase:
    label: str
    tone: Tone
    sentence: str
    next: str = ""
    """What happens then, and who can do what."""


_THEN = "Then the scores are posted; prizes can be claimed 12 hours later."
_REFUND = "Without scores by the scoring deadline every submitter can claim an equal share."
_OF_CHAIN = {
    "cancelled": Phase("Cancelled", "quiet", "The poster cancelled the challenge and has the prize back.",
                       "Nothing was judged, and nothing can be claimed."),
    "expired": Phase("Expired", "bad", "No scores came in time: every submitter can claim an equal share.",
                     "Submitters claim with `clara-eval challenge claim` or the tool challenge_claim."),
    "finalized": Phase("Final", "good", "The result is final and winners can claim."),
}  # fmt: skip
_OF_STATUS: dict[State, tuple[str, Tone, str]] = {
    "pending": ("Queued", "wait", _THEN),
    "extracting": ("Reading", "busy", _THEN),
    "comparing": ("Comparing", "busy", _THEN),
    "publishing": ("Posting", "busy", "Prizes can be claimed 12 hours after the post."),
    "complete": ("Scores posted", "good", ""),
    "review": ("In review", "wait", _REFUND),
    "deferred": ("Deferred", "wait", _REFUND),
    "failed": ("Not evaluated", "bad", _REFUND),
    "unscorable": ("No result", "bad", ""),
    "elsewhere": ("Scored elsewhere", "quiet", ""),
}
_OF_STAGE = {
    "collecting": Phase("Collecting", "busy", "Submissions are being fetched and checked.", _THEN),
    "executing": Phase("Running", "busy", "Submissions are being run under the poster's tests.", _THEN),
}
"""Stages that the status counts as extracting."""
_OPEN = Phase("Open", "open", "Entries are accepted.")
_REJECTED = Phase(
    "Rejected in review", "bad", "A person rejected the result: nothing is posted. The poster may post scores.", _REFUND
)
_ANNOUNCED = Phase(
    "Objections open", "wait", "The result is announced; submitters may object before it is posted.", _THEN
)


def phase(row: ChallengeSummary, now: float) -> Phase:
    """The label of a challenge: by its status on chain, else by its evaluation."""
    evaluation = row.evaluation
    state, stage = evaluation.status, evaluation.stage
    if row.chainStatus in _OF_CHAIN:
        return _OF_CHAIN[row.chainStatus]
    if state in {"pending", "elsewhere"} and now < row.deadline:
        return replace(_OPEN, next=evaluation.reason or "")
    if state == "failed" and (evaluation.reason or "").startswith(REJECTED_IN_REVIEW):
        return _REJECTED
    if state == "publishing" and (evaluation.objectionsUntil or 0) > now:
        return _ANNOUNCED
    if state == "extracting" and stage and stage.name in _OF_STAGE:
        return _OF_STAGE[stage.name]
    label, tone, after = _OF_STATUS[state]
    return Phase(label, tone, MEANINGS[state], after)


STAGES = {
    "collecting": "Collecting the entries",
    "executing": "Running the entries",
    "extracting": "Reading the entries",
    "comparing": "Comparing pairs",
}


def counted(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


@dataclass(frozen=True, slots=True)
class Money:
    estimate: str
    spent: str
    cap: str


def money(found: Spent | None, evaluation: EvalStatus, cap: float | None) -> Money:
    """The costs of one evaluation. While it runs its own meter is newer than the ledger, which holds a reserve."""
    has_begun, expected = bool(evaluation.startedAt), evaluation.estimateUsd
    if expected is None:
        estimate = "Not known" if has_begun and found else "Nothing" if has_begun else "Known when scoring starts"
    else:
        estimate = f"About {usd(expected)}" if expected else "$0 (no model used)"
    spent, reserved = (found.settled, found.reserved) if found else (0.0, 0.0)
    if reserved:
        so_far = max(spent, (evaluation.stage.costUsd if evaluation.stage else None) or 0.0)
        told = f"{usd(so_far)} so far, {usd(reserved)} reserved"
    else:
        told = usd(spent) if has_begun else "Nothing yet"
    return Money(estimate, told, f"{usd(cap)} for one challenge" if cap is not None else "None")


@dataclass(frozen=True, slots=True)
class Observation:
    heading: str
    sentence: str
    is_good: bool


def place_change(rivals: Sequence[str], place: int, *, is_paid: bool) -> Observation:
    """What other results of its own comparisons would have meant for an entry."""
    named = " and ".join(filter(None, (", ".join(map(short, rivals[:-1])), *map(short, rivals[-1:]))))
    if not rivals:
        told = "Whatever its own comparisons had said, it would " + ("have been paid." if is_paid else "not be paid.")
        return Observation("Not close.", told, is_paid)
    if is_paid:
        told = f"Losing to {named} would have made it place {place}, out of the money."
        return Observation("What would have cost it the prize.", told, is_good=True)
    told = f"Beating {named} would have made it place {place}, in the money."
    return Observation("What would have changed its place.", told, is_good=False)


def consistency(found: Consistency) -> Iterator[Observation]:
    swap, cycles, triples, coverage = found.swapConsistency, found.cycles, found.decidedTriples, found.coverage
    if swap is not None:
        told = f"With the two entries swapped, the same one won in {share(swap)} of {found.swaps:,} cases."
        yield Observation("Order does not matter." if swap >= 0.9 else "Order matters at times.", told, swap >= 0.9)
    if triples:
        heading = f"Contradictions: {cycles:,} of {triples:,}." if cycles else "No contradictions."
        told = f"Checked: {triples:,} triples in which A beats B and B beats C, for C beating A."
        yield Observation(heading, told, cycles <= triples / 50)
    if coverage is not None:
        heading = "Every pair was compared." if coverage == 1 else "Not every pair was compared."
        told = "" if coverage == 1 else f"{share(coverage)} of all pairs were, those near the pay line most."
        yield Observation(heading, told, is_good=True)
    yield from _judges(found.judges)
    if (pivotal := found.pivotalItems) is not None:
        told = f"Without one of {len(pivotal)} entries somebody else would be paid."
        told = told if pivotal else "Removing any single entry changes no payout."
        yield Observation("Sensitive." if pivotal else "Robust.", told, not pivotal)


def _judges(judges: Sequence[JudgeConsistency]) -> Iterator[Observation]:
    for one in judges:
        lean, name = one.firstShare, judge(one.judge)
        if lean is not None:
            is_even = abs(lean - 0.5) <= 0.1
            told = f"The entry shown first won {share(lean)} of {one.games:,} comparisons by {name}."
            yield Observation("No position bias." if is_even else "Position bias.", told, is_even)
        if one.agreement is not None and one.compared:
            agrees = one.agreement >= 0.75
            told = f"{name} agrees with the other judges in {share(one.agreement)} of their shared comparisons."
            yield Observation("Judges agree." if agrees else "Judges differ.", told, agrees)
