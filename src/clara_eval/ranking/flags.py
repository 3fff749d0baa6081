"""Thresholds that raise a flag about a ranking, each in words that a poster understands.

In come the consistency report and the margin at the pay line; out go flags. A new one is a function in `RULES`. The
thresholds for cycles are the study's proposal (an 80 % judge makes .086 cyclic triples, a coin .25); where pairs were
picked adaptively close pairs are over-sampled and the share is too high by construction, so there it only warns.
"""

from __future__ import annotations

from collections.abc import Iterator

from clara_eval.core.flags import Flag
from clara_eval.ranking.consistency import ConsistencyReport, JudgeReport
from clara_eval.ranking.uncertainty import PayMargin

CYCLES_WARN, CYCLES_REVIEW = 0.13, 0.18
SWAP_WARN, SWAP_REVIEW = 0.50, 0.40
BIAS_WARN, BIAS_REVIEW = 0.6, 1.2
AGREEMENT_WARN = 0.55
ENOUGH = 20  # fewer observations than this say nothing about a share


def raise_flags(report: ConsistencyReport, margin: PayMargin) -> tuple[Flag, ...]:
    """All flags in a fixed order."""
    return tuple(flag for rule in RULES for flag in rule(report, margin))


def _toss_up(_report: ConsistencyReport, margin: PayMargin) -> Iterator[Flag]:
    if margin.next_item and margin.word == "toss-up":
        yield Flag(
            "toss_up",
            "warn",
            f"The last paid place is a toss-up: {margin.item} is better than {margin.next_item} with a chance of only "
            f"{100 * margin.probability:.0f} %.",
            evidence={"item": margin.item, "nextItem": margin.next_item, "chance": _share(margin.probability)},
        )


def _unplayed(report: ConsistencyReport, _margin: PayMargin) -> Iterator[Flag]:
    if report.unplayed:
        names = ", ".join(report.unplayed[:5]) + (" and others" if len(report.unplayed) > 5 else "")
        sentence = f"Never compared with anything: {names}."
        yield Flag("unplayed", "review", sentence, evidence={"items": len(report.unplayed)})


def _unconnected(report: ConsistencyReport, _margin: PayMargin) -> Iterator[Flag]:
    connected = report.groups - len(report.unplayed)
    if connected > 1:
        yield Flag(
            "unconnected",
            "review",
            f"The comparisons fall into {connected} groups that were never compared with each other, so the order "
            "between the groups is a guess.",
            evidence={"groups": connected},
        )


def _cycles(report: ConsistencyReport, margin: PayMargin) -> Iterator[Flag]:
    share = report.cyclic_share
    if share is None or not report.cycles:
        return
    if report.decided_triples < ENOUGH:
        yield from _few_cycles(report, share, margin)
        return
    if share <= CYCLES_WARN:
        return
    complete = report.coverage >= 0.9
    yield Flag(
        "cycles",
        "review" if share > CYCLES_REVIEW and complete else "warn",
        f"In {100 * share:.0f} % of {report.decided_triples} triples the judge contradicts itself (A over B, B over C, "
        f"C over A); a good judge stays below {100 * CYCLES_WARN:.0f} %."
        + ("" if complete else " Close pairs were compared more often here, which raises this share."),
        evidence={"share": _share(share), "triples": report.decided_triples},
    )


def _few_cycles(report: ConsistencyReport, share: float, margin: PayMargin) -> Iterator[Flag]:
    """In a small field every contradiction is told; it waits for a person if it may have decided who is paid."""
    contradictions = "a contradiction" if report.cycles == 1 else f"{report.cycles} contradictions"
    yield Flag(
        "cycles",
        "review" if share > CYCLES_REVIEW and margin.word != "clear" else "warn",
        f"The verdicts hold {contradictions} (A over B, B over C, C over A) in {report.decided_triples} decided "
        f"{'triple' if report.decided_triples == 1 else 'triples'}.",
        evidence={"cycles": report.cycles, "triples": report.decided_triples},
    )


def _swap(report: ConsistencyReport, _margin: PayMargin) -> Iterator[Flag]:
    share = report.swap_consistency
    if share is None or report.swaps < ENOUGH or share >= SWAP_WARN:
        return
    yield Flag(
        "swap",
        "review" if share < SWAP_REVIEW else "warn",
        f"When the same two were shown in the other order, the verdict stayed the same in only {100 * share:.0f} % of "
        f"{report.swaps} cases.",
        evidence={"share": _share(share), "swaps": report.swaps},
    )


def _pivotal_item(report: ConsistencyReport, _margin: PayMargin) -> Iterator[Flag]:
    if report.pivotal_items:
        names = ", ".join(report.pivotal_items[:3]) + (" and others" if len(report.pivotal_items) > 3 else "")
        sentence = f"Somebody else would be paid if one entry had not taken part: {names}."
        yield Flag("pivotal_item", "warn", sentence, evidence={"items": len(report.pivotal_items)})


def _pivotal_cluster(report: ConsistencyReport, _margin: PayMargin) -> Iterator[Flag]:
    if report.pivotal_clusters:
        names = ", ".join(report.pivotal_clusters[:3])
        sentence = f"Somebody else would be paid without the similar entries around {names}."
        yield Flag("pivotal_cluster", "review", sentence, evidence={"clusters": len(report.pivotal_clusters)})


def _judges(report: ConsistencyReport, _margin: PayMargin) -> Iterator[Flag]:
    for judge in report.judges:
        name = f"Judge {judge.judge}" if judge.judge else "The judge"
        yield from _position_bias(judge, name)
        yield from _disagreement(judge, name)


def _position_bias(judge: JudgeReport, name: str) -> Iterator[Flag]:
    lean = abs(judge.position_bias)
    if lean > BIAS_WARN and lean > 2 * judge.position_bias_sd:
        side = "first" if judge.position_bias > 0 else "second"
        yield Flag(
            "position_bias",
            "review" if lean > BIAS_REVIEW else "warn",
            f"{name} leans to whichever entry is shown {side}; sides are balanced, but it makes verdicts noisier.",
            evidence={"judge": judge.judge, "side": side},
        )


def _disagreement(judge: JudgeReport, name: str) -> Iterator[Flag]:
    if judge.agreement is not None and judge.compared >= ENOUGH and judge.agreement < AGREEMENT_WARN:
        yield Flag(
            "disagreement",
            "warn",
            f"{name} agrees with the other judges on only {100 * judge.agreement:.0f} % of {judge.compared} questions.",
            evidence={"judge": judge.judge, "share": _share(judge.agreement), "compared": judge.compared},
        )


def _share(value: float) -> float:
    """As the sentence says it: whole per cents, so that the last digits of a processor do not matter."""
    return round(float(value), 2)


RULES = (_toss_up, _unplayed, _unconnected, _cycles, _swap, _pivotal_item, _pivotal_cluster, _judges)
