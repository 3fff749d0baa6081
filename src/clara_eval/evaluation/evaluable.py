"""Which entries can be compared: one about which nothing is known is rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clara_eval.core.address import Address
from clara_eval.core.errors import CannotPublish, Temporary
from clara_eval.core.flags import Flag
from clara_eval.evaluation.features.extract import CANARY, UNEVALUABLE, UNREAD
from clara_eval.evaluation.features.features import SubmissionFacts
from clara_eval.submissions.model import Rejected, Solution


def unevaluable(solutions: Sequence[Solution], features: Mapping[Address, SubmissionFacts]) -> tuple[Rejected, ...]:
    found = [(solution, features[solution.submission.submitter]) for solution in solutions]
    if found and all(_is_empty(facts) or _failure(facts) for _, facts in found):
        raise _nothing([facts for _, facts in found])
    return tuple(_rejection(solution, facts) for solution, facts in found if _is_empty(facts))


def _is_empty(facts: SubmissionFacts) -> bool:
    return all(value is None for _, value in facts.vector.values)


def _failure(facts: SubmissionFacts) -> Flag | None:
    return next((flag for flag in facts.flags if flag.code in {UNREAD, UNEVALUABLE, CANARY}), None)


def _nothing(all_facts: Sequence[SubmissionFacts]) -> Temporary | CannotPublish:
    failures = [flag for facts in all_facts if (flag := _failure(facts)) is not None]
    unread = next((flag for flag in failures if flag.code == UNREAD), None)
    if unread is not None:
        return Temporary(f"No submission could be read. The first: {unread.sentence}")
    said = f"The first: {failures[0].sentence}" if failures else "Every judged feature is unknown for every submission."
    return CannotPublish(
        f"Reading the {len(all_facts)} submissions gave no facts to compare, so nobody is ranked. {said}",
        remedy="Evaluate it anew with another model (`evaluate --restart`), or let the poster post scores.",
    )


def _rejection(solution: Solution, facts: SubmissionFacts) -> Rejected:
    failure = _failure(facts)
    reason = failure.sentence if failure else "Every judged feature is unknown."
    return Rejected(solution.submission, UNEVALUABLE, reason, failure is not None and failure.code == UNREAD)
