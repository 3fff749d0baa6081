"""Why a result is flagged (`RULES`) and reviewed before money moves; what is posted if nobody decides, and when."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from itertools import accumulate
from typing import NamedTuple

from clara_eval.core.address import Address
from clara_eval.core.flags import HARNESS_WITHHELD, Fact, Flag, Severity
from clara_eval.core.submission import Placed
from clara_eval.evaluation.execution import WITHHELD
from clara_eval.evaluation.features.extract import UNREAD
from clara_eval.evaluation.features.field import UNTOLD
from clara_eval.evaluation.play import OUTAGE_SHARE, without_verdict
from clara_eval.evaluation.ranking_flags import ranking_flags
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.round import Ruling, is_by_default
from clara_eval.evaluation.scoring_window import (
    LAST_SHARE,
    NOTICE_SECONDS,
    NOTICE_SHARE,
    UNREAD_SECONDS,
    UNREAD_SHARE,
    Window,
)
from clara_eval.ranking import Ranking
from clara_eval.submissions.copies import CONTESTED_SECONDS
from clara_eval.submissions.model import Rejected

UNJUDGED = "unjudged"
PRIZE, CALIBRATION, OBJECTION, DOUBT = "prize", "calibration", "objection", "doubt"
"""Reasons for a review that are no flags."""
UNDECIDED_REVIEW = 0.05
"""Shares of comparisons without a verdict: any is told, more than one in twenty waits for a person."""


def round_flags(found: EvaluationResult) -> tuple[Flag, ...]:
    return tuple(flag for rule in RULES for flag in rule(found))


def _withheld_harness(found: EvaluationResult) -> Iterator[Flag]:
    """The poster withheld the hidden harness, and so chose between two results."""
    chosen = found.execution.chosen if found.execution else None
    if chosen is not None and chosen.is_withheld:
        instead = "the public harness" if chosen.harness is not None else "no harness at all"
        told = f"{WITHHELD} The entries were measured with {instead}: the poster alone could choose that."
        evidence: dict[str, Fact] = {"privateSetHash": found.given.private_set_hash.lower(), "harness": chosen.kind}
        yield Flag(HARNESS_WITHHELD, "warn", told, evidence=evidence)


def _rejections(found: EvaluationResult) -> Iterator[Flag]:
    """Rejected entries that are paid all the same; and outages, which may be ours: what was not read might have won."""
    for refused in found.rejected:
        account = refused.submission.submitter
        if account in found.paid:
            told = f"{account} stands on a paid place although its submission was rejected ({refused.code}): there are "
            told += "fewer judged submissions than winners, and the contract wants exactly winnerCount."
            yield Flag("paid_rejection", "review", told, account, {"rejection": refused.code})
    for refused in found.rejected:
        if refused.is_outage:
            account = refused.submission.submitter
            told = f"{account} could not be read, which may be no fault of its own: {refused.reason}"
            yield Flag("outage_verdict", "review", told, account, {"rejection": refused.code})


def _contested_copies(found: EvaluationResult) -> Iterator[Flag]:
    """Works whose author the chain does not show: the earlier one counts."""
    clusters = [one.original.submission.submitter for one in found.likeness.clusters if one.contested]
    pairs = [pair.earlier for pair in found.likeness.similar if pair.contested]
    for account in dict.fromkeys((*clusters, *pairs)):
        if account in found.near_money:
            told = (
                f"{account} counts as the author of a work that another one repeats, but the other one was sent within "
                f"{CONTESTED_SECONDS} seconds, was resubmitted later, or was first at an address whose content can "
                "change, and may be the older one."
            )
            yield Flag("contested_copy", "review", told, account)


def _similar_work(found: EvaluationResult) -> Iterator[Flag]:
    """Ranked entries that resemble, or repeat, an earlier one; the later one on a paid place waits."""
    severity: Severity
    for pair in found.likeness.similar:
        evidence = {"share": pair.share, "kind": pair.kind, "contested": pair.contested}
        severity = "review" if pair.later in found.paid else "warn"
        yield Flag("similar_work", severity, pair.sentence, pair.later, {"other": pair.earlier, **evidence})
        yield Flag("similar_work", "info", pair.sentence, pair.earlier, {"other": pair.later, **evidence})
    for account, author in found.likeness.taken:
        severity = "review" if account in found.near_money else "warn"
        sentence = f"{account}: {author} handed in these very bytes first, and replaced them later."
        yield Flag("earlier_author", severity, sentence, account, {"other": author})


def _paid_families(found: EvaluationResult) -> Iterator[Flag]:
    """Two paid members of a family may be one work."""
    paid: dict[Address, list[Address]] = {}
    for place in found.placed[: found.given.winner_count]:
        if (head := found.likeness.families.get(place.account)) is not None:
            paid.setdefault(head, []).append(place.account)
    for members in paid.values():
        if len(members) > 1:
            told = (
                f"{', '.join(members)} are on paid places and are similar, or were sent for one agent: they may be one "
                "work."
            )
            yield Flag("family_paid_twice", "review", told, members[0], {"members": len(members)})


def _unpinned(found: EvaluationResult) -> Iterator[Flag]:
    """The content at a mutable address may be newer than the deadline."""
    for piece in found.pieces:
        account = piece.submission.submitter
        if piece.is_loose and account in found.features and account in found.near_money:
            told = (
                f"{account} stands near a paid place, but the chain's hash covers only the address of its submission: "
                "the content may have been put there after the deadline."
            )
            yield Flag("unpinned", "review", told, account)


def _submissions(found: EvaluationResult) -> Iterator[Flag]:
    """What was noticed while reading each submission; far from the money it is no reason to wait."""
    for account, facts in sorted(found.features.items()):
        for flag in facts.flags:
            could_be_paid = account in found.near_money or flag.code == UNREAD
            far = flag.severity == "review" and not could_be_paid
            named = replace(flag, sentence=f"{account}: {flag.sentence}", account=account)
            yield replace(named, severity="warn") if far else named


def _paid_for_claims(found: EvaluationResult) -> Iterator[Flag]:
    """Paid for what only a model says, while others claim as much; a person could not tell them apart."""
    held = sorted(
        account for account in found.paid & found.features.keys()
        if any(flag.code == UNTOLD for flag in found.features[account].flags)
    )  # fmt: skip
    if held:
        told = f"{', '.join(held)} would be paid for what only a model can tell, nearly the best there is, and others "
        told += "claim as much: the field cannot tell who claims too much."
        yield Flag("paid_for_claims", "warn", told, evidence={"entries": len(held)})


def _undecided(found: EvaluationResult) -> Iterator[Flag]:
    asked = len(found.comparisons)
    missing = asked - (found.ranking.results if found.ranking else 0)
    if missing:
        share, lost = missing / asked, len(without_verdict(found.comparisons))
        code = UNJUDGED if lost > OUTAGE_SHARE * (lost + asked - missing) else "undecided"
        severity: Severity = "review" if share > UNDECIDED_REVIEW else "warn"
        told = f"{missing} of {asked} comparisons ({100 * share:.1f} %) have no verdict; they count for nobody."
        yield Flag(code, severity, told, evidence={"undecided": missing, "comparisons": asked})


def misplaced_money(ranking: Ranking, prize_usd: float | None = None) -> str:
    """How much of the prize is expected at wrong addresses, and how few verdicts decide; without a full stop."""
    share, count = f"{100 * ranking.misallocation:.0f} %", ranking.deciding_verdicts
    amount = share if prize_usd is None else f"${ranking.misallocation * prize_usd:,.2f} ({share})"
    decides = "" if count is None else f"; {count} verdict{'s decide' if count > 1 else ' decides'} who is paid"
    return f"By this judge, {amount} of the prize is expected at wrong addresses{decides}"


def _ranking(found: EvaluationResult) -> Iterator[Flag]:
    ranking = found.ranking
    if ranking is None:
        return
    if ranking.misallocation:
        evidence = {"share": round(ranking.misallocation, 2), "verdicts": ranking.deciding_verdicts}
        yield Flag("misplaced_money", "info", f"{misplaced_money(ranking)}.", evidence=evidence)
    yield from ranking_flags(ranking, by_arrival=True)


RULES = (
    _withheld_harness,
    _rejections,
    _contested_copies,
    _similar_work,
    _paid_families,
    _unpinned,
    _submissions,
    _paid_for_claims,
    _undecided,
    _ranking,
)


@dataclass(frozen=True, slots=True)
class ReviewTerms:
    """What the venue knows beside the result that may ask for a person."""

    prize_usd: float | None  # None if the worth is not known
    review_above_usd: float | None  # None never asks because of the prize
    misplaced: float = 0.0  # share of the prize expected at wrong addresses
    doubt_usd: float | None = None
    """A person decides if more than this, and than `doubt_share`, is misplaced; None never asks because of it."""
    doubt_share: float = 0.2
    uncalibrated: str | None = None  # why the judges may not decide alone
    objections: tuple[str, ...] = ()  # objections that only a person can decide, one sentence each


def review_reasons(flags: Sequence[Flag], rulings: Sequence[Ruling], terms: ReviewTerms) -> list[Flag]:
    """Every reason why a person looks; flags are none after the clock ruled about them."""
    reasons: list[Flag] = []
    limit, worth = terms.review_above_usd, terms.prize_usd
    if limit is not None and (worth is None or worth >= limit):
        shown = "of unknown worth" if worth is None else f"of ${worth:,.2f}"
        told = f"The prize {shown} is not below ${limit:,.2f}, so a person approves it."
        reasons.append(Flag(PRIZE, "review", told))
    is_ruled = is_by_default(rulings)
    reasons += [flag for flag in flags if flag.severity == "review" and (flag.code == UNJUDGED or not is_ruled)]
    if not is_ruled and (doubt := _doubt(terms)):
        reasons.append(Flag(DOUBT, "review", doubt))
    if terms.uncalibrated is not None:
        reasons.append(Flag(CALIBRATION, "review", terms.uncalibrated))
    return reasons + [Flag(OBJECTION, "review", sentence) for sentence in terms.objections]


def _doubt(terms: ReviewTerms) -> str:
    """Why a person decides about misplaced money; empty if it is below the limits."""
    usd, limit = terms.misplaced * (terms.prize_usd or 0.0), terms.doubt_usd
    if limit is None or usd <= limit or terms.misplaced <= terms.doubt_share:
        return ""
    most = f"${limit:,.2f} and {100 * terms.doubt_share:.0f} %"
    share = f"{100 * terms.misplaced:.0f} %"
    return f"By this judge, ${usd:,.2f} of the prize ({share}) is expected at wrong addresses, more than {most}."


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
    ranking: Ranking | None, rejected: Sequence[Rejected], behind: Collection[Address] = (), *, by_default: bool = False
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


def giving_way(found: EvaluationResult) -> dict[Address, str]:
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


def _yielding(flag: Flag, found: EvaluationResult) -> list[Address]:
    if flag.account is None:
        return []
    account, then = Address(flag.account), default_of(flag.code).then
    if then is Then.LATER_GIVES_WAY:
        families, times = found.likeness.families, {s.submitter: s.submitted_at for s in found.given.submissions}
        head = families.get(account)
        members = [one for one in found.paid if families.get(one) == head]
        return sorted(members, key=lambda one: (one != head, times[one], one))[1:]
    facts = found.features.get(account) if then is Then.WITH_A_SIGN else None
    has_sign = facts is not None and (facts.second_view == "missing" or any(one.code in SIGNS for one in facts.flags))
    return [account] if has_sign or then is Then.GIVES_WAY else []


def gave_way_flags(behind: dict[Address, str]) -> Iterator[Flag]:
    for account, code in sorted(behind.items()):
        told = f"{account} gave way to the others on the paid places: nobody decided in time about the flag {code}."
        yield Flag(GAVE_WAY, "warn", told, account, {"flag": code})
