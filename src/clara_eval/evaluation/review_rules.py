"""Why a result is flagged (`RULES`) and reviewed before money moves; what is posted if nobody decides, and when."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from clara_eval.core.address import Address
from clara_eval.core.model import HARNESS_WITHHELD, Fact, Flag, Placed, Severity
from clara_eval.evaluation.execution import WITHHELD
from clara_eval.evaluation.features.extract import UNREAD
from clara_eval.evaluation.features.field import UNTOLD
from clara_eval.evaluation.play import OUTAGE_SHARE, without_verdict
from clara_eval.evaluation.round import LAST_SHARE, Ruling, Window, is_by_default
from clara_eval.ranking import Ranking
from clara_eval.ranking.chances import TOSS_UP, PayMargin
from clara_eval.ranking.consistency import ConsistencyReport, JudgeReport
from clara_eval.submissions.copies import CONTESTED_SECONDS
from clara_eval.submissions.model import Rejected

if TYPE_CHECKING:
    from clara_eval.evaluation.result import EvaluationResult

CYCLES_WARN, CYCLES_REVIEW = 0.13, 0.18  # a third and more of the way from an 80 % judge to a coin
SWAP_WARN, SWAP_REVIEW = 0.50, 0.40  # two verdicts by lot agree in a third
BIAS_WARN, BIAS_REVIEW = 0.6, 1.2  # logits: between equals, the one shown first wins 65 or 77 of 100
AGREEMENT_WARN = 0.55  # hardly more than a coin between two sides
ENOUGH = 20  # fewer observations than this say nothing about a share
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


def _likeness(found: EvaluationResult) -> Iterator[Flag]:
    """Works whose author is contested, entries that resemble an earlier one, and two paid for one work."""
    severity: Severity
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
    for pair in found.likeness.similar:
        evidence = {"share": pair.share, "kind": pair.kind, "contested": pair.contested}
        severity = "review" if pair.later in found.paid else "warn"
        yield Flag("similar_work", severity, pair.sentence, pair.later, {"other": pair.earlier, **evidence})
        yield Flag("similar_work", "info", pair.sentence, pair.earlier, {"other": pair.later, **evidence})
    for account, author in found.likeness.taken:
        severity = "review" if account in found.near_money else "warn"
        sentence = f"{account}: {author} handed in these very bytes first, and replaced them later."
        yield Flag("earlier_author", severity, sentence, account, {"other": author})
    paid: dict[Address, list[Address]] = {}
    for place in found.placed[: found.given.winner_count]:
        if (head := found.likeness.families.get(place.account)) is not None:
            paid.setdefault(head, []).append(place.account)
    for members in paid.values():
        if len(members) > 1:
            told = f"{', '.join(members)} are on paid places and are similar, or were sent for one agent: "
            told += "they may be one work."
            yield Flag("family_paid_twice", "review", told, members[0], {"members": len(members)})


def _submissions(found: EvaluationResult) -> Iterator[Flag]:
    """Content that may be newer than the deadline, what was noticed in reading, payment for mere claims.

    Far from the money it is no reason to wait; claims that others make too a person could not tell apart either.
    """
    for piece in found.pieces:
        account = piece.submission.submitter
        if piece.is_loose and account in found.features and account in found.near_money:
            told = (
                f"{account} stands near a paid place, but the chain's hash covers only the address of its submission: "
                "the content may have been put there after the deadline."
            )
            yield Flag("unpinned", "review", told, account)
    held = []
    for account, facts in sorted(found.features.items()):
        for flag in facts.flags:
            could_be_paid = account in found.near_money or flag.code == UNREAD
            far = flag.severity == "review" and not could_be_paid
            named = replace(flag, sentence=f"{account}: {flag.sentence}", account=account)
            yield replace(named, severity="warn") if far else named
        if account in found.paid and any(flag.code == UNTOLD for flag in facts.flags):
            held.append(account)
    if held:
        told = f"{', '.join(held)} would be paid for what only a model can tell, nearly the best there is, and others "
        told += "claim as much: the field cannot tell who claims too much."
        yield Flag("paid_for_claims", "warn", told, evidence={"entries": len(held)})


def misplaced_money(ranking: Ranking, prize_usd: float | None = None) -> str:
    """How much of the prize is expected at wrong addresses, and how few verdicts decide; without a full stop."""
    share, count = f"{100 * ranking.misallocation:.0f} %", ranking.deciding_verdicts
    amount = share if prize_usd is None else f"${ranking.misallocation * prize_usd:,.2f} ({share})"
    decides = "" if count is None else f"; {count} verdict{'s decide' if count > 1 else ' decides'} who is paid"
    return f"By this judge, {amount} of the prize is expected at wrong addresses{decides}"


def _verdicts(found: EvaluationResult) -> Iterator[Flag]:
    """Comparisons without a verdict, and what the ranking itself gives cause to say."""
    asked, ranking = len(found.comparisons), found.ranking
    missing = asked - (ranking.results if ranking else 0)
    if missing:
        share, lost = missing / asked, len(without_verdict(found.comparisons))
        code = UNJUDGED if lost > OUTAGE_SHARE * (lost + asked - missing) else "undecided"
        severity: Severity = "review" if share > UNDECIDED_REVIEW else "warn"
        told = f"{missing} of {asked} comparisons ({100 * share:.1f} %) have no verdict; they count for nobody."
        yield Flag(code, severity, told, evidence={"undecided": missing, "comparisons": asked})
    if ranking is not None and ranking.misallocation:
        evidence = {"share": round(ranking.misallocation, 2), "verdicts": ranking.deciding_verdicts}
        yield Flag("misplaced_money", "info", f"{misplaced_money(ranking)}.", evidence=evidence)
    if ranking is not None:
        yield from ranking_flags(ranking, by_arrival=True)


def ranking_flags(ranking: Ranking, *, by_arrival: bool) -> Iterator[Flag]:
    """All flags in a fixed order; `by_arrival`: among equals the earlier submission is first."""
    yield from _ties(ranking, by_arrival)
    report, margin, chance = ranking.consistency, ranking.margin, ranking.margin.probability
    if margin.next_item and chance < TOSS_UP:
        told = f"{margin.item} is better than {margin.next_item} with a chance of only {100 * chance:.0f} %"
        evidence: dict[str, Fact] = {"item": margin.item, "nextItem": margin.next_item, "chance": round(chance, 2)}
        yield Flag("toss_up", "warn", f"The last paid place is a toss-up: {told}.", evidence=evidence)
    if report.unplayed:
        told = f"Never compared with anything: {_some(report.unplayed, 5)}."
        yield Flag("unplayed", "review", told, evidence={"items": len(report.unplayed)})
    if (parts := report.groups - len(report.unplayed)) > 1:
        told = f"The comparisons fall into {parts} groups that were never compared with each other"
        told += ", so the order between the groups is a guess."
        yield Flag("unconnected", "review", told, evidence={"groups": parts})
    yield from _cycles(report, margin)
    if (share := report.swap_consistency) is not None and report.swaps >= ENOUGH and share < SWAP_WARN:
        told = "When the same two were shown in the other order, the verdict stayed the same in only "
        told += f"{100 * share:.0f} % of {report.swaps} cases."
        evidence = {"share": round(share, 2), "swaps": report.swaps}
        yield Flag("swap", "review" if share < SWAP_REVIEW else "warn", told, evidence=evidence)
    if items := report.pivotal_items:
        told = f"Somebody else would be paid if one entry had not taken part: {_some(items, 3)}."
        yield Flag("pivotal_item", "warn", told, evidence={"items": len(items)})
    if clusters := report.pivotal_clusters:
        told = f"Somebody else would be paid without the similar entries around {', '.join(clusters[:3])}."
        yield Flag("pivotal_cluster", "review", told, evidence={"clusters": len(clusters)})
    for judge in report.judges:
        yield from _judge(judge)


def _cycles(report: ConsistencyReport, margin: PayMargin) -> Iterator[Flag]:
    """In a small field every contradiction is told; it waits for a person if it may have decided who is paid."""
    share, triples = report.cyclic_share or 0.0, report.decided_triples
    evidence: dict[str, Fact] = {"cycles": report.cycles, "triples": triples}
    if triples < ENOUGH and report.cycles:
        told = "a contradiction" if report.cycles == 1 else f"{report.cycles} contradictions"
        told = f"The verdicts hold {told} (A over B, B over C, C over A) in {triples} decided "
        told += "triple." if triples == 1 else "triples."
        waits = share > CYCLES_REVIEW and margin.word != "clear"
    elif triples >= ENOUGH and share > CYCLES_WARN:
        complete = report.coverage >= 0.9
        told = f"In {100 * share:.0f} % of {triples} triples the judge contradicts itself (A over B, B over C, "
        told += f"C over A); a good judge stays below {100 * CYCLES_WARN:.0f} %."
        told += "" if complete else " Close pairs were compared more often here, which raises this share."
        waits = share > CYCLES_REVIEW and complete
        evidence = {"share": round(share, 2), "triples": triples}
    else:
        return
    yield Flag("cycles", "review" if waits else "warn", told, evidence=evidence)


def _judge(judge: JudgeReport) -> Iterator[Flag]:
    name, lean = f"Judge {judge.judge}" if judge.judge else "The judge", abs(judge.position_bias)
    if lean > BIAS_WARN and lean > 2 * judge.position_bias_sd:
        side = "first" if judge.position_bias > 0 else "second"
        told = f"{name} leans to whichever entry is shown {side}; sides are balanced, but it makes verdicts noisier."
        severity: Severity = "review" if lean > BIAS_REVIEW else "warn"
        yield Flag("position_bias", severity, told, evidence={"judge": judge.judge, "side": side})
    agreed = judge.agreement
    if agreed is not None and judge.compared >= ENOUGH and agreed < AGREEMENT_WARN:
        told = f"{name} agrees with the other judges on only {100 * agreed:.0f} % of {judge.compared} questions."
        evidence: dict[str, Fact] = {"judge": judge.judge, "share": round(agreed, 2), "compared": judge.compared}
        yield Flag("disagreement", "warn", told, evidence=evidence)


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (" and others" if len(names) > most else "")


def _ties(ranking: Ranking, by_arrival: bool) -> Iterator[Flag]:
    """One flag for each tie that decides about money."""
    prize = {one.item: bps for one, bps in zip(ranking.standings, ranking.payout_bps, strict=False)}
    first = "the earlier submission comes first, then the lower address" if by_arrival else "the lower name comes first"
    for group in ranking.ties:
        if len({prize.get(item, 0) for item in group}) == 1:
            continue
        paid, unpaid = [item for item in group if prize.get(item)], [item for item in group if not prize.get(item)]
        if unpaid:
            verb = "are" if len(paid) > 1 else "is"
            told = f"A tie at the pay line: {_listed(group)} have equal records. {_listed(paid)} {verb} paid and "
            yield Flag("tie_at_pay_line", "warn", f"{told}{_listed(unpaid)} not, because among equals {first}.")
        else:
            told = f"{_listed(group)} have equal records and take their prizes in this order,"
            yield Flag("tie_for_prize", "warn", f"{told} because among equals {first}.")


def _listed(names: Sequence[str], most: int = 6) -> str:
    shown = [*names[:most], f"{len(names) - most} others"] if len(names) > most + 1 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _gave_way(found: EvaluationResult) -> Iterator[Flag]:
    behind = found.behind_by_default if is_by_default(found.rulings) else {}
    for account, code in sorted(behind.items()):
        told = f"{account} gave way to the others on the paid places: nobody decided in time about the flag {code}."
        yield Flag("gave_way", "warn", told, account, {"flag": code})


RULES = (_withheld_harness, _rejections, _likeness, _submissions, _verdicts, _gave_way)


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
    usd, most = terms.misplaced * (worth or 0.0), terms.doubt_usd
    if not is_ruled and most is not None and usd > most and terms.misplaced > terms.doubt_share:
        told = (
            f"By this judge, ${usd:,.2f} of the prize ({100 * terms.misplaced:.0f} %) is expected at wrong addresses, "
        )
        told += f"more than ${most:,.2f} and {100 * terms.doubt_share:.0f} %."
        reasons.append(Flag(DOUBT, "review", told))
    if terms.uncalibrated is not None:
        reasons.append(Flag(CALIBRATION, "review", terms.uncalibrated))
    return reasons + [Flag(OBJECTION, "review", sentence) for sentence in terms.objections]


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
HIGHEST_SCORE = 10_000  # the largest score of an entry (`ranking.elo.score`)
UNREAD_SHARE, UNREAD_SECONDS = 0.25, 12 * 3600
"""An entry that cannot be read while others can is waited for this share of the window, and not longer than this."""
NOTICE_SHARE, NOTICE_SECONDS = 0.1, 6 * 3600
"""However late a review begins, a person has this share of the window, at most so long, while a tenth of it is left."""


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
