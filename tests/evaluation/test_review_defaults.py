"""What is posted when nobody decides: nobody gains by a flag, no rival moves the leader, no reason holds a round."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.large_round import large_challenge, round_of_large
from tests.support.winners import account, challenge

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.model import Flag, Submission
from clara_eval.evaluation.features.extract import SubmissionFacts
from clara_eval.evaluation.play import Comparison
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.review_rules import (
    CALIBRATION,
    DEFAULTS,
    OBJECTION,
    PRIZE,
    TABLE,
    Then,
    default_moment,
    default_of,
    find_giving_way,
    place,
)
from clara_eval.evaluation.round import Window
from clara_eval.evaluation.sources import Received, SubmissionResult
from clara_eval.judge.comparison import JudgeVector
from clara_eval.ranking import rank, tally
from clara_eval.submissions.copies import Likeness, Similar
from clara_eval.submissions.model import Rejected, Solution

SRC = Path(__file__).parents[2] / "src" / "clara_eval"
DOCS = Path(__file__).parents[2] / "docs"
HOUR = 3600


def facts(*codes: str, second_view: str = "read") -> SubmissionFacts:
    flags = tuple(Flag(code, "review", "why") for code in codes)
    return SubmissionFacts(JudgeVector(()), {}, {}, {}, flags, second_view=second_view)  # type: ignore[arg-type]


def solution(number: int, *, pinned: bool = True) -> Solution:
    who = Submission(account(number), number, "https://x.example", "0x", number, 1)
    return Solution(who, b"", "", "", "0x", "0x", "content", pinned=pinned, language=None)


def like(earlier: int, later: int, *, contested: bool = False) -> Similar:
    return Similar(account(earlier), account(later), "renamed", 0.9, contested)


def a_round(
    flagged: dict[int, SubmissionFacts] | None = None,
    likeness: Likeness | None = None,
    unpinned: tuple[int, ...] = (),
    rejected: tuple[Rejected, ...] = (),
) -> EvaluationResult:
    """Six entries ranked by number, two of them paid, and those that were not judged."""
    names = [str(account(number)) for number in range(6)]
    played = [Comparison(a, b, "j", "first", None, "", ()) for n, a in enumerate(names) for b in names[n + 1 :]]
    table_of = tally(names, [one.result for one in played])
    ranking = rank(table_of, seed=b"", winner_count=2, payout_bps=(6000, 4000))
    given = round_of_large(large_challenge(8))
    works = [solution(number, pinned=number not in unpinned) for number in range(6)]
    return EvaluationResult(
        given=replace(given, winner_count=2, submissions=challenge(8, (6000, 4000)).submissions),
        schema=FeatureSchema(()),
        typed_by_model=(),
        prompts={},
        rulings=(),
        pieces=tuple(SubmissionResult(one.submission, Received(None), one) for one in works),
        likeness=likeness or Likeness((), {}),
        rejected=rejected,
        execution=None,
        features={account(number): (flagged or {}).get(number, facts()) for number in range(6)},
        answers={},
        unanswered={},
        key_reports=(),
        schedule="",
        schedule_reason="",
        comparisons=played,
        ranking=ranking,
    )


def paid(found: EvaluationResult) -> list[int]:
    """Who is paid by default."""
    order = place(found.ranking, found.rejected, find_giving_way(found), by_default=True)
    return [int(one.account, 16) for one in order[:2]]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (a_round(), [0, 1]),
        (a_round({0: facts("speaks_to_judge")}), [1, 2]),
        (a_round({0: facts("canary"), 1: facts("canary")}), [0, 1]),
        (a_round({0: facts("all_best")}), [0, 1]),
        (a_round({0: facts("claims_stand_out"), 1: facts("outlier")}), [0, 1]),
        (a_round({0: facts("all_best", "views_disagree")}), [1, 2]),
        (a_round({0: facts("nearly_all_best", "claim_gap")}), [1, 2]),
        (a_round({0: facts("views_disagree", "claim_gap", "unsupported_claim")}), [0, 1]),
        (a_round({0: facts("no_second_view", second_view="none")}), [0, 1]),
        (a_round({0: facts("no_second_view", second_view="missing")}), [1, 2]),
        (a_round(unpinned=(0, 1)), [2, 3]),
        (a_round(unpinned=(0, 1, 2, 3, 4, 5)), [0, 1]),
        (a_round({n: facts("speaks_to_judge") for n in (0, 2, 3, 4, 5)}), [1, 0]),
        (a_round(likeness=Likeness((), similar=(like(4, 0),))), [1, 2]),
        (a_round(likeness=Likeness((), similar=(like(0, 4),))), [0, 1]),
        (a_round(likeness=Likeness((), similar=(like(0, 1), like(1, 2)))), [0, 3]),
        (a_round(likeness=Likeness((), similar=(like(0, 1, contested=True),))), [0, 2]),
        (a_round(likeness=Likeness((), taken=((account(0), account(4)),))), [1, 2]),
        (a_round(likeness=Likeness((), dict.fromkeys([account(0), account(1)], account(0)))), [0, 2]),
        (a_round(likeness=Likeness((), dict.fromkeys([account(0), account(1)], account(1)))), [1, 2]),
        (a_round({0: facts("a_flag_of_tomorrow")}), [0, 1]),
    ],
)
def test_who_is_paid_if_nobody_decides(found: EvaluationResult, expected: list[int]) -> None:
    """An entry gives way for its own doing; for what rivals can cause, and for what counts low already, it stays."""
    assert paid(found) == expected
    scores = [one.score for one in place(found.ranking, found.rejected, find_giving_way(found), by_default=True)]
    assert scores == sorted(scores, reverse=True), "the guard of the post refuses winners that are not in order"


def test_who_could_not_be_read_comes_before_junk() -> None:
    """Where fewer are judged than paid, an outage that may be ours is not behind what was refused."""
    junk, missing = (Rejected(solution(n).submission, "x", "", is_outage=n == 7) for n in (6, 7))
    found = replace(a_round(rejected=(junk, missing)), ranking=None)
    assert [int(one.account, 16) for one in place(None, found.rejected, by_default=True)] == [7, 6]
    assert [int(one.account, 16) for one in place(None, found.rejected)] == [6, 7]


def test_every_reason_that_holds_a_post_has_its_row() -> None:
    """No flag of severity review is raised whose default is not stated, and only the prize and the judge have none."""
    raised = {
        code
        for path in SRC.rglob("*.py")
        if "test_" not in path.name
        for code, severity in re.findall(r'Flag\(\s*"(\w+)",\s*("review[^,]*),', path.read_text())
        if severity
    }
    assert len(raised) > 10
    assert raised - DEFAULTS.keys() == set()
    without = {code for code in (*raised, PRIZE, CALIBRATION, OBJECTION) if default_of(code).then is Then.PERSON}
    assert without == {PRIZE, CALIBRATION}


def test_the_documents_have_the_table() -> None:
    """What operators read is what the code does."""
    assert TABLE in (DOCS / "operations.md").read_text()


@pytest.mark.parametrize(
    ("codes", "requested", "expected"),
    [
        (["outage_verdict"], 5, 12 * HOUR),
        (["unread"], 5, 12 * HOUR),
        (["unpinned"], 5, 84 * HOUR),
        (["outage_verdict", "unpinned"], 5, 84 * HOUR),
        (["cycles"], 100 * HOUR, 106 * HOUR),
        (["cycles"], 150 * HOUR, int(0.9 * 168 * HOUR)),
        (["cycles"], 167 * HOUR, int(0.9 * 168 * HOUR)),
        ([OBJECTION], 5, int(0.9 * 168 * HOUR)),
        ([PRIZE, "unpinned"], 5, None),
        ([CALIBRATION], 5, None),
    ],
)
def test_when_the_default_is_posted(codes: list[str], requested: int, expected: int | None) -> None:
    """A quarter or half of the window, with some notice, and never in its last tenth; the prize waits for a person."""
    assert default_moment(Window(0, 168 * HOUR, 0), codes, requested) == expected


def test_no_address_is_placed_twice() -> None:
    """Whoever gives way is there once, behind the others."""
    order = place(a_round().ranking, (), [account(0), Address("0x" + "ff" * 20)], by_default=True)
    assert [int(one.account, 16) for one in order] == [1, 2, 3, 4, 5, 0]
