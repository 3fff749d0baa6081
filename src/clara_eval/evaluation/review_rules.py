"""Why a result is flagged (one function in `RULES` a flag), and why a person looks at it before money moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from clara_eval.core.address import Address
from clara_eval.core.flags import HARNESS_WITHHELD, Flag, Severity
from clara_eval.core.submission import Placed
from clara_eval.evaluation.execution import WITHHELD, ChosenHarness
from clara_eval.evaluation.features.extract import UNREAD, SubmissionFacts
from clara_eval.evaluation.features.field import UNTOLD
from clara_eval.evaluation.play import OUTAGE_SHARE, Comparison, without_verdict
from clara_eval.evaluation.ranking_flags import ranking_flags
from clara_eval.evaluation.round import Round, Ruling, is_by_default
from clara_eval.ranking import Ranking
from clara_eval.submissions.copies import CONTESTED_SECONDS, Likeness
from clara_eval.submissions.model import Rejected, Solution

UNJUDGED = "unjudged"
PRIZE, CALIBRATION, OBJECTION, DOUBT = "prize", "calibration", "objection", "doubt"
"""Reasons for a review that are no flags."""
UNDECIDED_REVIEW = 0.05
"""Shares of comparisons without a verdict: any is told, more than one in twenty waits for a person."""


@dataclass(frozen=True, slots=True)
class JudgedRound:
    given: Round
    ranking: Ranking | None
    placed: Sequence[Placed]
    rejected: Sequence[Rejected]
    solutions: Sequence[Solution]
    likeness: Likeness
    features: Mapping[Address, SubmissionFacts]
    comparisons: Sequence[Comparison]
    harness: ChosenHarness | None = None  # the one that was run; None where the config has none

    @property
    def paid(self) -> set[Address]:
        return {place.account for place in self.placed[: self.given.winner_count]}

    @property
    def near_money(self) -> set[Address]:
        return {place.account for place in self.placed[: self.given.winner_count + 1]}


def round_flags(found: JudgedRound) -> tuple[Flag, ...]:
    return tuple(flag for rule in RULES for flag in rule(found))


def _withheld_harness(found: JudgedRound) -> Iterator[Flag]:
    """The poster withheld the hidden harness, and so chose between two results."""
    chosen = found.harness
    if chosen is None or chosen.reveal is None or chosen.reveal.content is not None:
        return
    instead = "the public harness" if chosen.harness is not None else "no harness at all"
    yield Flag(
        HARNESS_WITHHELD,
        "warn",
        f"{WITHHELD} The entries were measured with {instead}: the poster alone could choose that.",
        evidence={"privateSetHash": found.given.private_set_hash.lower(), "harness": chosen.kind},
    )


def _paid_rejections(found: JudgedRound) -> Iterator[Flag]:
    for refused in found.rejected:
        account = refused.submission.submitter
        if account in found.paid:
            told = f"{account} stands on a paid place although its submission was rejected ({refused.code}): there are "
            told += "fewer judged submissions than winners, and the contract wants exactly winnerCount."
            yield Flag("paid_rejection", "review", told, account, {"rejection": refused.code})


def _outages(found: JudgedRound) -> Iterator[Flag]:
    """What could not be read might have won: an outage may be ours."""
    for refused in found.rejected:
        if refused.is_outage:
            account = refused.submission.submitter
            told = f"{account} could not be read, which may be no fault of its own: {refused.reason}"
            yield Flag("outage_verdict", "review", told, account, {"rejection": refused.code})


def _contested_copies(found: JudgedRound) -> Iterator[Flag]:
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


def _similar_work(found: JudgedRound) -> Iterator[Flag]:
    """Ranked entries that resemble an earlier one; the later one on a paid place waits."""
    for pair in found.likeness.similar:
        evidence = {"share": pair.share, "kind": pair.kind, "contested": pair.contested}
        severity: Severity = "review" if pair.later in found.paid else "warn"
        yield Flag("similar_work", severity, pair.sentence, pair.later, {"other": pair.earlier, **evidence})
        yield Flag("similar_work", "info", pair.sentence, pair.earlier, {"other": pair.later, **evidence})


def _earlier_authors(found: JudgedRound) -> Iterator[Flag]:
    for account, author in found.likeness.taken:
        severity: Severity = "review" if account in found.near_money else "warn"
        sentence = f"{account}: {author} handed in these very bytes first, and replaced them later."
        yield Flag("earlier_author", severity, sentence, account, {"other": author})


def _paid_families(found: JudgedRound) -> Iterator[Flag]:
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


def _unpinned(found: JudgedRound) -> Iterator[Flag]:
    """The content at a mutable address may be newer than the deadline."""
    for solution in found.solutions:
        account = solution.submission.submitter
        if not solution.pinned and account in found.near_money:
            told = (
                f"{account} stands near a paid place, but the chain's hash covers only the address of its submission: "
                "the content may have been put there after the deadline."
            )
            yield Flag("unpinned", "review", told, account)


def _submissions(found: JudgedRound) -> Iterator[Flag]:
    """What was noticed while reading each submission; far from the money it is no reason to wait."""
    for account, facts in sorted(found.features.items()):
        for flag in facts.flags:
            could_be_paid = account in found.near_money or flag.code == UNREAD
            far = flag.severity == "review" and not could_be_paid
            named = replace(flag, sentence=f"{account}: {flag.sentence}", account=account)
            yield replace(named, severity="warn") if far else named


def _paid_for_claims(found: JudgedRound) -> Iterator[Flag]:
    """Paid for what only a model says, while others claim as much; a person could not tell them apart."""
    held = sorted(
        account for account in found.paid & found.features.keys()
        if any(flag.code == UNTOLD for flag in found.features[account].flags)
    )  # fmt: skip
    if held:
        told = f"{', '.join(held)} would be paid for what only a model can tell, nearly the best there is, and others "
        told += "claim as much: the field cannot tell who claims too much."
        yield Flag("paid_for_claims", "warn", told, evidence={"entries": len(held)})


def _undecided(found: JudgedRound) -> Iterator[Flag]:
    asked = len(found.comparisons)
    missing = asked - (found.ranking.results if found.ranking else 0)
    if missing:
        share, lost = missing / asked, len(without_verdict(found.comparisons))
        yield Flag(
            UNJUDGED if lost > OUTAGE_SHARE * (lost + asked - missing) else "undecided",
            "review" if share > UNDECIDED_REVIEW else "warn",
            f"{missing} of {asked} comparisons ({100 * share:.1f} %) have no verdict; they count for nobody.",
            evidence={"undecided": missing, "comparisons": asked},
        )


def _misplaced_money(found: JudgedRound) -> Iterator[Flag]:
    ranking = found.ranking
    if ranking is not None and ranking.misallocation:
        evidence = {"share": round(ranking.misallocation, 2), "verdicts": ranking.deciding_verdicts}
        yield Flag("misplaced_money", "info", f"{misplaced_money(ranking)}.", evidence=evidence)


def misplaced_money(ranking: Ranking, prize_usd: float | None = None) -> str:
    """How much of the prize is expected at wrong addresses, and how few verdicts decide; without a full stop."""
    share, count = f"{100 * ranking.misallocation:.0f} %", ranking.deciding_verdicts
    amount = share if prize_usd is None else f"${ranking.misallocation * prize_usd:,.2f} ({share})"
    decides = "" if count is None else f"; {count} verdict{'s decide' if count > 1 else ' decides'} who is paid"
    return f"By this judge, {amount} of the prize is expected at wrong addresses{decides}"


def _ranking(found: JudgedRound) -> Iterator[Flag]:
    if found.ranking is not None:
        yield from ranking_flags(found.ranking, by_arrival=True)


RULES = (
    _withheld_harness,
    _paid_rejections,
    _outages,
    _contested_copies,
    _similar_work,
    _earlier_authors,
    _paid_families,
    _unpinned,
    _submissions,
    _paid_for_claims,
    _undecided,
    _misplaced_money,
    _ranking,
)


@dataclass(frozen=True, slots=True)
class ReviewReason:
    code: str
    sentence: str


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


def review_reasons(flags: Sequence[Flag], rulings: Sequence[Ruling], terms: ReviewTerms) -> list[ReviewReason]:
    """Every reason why a person looks; flags are none after the clock ruled about them."""
    reasons = []
    limit, worth = terms.review_above_usd, terms.prize_usd
    if limit is not None and (worth is None or worth >= limit):
        shown = "of unknown worth" if worth is None else f"of ${worth:,.2f}"
        told = f"The prize {shown} is not below ${limit:,.2f}, so a person approves it."
        reasons.append(ReviewReason(PRIZE, told))
    is_ruled = is_by_default(rulings)
    reasons += [
        ReviewReason(flag.code, flag.sentence)
        for flag in flags
        if flag.severity == "review" and (flag.code == UNJUDGED or not is_ruled)
    ]
    if not is_ruled:
        reasons += [ReviewReason(DOUBT, doubt)] if (doubt := _doubt(terms)) else []
    if terms.uncalibrated is not None:
        reasons.append(ReviewReason(CALIBRATION, terms.uncalibrated))
    return reasons + [ReviewReason(OBJECTION, sentence) for sentence in terms.objections]


def _doubt(terms: ReviewTerms) -> str:
    """Why a person decides about misplaced money; empty if it is below the limits."""
    usd, limit = terms.misplaced * (terms.prize_usd or 0.0), terms.doubt_usd
    if limit is None or usd <= limit or terms.misplaced <= terms.doubt_share:
        return ""
    most = f"${limit:,.2f} and {100 * terms.doubt_share:.0f} %"
    share = f"{100 * terms.misplaced:.0f} %"
    return f"By this judge, ${usd:,.2f} of the prize ({share}) is expected at wrong addresses, more than {most}."
