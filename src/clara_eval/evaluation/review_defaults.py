"""What is posted when nobody decides a review, and when: one table for the code, the documents and the messages.

Invariant: whatever an entry can cause has a default, so no entry keeps a round from being posted; an entry gives way
only for what it did itself, so rivals move nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

from clara_eval.core.address import Address
from clara_eval.core.flags import Flag
from clara_eval.core.submission import Placed
from clara_eval.evaluation.features.extract import CANARY, UNEVALUABLE, UNREAD
from clara_eval.evaluation.review_rules import CALIBRATION, DOUBT, OBJECTION, PRIZE, JudgedRound, round_flags
from clara_eval.evaluation.scoring_window import (
    LAST_SHARE,
    NOTICE_SECONDS,
    NOTICE_SHARE,
    UNREAD_SECONDS,
    UNREAD_SHARE,
    Window,
)
from clara_eval.ranking import Ranking
from clara_eval.submissions.model import Rejected


class Then(StrEnum):
    STAYS = "posted as ranked"
    GIVES_WAY = "it gives way"
    LATER_GIVES_WAY = "the later one gives way"
    WITH_A_SIGN = "posted as ranked; with a sign of trying it gives way"
    PERSON = "nothing is posted"


class Moment(StrEnum):
    QUARTER = "after a quarter of the scoring window, at most 12 hours"
    HALF = "after half of the scoring window"
    LAST = "when a tenth of the scoring window is left"
    NEVER = "never: only a person can"


@dataclass(frozen=True, slots=True)
class ReviewDefault:
    codes: tuple[str, ...]
    cause: str
    then: Then
    why: str
    moment: Moment = Moment.HALF


SIGNS = frozenset({"views_disagree", "claim_gap", "unsupported_claim", "invisible_characters"})
"""Flags about an entry's own text: with them, claims that stand out are not believed unseen. Code that cannot be read
without its comments and strings is such a sign, too.
"""
DEFAULTS = (
    ReviewDefault(
        (PRIZE,),
        "the poster's prize",
        Then.PERSON,
        "from CLARA_REVIEW_ABOVE_USD on a person approves every result",
        Moment.NEVER,
    ),
    ReviewDefault(
        (CALIBRATION,),
        "the operator's judge",
        Then.PERSON,
        "CLARA_CALIBRATION asks for a person where the judge agrees too little with people",
        Moment.NEVER,
    ),
    ReviewDefault(
        (DOUBT,),
        "the judge's verdicts",
        Then.STAYS,
        "the ranking is the best that is known; CLARA_REVIEW_DOUBT_USD and CLARA_REVIEW_DOUBT_SHARE are the limits",
    ),
    ReviewDefault((OBJECTION,), "a submitter", Then.STAYS, "the announced draft is posted", Moment.LAST),
    ReviewDefault(
        ("outage_verdict", UNREAD),
        "an entry's host, a gateway or a model",
        Then.STAYS,
        "without what could not be read; it is tried again until then",
        Moment.QUARTER,
    ),
    ReviewDefault(
        ("contested_copy",),
        "a rival who hands in the work of another",
        Then.STAYS,
        "whom the chain shows first with this content stays the original",
    ),
    ReviewDefault(
        ("similar_work", "earlier_author"),
        "the entry",
        Then.GIVES_WAY,
        "it is the later of the two",
    ),
    ReviewDefault(
        ("family_paid_twice",),
        "one hand with several entries, or similar work",
        Then.LATER_GIVES_WAY,
        "one work has one paid place, and the earliest of the family keeps it",
    ),
    ReviewDefault(("unpinned",), "the entry", Then.GIVES_WAY, "its content may have been put there after the deadline"),
    ReviewDefault(
        ("speaks_to_judge", CANARY), "the entry", Then.GIVES_WAY, "its own text speaks to the model that reads it"
    ),
    ReviewDefault(
        ("all_best", "nearly_all_best", "claims_stand_out", "outlier", "no_second_view"),
        "the entry, or rivals who hand in others",
        Then.WITH_A_SIGN,
        "to differ from the others proves nothing, and rivals could cause it",
    ),
    ReviewDefault(
        ("views_disagree", "claim_gap", "unsupported_claim"),
        "the entry",
        Then.STAYS,
        "the lower or the measured value counts already",
    ),
    ReviewDefault(
        (UNEVALUABLE, "not_executed"),
        "the entry, or a machine",
        Then.STAYS,
        "what is unknown counts for nothing",
    ),
    ReviewDefault(
        ("paid_rejection",),
        "too few entries that can be judged",
        Then.STAYS,
        "the contract wants exactly winnerCount winners",
    ),
    ReviewDefault(
        ("undecided", "unplayed", "unconnected", "cycles", "swap", "position_bias", "pivotal_cluster"),
        "the judge, or how entries meet",
        Then.STAYS,
        "the ranking is the best that is known",
    ),
)
_BY_CODE = {code: row for row in DEFAULTS for code in row.codes}
_UNLISTED = ReviewDefault((), "an entry", Then.STAYS, "")
HIGHEST_SCORE = 10_000
"""The largest score of an entry (`ranking.elo.score`)."""


def default_of(code: str) -> ReviewDefault:
    """The row for a reason; one that is not listed is posted as ranked, so that it never holds a round."""
    return _BY_CODE.get(code, _UNLISTED)


def table() -> str:
    lines = [
        "| Why it waits | Caused by | If nobody decides | Because | Posted |",
        "|---|---|---|---|---|",
    ]
    for row in DEFAULTS:
        codes = ", ".join(f"`{code}`" for code in row.codes)
        lines.append(f"| {codes} | {row.cause} | {row.then.value} | {row.why} | {row.moment.value} |")
    return "\n".join(lines)


def default_moment(window: Window, codes: Iterable[str], requested_at: int) -> int | None:
    """When the default is posted, by the chain's clock; None if only a person can have it posted."""
    at = {
        Moment.QUARTER: window.deadline + min(int(UNREAD_SHARE * window.size), UNREAD_SECONDS),
        Moment.HALF: window.decided_until,
        Moment.LAST: window.moment_left(LAST_SHARE),
    }
    moments = {default_of(code).moment for code in codes}
    if Moment.NEVER in moments or not moments:
        return None
    notice = min(int(NOTICE_SHARE * window.size), NOTICE_SECONDS)
    return min(max(*(at[moment] for moment in moments), requested_at + notice), at[Moment.LAST])


def place(
    ranking: Ranking | None,
    rejected: Sequence[Rejected],
    behind: Collection[Address] = (),
    *,
    by_default: bool = False,
) -> tuple[Placed, ...]:
    """Ranked entries first, those who give way last among them; rejected ones follow with score 0.

    By default those that could not be read are the first of the rejected: it may be no fault of theirs.
    """
    ranked = [Placed(Address(s.item), s.score) for s in ranking.standings] if ranking else []
    first = [placed for placed in ranked if placed.account not in behind]
    # Posted winners are in order of their scores, also where one that gives way has to be paid.
    lowest = min((placed.score for placed in first), default=HIGHEST_SCORE)
    late = [placed for placed in ranked if placed.account in behind]
    scores = accumulate((placed.score for placed in late), min, initial=lowest)
    ranked = [
        *first,
        *(replace(placed, score=min(placed.score, low)) for placed, low in zip(late, scores, strict=False)),
    ]
    last = sorted(rejected, key=lambda r: by_default and not r.is_outage)
    return (*ranked, *(Placed(r.submission.submitter, 0) for r in last))


def giving_way(found: JudgedRound) -> dict[Address, str]:
    """Who gives way by default, each with the code of the flag, until no paid place can be taken by somebody clean."""
    behind: dict[Address, str] = {}
    while True:
        now = replace(found, placed=place(found.ranking, found.rejected, behind, by_default=True))
        moved = {
            account: flag.code
            for flag in reversed(round_flags(now))
            if flag.severity == "review"
            for account in _yielding(flag, now)
            if account in now.paid and account not in behind
        }
        if not moved:
            return behind
        behind |= moved


def _yielding(flag: Flag, found: JudgedRound) -> list[Address]:
    account = Address(flag.account) if flag.account else None
    if account is None:
        return []
    match default_of(flag.code).then:
        case Then.GIVES_WAY:
            return [account]
        case Then.LATER_GIVES_WAY:
            return _later_members(account, found)
        case Then.WITH_A_SIGN:
            facts = found.features.get(account)
            signs = facts is not None and (
                facts.second_view == "missing" or any(flag.code in SIGNS for flag in facts.flags)
            )
            return [account] if signs else []
        case Then.STAYS | Then.PERSON:
            return []


def _later_members(account: Address, found: JudgedRound) -> list[Address]:
    """The paid members of a family but the earliest."""
    families, times = found.likeness.families, {s.submitter: s.submitted_at for s in found.given.submissions}
    head = families.get(account)
    members = [one for one in found.paid if families.get(one) == head]
    return sorted(members, key=lambda one: (one != head, times[one], one))[1:]


def gave_way_flags(behind: dict[Address, str]) -> tuple[Flag, ...]:
    return tuple(
        Flag(
            GAVE_WAY,
            "warn",
            f"{account} gave way to the others on the paid places: nobody decided in time about the flag {code}.",
            account,
            {"flag": code},
        )
        for account, code in sorted(behind.items())
    )


GAVE_WAY = "gave_way"
