"""Doubt in money: a person decides above both limits, and the default posts as ranked if nobody does."""

from __future__ import annotations

import pytest

from clara_eval.evaluation.review_rules import DOUBT, Moment, ReviewTerms, Then, default_of, review_reasons
from clara_eval.evaluation.round import Ruling


def reasons(prize: float | None, misplaced: float, limit: float | None = 50.0) -> list[str]:
    terms = ReviewTerms(prize, None, misplaced, limit)
    return [reason.sentence for reason in review_reasons((), (), terms) if reason.code == DOUBT]


@pytest.mark.parametrize(
    ("prize", "misplaced", "waits"),
    [(100.0, 0.6, True), (100.0, 0.4, False), (5000.0, 0.19, False), (5000.0, 0.21, True), (None, 0.9, False)],
)
def test_a_person_decides_above_both_limits(prize: float | None, misplaced: float, waits: bool) -> None:
    """More than fifty dollars and more than a fifth of the prize at wrong addresses wait; less is posted."""
    assert bool(reasons(prize, misplaced)) == waits


def test_the_sentence_names_amount_share_and_limits() -> None:
    """A person reads how much is in doubt, and why it waits; without a limit nothing waits."""
    assert reasons(500.0, 0.3) == [
        "By this judge, $150.00 of the prize (30 %) is expected at wrong addresses, more than $50.00 and 20 %."
    ]
    assert reasons(500.0, 0.3, None) == []


def test_doubt_is_posted_as_ranked_if_nobody_decides() -> None:
    """The table of defaults has a row for it, and after the clock ruled it is no reason any more."""
    assert (default_of(DOUBT).then, default_of(DOUBT).moment) == (Then.STAYS, Moment.HALF)
    by_clock = Ruling("default", "0x" + "ab" * 32, 1)
    assert review_reasons((), (by_clock,), ReviewTerms(500.0, None, 0.9, 50.0)) == []
