"""Thresholds that raise a flag, each in words that a poster understands.

In come the consistency report and the margin at the pay line; out go flags: `warn` is shown beside the result,
`review` means that a person should look before money moves. The thresholds for cycles are the study's proposal
(an 80 % judge makes .086 cyclic triples, a coin .25); where pairs were picked adaptively close pairs are over-sampled
and the share is too high by construction, so there it only warns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from clara_eval.ranking.consistency import Consistency, JudgeReport
from clara_eval.ranking.uncertainty import Margin

CYCLES_WARN, CYCLES_REVIEW = 0.13, 0.18
SWAP_WARN, SWAP_REVIEW = 0.50, 0.40
BIAS_WARN, BIAS_REVIEW = 0.6, 1.2
AGREEMENT_WARN = 0.55
ENOUGH = 20  # fewer observations than this say nothing about a share


@dataclass(frozen=True, slots=True)
class Flag:
    """`code` for programs, `sentence` for people."""

    code: str
    sentence: str
    severity: Literal["warn", "review"]


def raise_flags(report: Consistency, margin: Margin) -> tuple[Flag, ...]:
    """All flags in a fixed order."""
    found = [*_margin(margin), *_connection(report), *_cycles(report), *_swap(report), *_stability(report)]
    for judge in report.judges:
        found += _judge(judge)
    return tuple(found)


def _margin(margin: Margin) -> Iterator[Flag]:
    if margin.next_item and margin.word == "toss-up":
        yield Flag(
            "toss_up",
            f"The last paid place is a toss-up: {margin.item} is better than {margin.next_item} with a chance of only "
            f"{100 * margin.probability:.0f} %.",
            "warn",
        )


def _connection(report: Consistency) -> Iterator[Flag]:
    if report.unplayed:
        names = ", ".join(report.unplayed[:5]) + (" and others" if len(report.unplayed) > 5 else "")
        yield Flag("unplayed", f"Never compared with anything: {names}.", "review")
    connected = report.groups - len(report.unplayed)
    if connected > 1:
        yield Flag(
            "unconnected",
            f"The comparisons fall into {connected} groups that were never compared with each other, so the order "
            "between the groups is a guess.",
            "review",
        )


def _cycles(report: Consistency) -> Iterator[Flag]:
    share = report.cyclic_share
    if share is None or report.decided_triples < ENOUGH or share <= CYCLES_WARN:
        return
    complete = report.coverage >= 0.9
    yield Flag(
        "cycles",
        f"In {100 * share:.0f} % of {report.decided_triples} triples the judge contradicts itself (A over B, B over C, "
        f"C over A); a good judge stays below {100 * CYCLES_WARN:.0f} %."
        + ("" if complete else " Close pairs were compared more often here, which raises this share."),
        "review" if share > CYCLES_REVIEW and complete else "warn",
    )


def _swap(report: Consistency) -> Iterator[Flag]:
    share = report.swap_consistency
    if share is None or report.swaps < ENOUGH or share >= SWAP_WARN:
        return
    yield Flag(
        "swap",
        f"When the same two were shown in the other order, the verdict stayed the same in only {100 * share:.0f} % of "
        f"{report.swaps} cases.",
        "review" if share < SWAP_REVIEW else "warn",
    )


def _stability(report: Consistency) -> Iterator[Flag]:
    if report.pivotal_items:
        names = ", ".join(report.pivotal_items[:3]) + (" and others" if len(report.pivotal_items) > 3 else "")
        yield Flag("pivotal_item", f"Somebody else would be paid if one entry had not taken part: {names}.", "warn")
    if report.pivotal_clusters:
        names = ", ".join(report.pivotal_clusters[:3])
        yield Flag(
            "pivotal_cluster", f"Somebody else would be paid without the similar entries around {names}.", "review"
        )


def _judge(judge: JudgeReport) -> Iterator[Flag]:
    name = f"Judge {judge.judge}" if judge.judge else "The judge"
    lean = abs(judge.position_bias)
    if lean > BIAS_WARN and lean > 2 * judge.position_bias_sd:
        side = "first" if judge.position_bias > 0 else "second"
        yield Flag(
            "position_bias",
            f"{name} leans to whichever entry is shown {side}; sides are balanced, but it makes verdicts noisier.",
            "review" if lean > BIAS_REVIEW else "warn",
        )
    if judge.agreement is not None and judge.compared >= ENOUGH and judge.agreement < AGREEMENT_WARN:
        yield Flag(
            "disagreement",
            f"{name} agrees with the other judges on only {100 * judge.agreement:.0f} % of {judge.compared} questions.",
            "warn",
        )
