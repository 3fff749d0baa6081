"""What is posted when nobody decides a review, and when: one table (review_defaults.md) for code and pages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from importlib.resources import files
from itertools import accumulate
from typing import NamedTuple

from clara_eval.core.address import Address
from clara_eval.core.flags import Flag
from clara_eval.core.submission import Placed
from clara_eval.evaluation.review_rules import JudgedRound, round_flags
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


class ReviewDefault(NamedTuple):
    then: Then
    moment: Moment


def _read_table() -> Iterator[tuple[str, ReviewDefault]]:
    for line in TABLE.splitlines()[2:]:
        codes, _cause, then, _why, moment = line.strip("| ").split(" | ")
        for code in re.findall(r"`(\w+)`", codes):
            yield code, ReviewDefault(Then(then), Moment(moment))


TABLE = files(__package__).joinpath("review_defaults.md").read_text(encoding="utf-8")
DEFAULTS = dict(_read_table())
SIGNS = frozenset({"views_disagree", "claim_gap", "unsupported_claim", "invisible_characters"})
"""Flags about an entry's own text: with them, claims that stand out are not believed unseen."""
GAVE_WAY = "gave_way"
HIGHEST_SCORE = 10_000  # the largest score of an entry (`ranking.elo.score`)


def default_of(code: str) -> ReviewDefault:
    """The row for a reason; one that is not listed is posted as ranked, so that it never holds a round."""
    return DEFAULTS.get(code, ReviewDefault(Then.STAYS, Moment.HALF))


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
    late = [replace(placed, score=min(placed.score, low)) for placed, low in zip(late, scores, strict=False)]
    last = sorted(rejected, key=lambda r: by_default and not r.is_outage)
    return (*first, *late, *(Placed(r.submission.submitter, 0) for r in last))


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
