"""Sentences of the pages: states, rejections, consistency, costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from clara_eval.actions.published import Spent
from clara_eval.core.address import short
from clara_eval.documents.rest import ChallengeSummary
from clara_eval.documents.results import MEANINGS, Consistency, EvalStatus, JudgeConsistency, State
from clara_eval.interfaces.api.templating import usd

Tone = Literal["open", "busy", "wait", "good", "bad", "quiet"]
RUNNING = frozenset(("extracting", "comparing", "publishing"))


@dataclass(frozen=True, slots=True)
class Phase:
    label: str
    tone: Tone
    sentence: str


_OF_CHAIN = {
    "cancelled": Phase("Cancelled", "quiet", "The poster cancelled the challenge and has the prize back."),
    "expired": Phase("Expired", "bad", "No scores came in time: every submitter can claim an equal share."),
    "finalized": Phase("Final", "good", "The result is final and winners can claim."),
}
_OF_STATUS: dict[State, tuple[str, Tone]] = {
    "pending": ("Queued", "wait"),
    "extracting": ("Reading", "busy"),
    "comparing": ("Comparing", "busy"),
    "publishing": ("Posting", "busy"),
    "complete": ("Scores posted", "good"),
    "review": ("In review", "wait"),
    "deferred": ("Deferred", "wait"),
    "failed": ("Not evaluated", "bad"),
    "unscorable": ("No result", "bad"),
    "elsewhere": ("Scored elsewhere", "quiet"),
}
_OF_STAGE = {
    "collecting": Phase("Collecting", "busy", "Submissions are being fetched and checked."),
    "executing": Phase("Running", "busy", "Submissions are being run under the poster's tests."),
}
"""Stages that the status counts as extracting."""
_OPEN = Phase("Open", "open", "Entries are accepted.")


def phase(row: ChallengeSummary, now: float) -> Phase:
    """The label of a challenge: by its status on chain, else by its evaluation."""
    state, stage = row.evaluation.status, row.evaluation.stage
    if row.chainStatus in _OF_CHAIN:
        return _OF_CHAIN[row.chainStatus]
    if state in {"pending", "elsewhere"} and now < row.deadline:
        return _OPEN
    if state == "extracting" and stage and stage.name in _OF_STAGE:
        return _OF_STAGE[stage.name]
    return Phase(*_OF_STATUS[state], MEANINGS[state])


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
        estimate = "Not known" if has_begun and found else "Nothing" if has_begun else "Told when scoring starts"
    else:
        estimate = f"About {usd(expected)}" if expected else "Nothing: no model is asked"
    spent, reserved = (found.settled, found.reserved) if found else (0.0, 0.0)
    if reserved:
        so_far = max(spent, (evaluation.stage.costUsd if evaluation.stage else None) or 0.0)
        told = f"{usd(so_far)} so far, {usd(reserved)} set aside"
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
    if is_paid:
        if not rivals:
            return Observation(
                "Nothing of its own.", "It would have been paid however its own games had ended.", is_good=True
            )
        told = f"Had it lost its games against {named}, it would have been place {place} and not paid."
        return Observation("What would have cost it the prize.", told, is_good=True)
    if not rivals:
        return Observation("Out of reach.", "No other end of its own games would have paid it.", is_good=False)
    told = f"Had it won its games against {named}, it would have been place {place} and paid."
    return Observation("What would have changed its place.", told, is_good=False)


def consistency(found: Consistency) -> Iterator[Observation]:
    swap, swaps = found.swapConsistency, found.swaps
    if swap is not None:
        told = f"Asked twice with the two entries swapped, the same one won in {swap:.0%} of {swaps:,} cases."
        yield Observation("Order does not matter." if swap >= 0.9 else "Order matters at times.", told, swap >= 0.9)
    cycles, triples = found.cycles, found.decidedTriples
    if cycles:
        told = f"{cycles:,} of {triples:,} triples go in a circle: A beats B, B beats C, C beats A."
        yield Observation("Some circles.", told, cycles <= triples / 50)
    elif triples:
        yield Observation(
            "No circles.", f"In none of {triples:,} triples did A beat B, B beat C and C beat A.", is_good=True
        )
    coverage = found.coverage
    if coverage == 1:
        yield Observation("Everybody met everybody.", "Every pair of entries was compared.", is_good=True)
    elif coverage is not None:
        some = f"{coverage:.0%} of all pairs were compared, those near the pay line most."
        yield Observation("A chosen schedule.", some, is_good=True)
    yield from _judges(found.judges)
    pivotal = found.pivotalItems
    if pivotal:
        told = f"Had one of {len(pivotal)} entries not taken part, somebody else would be paid."
        yield Observation("A few tip the scales.", told, is_good=False)
    elif pivotal is not None:
        told = "Had any one entry not taken part, the same entries would be paid."
        yield Observation("Nobody tips the scales.", told, is_good=True)


def _judges(judges: Sequence[JudgeConsistency]) -> Iterator[Observation]:
    for judge in judges:
        lean = judge.firstShare
        if lean is not None:
            is_even = abs(lean - 0.5) <= 0.1
            told = f"{judge.judge} chose the entry shown first in {lean:.0%} of {judge.games:,} games."
            yield Observation("No lean to one side." if is_even else "A lean to one side.", told, is_even)
        if judge.agreement is not None and judge.compared:
            agrees = judge.agreement >= 0.75
            told = f"{judge.judge} agrees with the other judges in {judge.agreement:.0%} of their shared games."
            yield Observation("Judges agree." if agrees else "Judges differ.", told, agrees)
