"""Flag a result (`FLAG_RULES`), decide whether a person reviews it, and what is posted if none does."""

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
from clara_eval.evaluation.features.field import AMBIGUOUS_CLAIMS
from clara_eval.evaluation.play import OUTAGE_SHARE, without_verdict
from clara_eval.evaluation.round import LAST_SHARE, Ruling, Window, is_by_default
from clara_eval.ranking import Ranking
from clara_eval.ranking.chances import TOSS_UP, PayMargin
from clara_eval.ranking.consistency import ConsistencyReport, JudgeReport
from clara_eval.submissions.copies import CONTESTED_SECONDS
from clara_eval.submissions.model import Rejected

if TYPE_CHECKING:
    from clara_eval.evaluation.result import EvaluationResult

CYCLES_WARN, CYCLES_REVIEW = 0.13, 0.18  # share of triples; at least a third of the way from an 80 % judge to a coin
SWAP_WARN, SWAP_REVIEW = 0.50, 0.40  # share of pairs; random verdicts agree on a third
BIAS_WARN, BIAS_REVIEW = 0.6, 1.2  # logits; between equals, the item shown first wins 65 % or 77 %
AGREEMENT_WARN = 0.55  # share; a coin has 0.5
MIN_OBSERVATIONS = 20  # for a share to mean anything
UNJUDGED = "unjudged"
PRIZE, CALIBRATION, OBJECTION, DOUBT = "prize", "calibration", "objection", "doubt"
"""Reasons for a review other than flags."""
UNDECIDED_REVIEW = 0.05  # share of comparisons without a verdict; fewer are only a warning


def round_flags(result: EvaluationResult) -> tuple[Flag, ...]:
    return tuple(flag for rule in FLAG_RULES for flag in rule(result))


def _withheld_harness(result: EvaluationResult) -> Iterator[Flag]:
    """Flag a hidden harness that the poster withheld: that let the poster choose between two results."""
    chosen = result.execution.chosen if result.execution else None
    if chosen is not None and chosen.is_withheld:
        instead = "the public harness" if chosen.harness is not None else "no harness at all"
        text = f"{WITHHELD} The entries were measured with {instead}: the poster alone could choose that."
        evidence: dict[str, Fact] = {"privateSetHash": result.given.private_set_hash.lower(), "harness": chosen.kind}
        yield Flag(HARNESS_WITHHELD, "warn", text, evidence=evidence)


def _rejections(result: EvaluationResult) -> Iterator[Flag]:
    """Flag rejected entries on paid places, and outages: an entry that was not read might have won."""
    for entry in result.rejected:
        account = entry.submission.submitter
        if account in result.paid:
            text = f"{account} stands on a paid place although its submission was rejected ({entry.code}): there are "
            text += "fewer judged submissions than winners, and the contract wants exactly winnerCount."
            yield Flag("paid_rejection", "review", text, account, {"rejection": entry.code})
    for entry in result.rejected:
        if entry.is_outage:
            account = entry.submission.submitter
            text = f"{account} could not be read, which may be no fault of its own: {entry.reason}"
            yield Flag("outage_verdict", "review", text, account, {"rejection": entry.code})


def _likeness(result: EvaluationResult) -> Iterator[Flag]:
    """Flag contested authorship, entries similar to earlier ones, and families that are paid twice."""
    severity: Severity
    clusters = [one.original.submission.submitter for one in result.likeness.clusters if one.contested]
    pairs = [pair.earlier for pair in result.likeness.similar if pair.contested]
    for account in dict.fromkeys((*clusters, *pairs)):
        if account in result.near_money:
            text = (
                f"{account} counts as the author of a work that another one repeats, but the other one was sent within "
                f"{CONTESTED_SECONDS} seconds, was resubmitted later, or was first at an address whose content can "
                "change, and may be the older one."
            )
            yield Flag("contested_copy", "review", text, account)
    for pair in result.likeness.similar:
        evidence = {"share": pair.share, "kind": pair.kind, "contested": pair.contested}
        severity = "review" if pair.later in result.paid else "warn"
        yield Flag("similar_work", severity, pair.sentence, pair.later, {"other": pair.earlier, **evidence})
        yield Flag("similar_work", "info", pair.sentence, pair.earlier, {"other": pair.later, **evidence})
    for account, author in result.likeness.taken:
        severity = "review" if account in result.near_money else "warn"
        text = f"{account}: {author} handed in these very bytes first, and replaced them later."
        yield Flag("earlier_author", severity, text, account, {"other": author})
    paid: dict[Address, list[Address]] = {}
    for place in result.placed[: result.given.winner_count]:
        if (head := result.likeness.families.get(place.account)) is not None:
            paid.setdefault(head, []).append(place.account)
    for members in paid.values():
        if len(members) > 1:
            text = f"{', '.join(members)} are on paid places and are similar, or were sent for one agent: "
            text += "they may be one work."
            yield Flag("family_paid_twice", "review", text, members[0], {"members": len(members)})


def _submissions(result: EvaluationResult) -> Iterator[Flag]:
    """Flag content that may be newer than the deadline, findings of the reading, and paid claims.

    Far from a paid place these are only warnings; so are ambiguous claims, which a person could not tell apart either.
    """
    for piece in result.pieces:
        account = piece.submission.submitter
        if piece.is_unpinned and account in result.features and account in result.near_money:
            text = (
                f"{account} stands near a paid place, but the chain's hash covers only the address of its submission: "
                "the content may have been put there after the deadline."
            )
            yield Flag("unpinned", "review", text, account)
    names = []
    for account, facts in sorted(result.features.items()):
        for flag in facts.flags:
            could_be_paid = account in result.near_money or flag.code == UNREAD
            is_far = flag.severity == "review" and not could_be_paid
            named = replace(flag, sentence=f"{account}: {flag.sentence}", account=account)
            yield replace(named, severity="warn") if is_far else named
        if account in result.paid and any(flag.code == AMBIGUOUS_CLAIMS for flag in facts.flags):
            names.append(account)
    if names:
        text = f"{', '.join(names)} would be paid for what only a model can tell, nearly the best there is, and others "
        text += "claim as much: the field cannot tell who claims too much."
        yield Flag("paid_for_claims", "warn", text, evidence={"entries": len(names)})


def misplaced_money(ranking: Ranking, prize_usd: float | None = None) -> str:
    """Say how much of the prize is expected at wrong addresses; without a full stop."""
    share, count = f"{100 * ranking.misallocation:.0f} %", ranking.deciding_verdicts
    amount = share if prize_usd is None else f"${ranking.misallocation * prize_usd:,.2f} ({share})"
    decides = "" if count is None else f"; {count} verdict{'s decide' if count > 1 else ' decides'} who is paid"
    return f"By this judge, {amount} of the prize is expected at wrong addresses{decides}"


def _verdicts(result: EvaluationResult) -> Iterator[Flag]:
    """Flag comparisons without a verdict, and what the ranking shows."""
    asked, ranking = len(result.comparisons), result.ranking
    missing = asked - (ranking.results if ranking else 0)
    if missing:
        share, lost = missing / asked, len(without_verdict(result.comparisons))
        code = UNJUDGED if lost > OUTAGE_SHARE * (lost + asked - missing) else "undecided"
        severity: Severity = "review" if share > UNDECIDED_REVIEW else "warn"
        text = f"{missing} of {asked} comparisons ({100 * share:.1f} %) have no verdict; they count for nobody."
        yield Flag(code, severity, text, evidence={"undecided": missing, "comparisons": asked})
    if ranking is not None and ranking.misallocation:
        evidence = {"share": round(ranking.misallocation, 2), "verdicts": ranking.deciding_verdicts}
        yield Flag("misplaced_money", "info", f"{misplaced_money(ranking)}.", evidence=evidence)
    if ranking is not None:
        yield from ranking_flags(ranking, by_arrival=True)


def ranking_flags(ranking: Ranking, *, by_arrival: bool) -> Iterator[Flag]:
    """Yield all flags about the ranking; `by_arrival` if ties are broken by submission time."""
    yield from _ties(ranking, by_arrival)
    report, margin, chance = ranking.consistency, ranking.margin, ranking.margin.probability
    if margin.next_item and chance < TOSS_UP:
        text = f"{margin.item} is better than {margin.next_item} with a chance of only {100 * chance:.0f} %"
        evidence: dict[str, Fact] = {"item": margin.item, "nextItem": margin.next_item, "chance": round(chance, 2)}
        yield Flag("toss_up", "warn", f"The last paid place is a toss-up: {text}.", evidence=evidence)
    if report.unplayed:
        text = f"Never compared with anything: {_join_first(report.unplayed, 5)}."
        yield Flag("unplayed", "review", text, evidence={"items": len(report.unplayed)})
    if (parts := report.groups - len(report.unplayed)) > 1:
        text = f"The comparisons fall into {parts} groups that were never compared with each other"
        text += ", so the order between the groups is a guess."
        yield Flag("unconnected", "review", text, evidence={"groups": parts})
    yield from _cycles(report, margin)
    if (share := report.swap_consistency) is not None and report.swaps >= MIN_OBSERVATIONS and share < SWAP_WARN:
        text = "When the same two were shown in the other order, the verdict stayed the same in only "
        text += f"{100 * share:.0f} % of {report.swaps} cases."
        evidence = {"share": round(share, 2), "swaps": report.swaps}
        yield Flag("swap", "review" if share < SWAP_REVIEW else "warn", text, evidence=evidence)
    if items := report.pivotal_items:
        text = f"Somebody else would be paid if one entry had not taken part: {_join_first(items, 3)}."
        yield Flag("pivotal_item", "warn", text, evidence={"items": len(items)})
    if clusters := report.pivotal_clusters:
        text = f"Somebody else would be paid without the similar entries around {', '.join(clusters[:3])}."
        yield Flag("pivotal_cluster", "review", text, evidence={"clusters": len(clusters)})
    for judge in report.judges:
        yield from _judge_flags(judge)


def _cycles(report: ConsistencyReport, margin: PayMargin) -> Iterator[Flag]:
    """Flag cycles: in small fields every one, for review if it may have decided who is paid."""
    share, triples = report.cyclic_share or 0.0, report.decided_triples
    evidence: dict[str, Fact] = {"cycles": report.cycles, "triples": triples}
    if triples < MIN_OBSERVATIONS and report.cycles:
        text = "a contradiction" if report.cycles == 1 else f"{report.cycles} contradictions"
        text = f"The verdicts hold {text} (A over B, B over C, C over A) in {triples} decided "
        text += "triple." if triples == 1 else "triples."
        needs_review = share > CYCLES_REVIEW and margin.word != "clear"
    elif triples >= MIN_OBSERVATIONS and share > CYCLES_WARN:
        complete = report.coverage >= 0.9
        text = f"In {100 * share:.0f} % of {triples} triples the judge contradicts itself (A over B, B over C, "
        text += f"C over A); a good judge stays below {100 * CYCLES_WARN:.0f} %."
        text += "" if complete else " Close pairs were compared more often here, which raises this share."
        needs_review = share > CYCLES_REVIEW and complete
        evidence = {"share": round(share, 2), "triples": triples}
    else:
        return
    yield Flag("cycles", "review" if needs_review else "warn", text, evidence=evidence)


def _judge_flags(judge: JudgeReport) -> Iterator[Flag]:
    name, bias = f"Judge {judge.judge}" if judge.judge else "The judge", abs(judge.position_bias)
    if bias > BIAS_WARN and bias > 2 * judge.position_bias_sd:
        side = "first" if judge.position_bias > 0 else "second"
        text = f"{name} leans to whichever entry is shown {side}; sides are balanced, but it makes verdicts noisier."
        severity: Severity = "review" if bias > BIAS_REVIEW else "warn"
        yield Flag("position_bias", severity, text, evidence={"judge": judge.judge, "side": side})
    agreed = judge.agreement
    if agreed is not None and judge.compared >= MIN_OBSERVATIONS and agreed < AGREEMENT_WARN:
        text = f"{name} agrees with the other judges on only {100 * agreed:.0f} % of {judge.compared} questions."
        evidence: dict[str, Fact] = {"judge": judge.judge, "share": round(agreed, 2), "compared": judge.compared}
        yield Flag("disagreement", "warn", text, evidence=evidence)


def _join_first(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (" and others" if len(names) > most else "")


def _ties(ranking: Ranking, by_arrival: bool) -> Iterator[Flag]:
    """Flag each tie that decides who gets which prize."""
    prize = {one.item: bps for one, bps in zip(ranking.standings, ranking.payout_bps, strict=False)}
    first = "the earlier submission comes first, then the lower address" if by_arrival else "the lower name comes first"
    for group in ranking.ties:
        if len({prize.get(item, 0) for item in group}) == 1:
            continue
        paid, unpaid = [item for item in group if prize.get(item)], [item for item in group if not prize.get(item)]
        if unpaid:
            verb = "are" if len(paid) > 1 else "is"
            text = f"A tie at the pay line: {_join(group)} have equal records. {_join(paid)} {verb} paid and "
            yield Flag("tie_at_pay_line", "warn", f"{text}{_join(unpaid)} not, because among equals {first}.")
        else:
            text = f"{_join(group)} have equal records and take their prizes in this order,"
            yield Flag("tie_for_prize", "warn", f"{text} because among equals {first}.")


def _join(names: Sequence[str], most: int = 6) -> str:
    shown = [*names[:most], f"{len(names) - most} others"] if len(names) > most + 1 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _gave_way(result: EvaluationResult) -> Iterator[Flag]:
    giving_way = result.behind_by_default if is_by_default(result.rulings) else {}
    for account, code in sorted(giving_way.items()):
        text = f"{account} gave way to the others on the paid places: nobody decided in time about the flag {code}."
        yield Flag("gave_way", "warn", text, account, {"flag": code})


FLAG_RULES = (_withheld_harness, _rejections, _likeness, _submissions, _verdicts, _gave_way)


@dataclass(frozen=True, slots=True)
class ReviewTerms:
    """Facts of the venue, besides the flags, that may require a review."""

    prize_usd: float | None  # None if unknown
    review_above_usd: float | None  # None: never
    misplaced: float = 0.0  # share of the prize expected at wrong addresses
    doubt_usd: float | None = None  # review if more than this and than `doubt_share` is misplaced; None: never
    doubt_share: float = 0.2
    uncalibrated: str | None = None  # why the judges need a review
    objections: tuple[str, ...] = ()  # that only a person can decide, one sentence each


def review_reasons(flags: Sequence[Flag], rulings: Sequence[Ruling], terms: ReviewTerms) -> list[Flag]:
    """Return the reasons for a review; after a ruling by the clock, flags are no longer reasons."""
    reasons: list[Flag] = []
    limit, worth = terms.review_above_usd, terms.prize_usd
    if limit is not None and (worth is None or worth >= limit):
        shown = "of unknown worth" if worth is None else f"${worth:,.2f}"
        text = f"Prizes of ${limit:,.2f} or more need a person's approval; this one is {shown}."
        reasons.append(Flag(PRIZE, "review", text))
    is_ruled = is_by_default(rulings)
    reasons += [flag for flag in flags if flag.severity == "review" and (flag.code == UNJUDGED or not is_ruled)]
    usd, most = terms.misplaced * (worth or 0.0), terms.doubt_usd
    if not is_ruled and most is not None and usd > most and terms.misplaced > terms.doubt_share:
        text = (
            f"By this judge, ${usd:,.2f} of the prize ({100 * terms.misplaced:.0f} %) is expected at wrong addresses, "
            f"more than ${most:,.2f} and {100 * terms.doubt_share:.0f} %."
        )
        reasons.append(Flag(DOUBT, "review", text))
    if terms.uncalibrated is not None:
        reasons.append(Flag(CALIBRATION, "review", terms.uncalibrated))
    return reasons + [Flag(OBJECTION, "review", text) for text in terms.objections]


class Then(StrEnum):
    STAYS = "posted as ranked"
    GIVES_WAY = "it gives way"
    LATER_GIVES_WAY = "the later one gives way"
    WITH_A_SIGN = "posted as ranked; gives way if it also has a flag that it caused"
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
"""Flags that an entry caused itself; with one of them, conspicuous claims give way by default."""
MAX_SCORE = 10_000  # of an entry (`ranking.elo.chain_score`)
UNREAD_SHARE, UNREAD_SECONDS = 0.25, 12 * 3600
"""How long to wait for an unreadable entry while others are readable: share of the window, maximum."""
NOTICE_SHARE, NOTICE_SECONDS = 0.1, 6 * 3600
"""Least time for a review that begins late (share of the window, maximum), up to LAST_SHARE."""


def default_of(code: str) -> ReviewDefault:
    """Return the default for a reason; unlisted ones are posted as ranked, so that no round gets stuck."""
    return DEFAULTS.get(code, ReviewDefault(Then.STAYS, Moment.HALF))


def default_moment(window: Window, codes: Iterable[str], requested_at: int) -> int | None:
    """Return the chain time at which the default is posted; None if only a person can post."""
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
    """Place the ranked entries, those in `behind` last, then the rejected ones with score 0.

    `by_default`: unreadable entries are the first of the rejected, since that may not be their fault.
    """
    ranked = [Placed(Address(s.item), s.score) for s in ranking.standings] if ranking else []
    first = [placed for placed in ranked if placed.account not in behind]
    # Scores of winners must not increase, even if an entry that gives way has to be paid.
    lowest = min((placed.score for placed in first), default=MAX_SCORE)
    moved = [placed for placed in ranked if placed.account in behind]
    scores = accumulate((placed.score for placed in moved), min, initial=lowest)
    moved = [replace(placed, score=min(placed.score, low)) for placed, low in zip(moved, scores, strict=False)]
    last = sorted(rejected, key=lambda r: by_default and not r.is_outage)
    return (*first, *moved, *(Placed(r.submission.submitter, 0) for r in last))


def find_giving_way(result: EvaluationResult) -> dict[Address, str]:
    """Find who gives way by default, with the flag's code, until no flagged account can be replaced."""
    giving_way: dict[Address, str] = {}
    while True:
        now = replace(result, placed=place(result.ranking, result.rejected, giving_way, by_default=True))
        moved = {
            account: flag.code
            for flag in reversed(round_flags(now))
            if flag.severity == "review"
            for account in _accounts_giving_way(flag, now)
            if account in now.paid and account not in giving_way
        }
        if not moved:
            return giving_way
        giving_way |= moved


def _accounts_giving_way(flag: Flag, result: EvaluationResult) -> list[Address]:
    if flag.account is None:
        return []
    account, then = Address(flag.account), default_of(flag.code).then
    if then is Then.LATER_GIVES_WAY:
        families, times = result.likeness.families, {s.submitter: s.submitted_at for s in result.given.submissions}
        head = families.get(account)
        members = [one for one in result.paid if families.get(one) == head]
        return sorted(members, key=lambda one: (one != head, times[one], one))[1:]
    facts = result.features.get(account) if then is Then.WITH_A_SIGN else None
    has_sign = facts is not None and (facts.second_view == "missing" or any(one.code in SIGNS for one in facts.flags))
    return [account] if has_sign or then is Then.GIVES_WAY else []
