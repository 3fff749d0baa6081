"""How far the verdicts agree with one another, with swapped sides and between judges, and the flags about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from clara_eval.core.flags import Fact, Flag, Severity
from clara_eval.ranking.chances import TOSS_UP, PayMargin
from clara_eval.ranking.model import Strengths, one_thread
from clara_eval.ranking.results import Floats, Tally, connected_groups

CYCLES_WARN, CYCLES_REVIEW = 0.13, 0.18  # a third and more of the way from an 80 % judge to a coin
SWAP_WARN, SWAP_REVIEW = 0.50, 0.40  # two verdicts by lot agree in a third
BIAS_WARN, BIAS_REVIEW = 0.6, 1.2  # logits: between equals, the one shown first wins 65 or 77 of 100
AGREEMENT_WARN = 0.55  # hardly more than a coin between two sides
ENOUGH = 20  # fewer observations than this say nothing about a share


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """One judge: games, agreement with the other judges on the same question, lean to the item shown first."""

    judge: str
    games: int
    agreement: float | None
    compared: int
    position_bias: float
    position_bias_sd: float
    first_share: float


@dataclass(frozen=True, slots=True)
class ConsistencyReport:
    """Counts and shares; a share is None if nothing could be compared."""

    cycles: int
    decided_triples: int
    cyclic_share: float | None
    coverage: float
    swap_consistency: float | None
    swaps: int
    judges: tuple[JudgeReport, ...]
    groups: int
    unplayed: tuple[str, ...]
    pivotal_items: tuple[str, ...]
    pivotal_clusters: tuple[str, ...]

    @property
    def position_bias(self) -> float:
        """The lean of all judges together, weighted by their games."""
        games = sum(judge.games for judge in self.judges)
        return round(sum(j.position_bias * j.games for j in self.judges) / games, 4) if games else 0.0


def examine(
    table: Tally, strengths: Strengths, pivotal_items: tuple[str, ...], pivotal_clusters: tuple[str, ...]
) -> ConsistencyReport:
    net = _net_verdicts(table)
    cycles, triples = count_cycles(net_wins(table))
    both = ~np.isnan(net) & ~np.isnan(net.transpose(0, 2, 1))
    swaps, kept = int(both.sum()) // 2, int((both & (net == -net.transpose(0, 2, 1))).sum()) // 2
    met = table.met > 0
    return ConsistencyReport(
        cycles=cycles,
        decided_triples=triples,
        cyclic_share=round(cycles / triples, 4) if triples else None,
        coverage=round(int(met.sum()) / 2 / max(1, comb(table.size, 2)), 4),
        swap_consistency=round(kept / swaps, 4) if swaps else None,
        swaps=swaps,
        judges=_judges(table, strengths, net),
        groups=int(connected_groups(met).max(initial=-1)) + 1,
        unplayed=tuple(table.items[i] for i in np.flatnonzero(~met.any(axis=1))),
        pivotal_items=pivotal_items,
        pivotal_clusters=pivotal_clusters,
    )


def net_wins(table: Tally) -> npt.NDArray[np.bool_]:
    """W[i, j]: i has more points than j over all their games."""
    size = table.size
    lead = np.bincount(table.first * size + table.second, table.half_points - 1, size * size).reshape(size, size)
    beats: npt.NDArray[np.bool_] = lead > lead.T
    return beats


def count_cycles(beats: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Cyclic and decided triples: Σ((W·W)∘Wᵀ)/3 and Σ((U·U)∘U)/6 with U = W or Wᵀ."""
    w = beats.astype(np.float32)  # entries stay below 2^24: exact; the sums are taken in 64 bits
    u = w + w.T
    with one_thread():
        cyclic = float(np.sum((w @ w) * w.T, dtype=np.float64))
        decided = float(np.sum((u @ u) * u, dtype=np.float64))
    return round(cyclic / 3), round(decided / 6)


def _net_verdicts(table: Tally) -> Floats:
    """By (judge, first, second): +1, 0 or −1 for the first, NaN if it was not asked."""
    size, judges = table.size, max(1, len(table.judges))
    key, total = (table.judge * size + table.first) * size + table.second, judges * size * size
    net = np.sign(np.bincount(key, table.half_points - 1.0, total)).astype(np.float64)
    net[np.bincount(key, minlength=total) == 0] = np.nan
    return net.reshape(judges, size, size)


def _judges(table: Tally, strengths: Strengths, net: Floats) -> tuple[JudgeReport, ...]:
    reports = []
    for number, judge in enumerate(table.judges):
        mine = table.judge == number
        others = np.delete(net, number, axis=0)
        shared = ~np.isnan(others) & ~np.isnan(net[number])
        compared, agreed = int(shared.sum()), int((shared & (others == net[number])).sum())
        spot = table.size + number
        reports.append(
            JudgeReport(
                judge=judge,
                games=int(mine.sum()),
                agreement=round(agreed / compared, 4) if compared else None,
                compared=compared,
                position_bias=round(float(strengths.side[number]), 4),
                position_bias_sd=round(float(strengths.covariance[spot, spot]) ** 0.5, 4),
                first_share=round(float(table.points[mine].mean()), 4),
            )
        )
    return tuple(reports)


def raise_flags(report: ConsistencyReport, margin: PayMargin) -> Iterator[Flag]:
    """All flags in a fixed order."""
    if margin.next_item and margin.probability < TOSS_UP:
        told = f"{margin.item} is better than {margin.next_item} with a chance of only {100 * margin.probability:.0f} %"
        evidence: dict[str, Fact] = {"item": margin.item, "nextItem": margin.next_item}
        evidence["chance"] = round(margin.probability, 2)
        yield Flag("toss_up", "warn", f"The last paid place is a toss-up: {told}.", evidence=evidence)
    if report.unplayed:
        told = f"Never compared with anything: {_some(report.unplayed, 5)}."
        yield Flag("unplayed", "review", told, evidence={"items": len(report.unplayed)})
    if (parts := report.groups - len(report.unplayed)) > 1:
        told = f"The comparisons fall into {parts} groups that were never compared with each other"
        told += ", so the order between the groups is a guess."
        yield Flag("unconnected", "review", told, evidence={"groups": parts})
    yield from _cycles(report, margin)
    share = report.swap_consistency
    if share is not None and report.swaps >= ENOUGH and share < SWAP_WARN:
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
