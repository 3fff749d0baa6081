"""Why a ranking is flagged: ties about money, contradictions, and judges that lean or disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clara_eval.core.flags import Fact, Flag, Severity
from clara_eval.ranking import Ranking
from clara_eval.ranking.chances import TOSS_UP, PayMargin
from clara_eval.ranking.consistency import ConsistencyReport, JudgeReport

CYCLES_WARN, CYCLES_REVIEW = 0.13, 0.18  # a third and more of the way from an 80 % judge to a coin
SWAP_WARN, SWAP_REVIEW = 0.50, 0.40  # two verdicts by lot agree in a third
BIAS_WARN, BIAS_REVIEW = 0.6, 1.2  # logits: between equals, the one shown first wins 65 or 77 of 100
AGREEMENT_WARN = 0.55  # hardly more than a coin between two sides
ENOUGH = 20  # fewer observations than this say nothing about a share


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
