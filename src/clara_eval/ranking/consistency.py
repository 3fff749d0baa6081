"""Report how consistent the verdicts are: cycles, swapped sides, agreement between judges."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from clara_eval.ranking.model import Strengths, one_thread
from clara_eval.ranking.results import Bools, Floats, Tally, connected_groups


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """One judge: agreement with the other judges on shared questions, and position bias in logits."""

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
        """Mean position bias of the judges, weighted by their games."""
        games = sum(judge.games for judge in self.judges)
        return round(sum(j.position_bias * j.games for j in self.judges) / games, 4) if games else 0.0


def report_consistency(
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
        judges=_judge_reports(table, strengths, net),
        groups=int(connected_groups(met).max(initial=-1)) + 1,
        unplayed=tuple(table.items[i] for i in np.flatnonzero(~met.any(axis=1))),
        pivotal_items=pivotal_items,
        pivotal_clusters=pivotal_clusters,
    )


def net_wins(table: Tally) -> Bools:
    """Return W, with W[i, j] true if i has more points than j over all their games."""
    size = table.size
    lead = np.bincount(table.first * size + table.second, table.half_points - 1, size * size).reshape(size, size)
    return np.asarray(lead > lead.T)


def count_cycles(beats: Bools) -> tuple[int, int]:
    """Count cyclic and decided triples: Σ((W·W)∘Wᵀ)/3 and Σ((U·U)∘U)/6 with U = W ∨ Wᵀ."""
    w = beats.astype(np.float32)  # exact: products stay below 2^24, and sums are in 64 bits
    u = w + w.T
    with one_thread():
        cyclic = float(np.sum((w @ w) * w.T, dtype=np.float64))
        decided = float(np.sum((u @ u) * u, dtype=np.float64))
    return round(cyclic / 3), round(decided / 6)


def _net_verdicts(table: Tally) -> Floats:
    """Return +1, 0 or −1 for the first item by (judge, first, second); NaN if it was not asked."""
    size, judges = table.size, max(1, len(table.judges))
    key, total = (table.judge * size + table.first) * size + table.second, judges * size * size
    net = np.sign(np.bincount(key, table.half_points - 1.0, total)).astype(np.float64)
    net[np.bincount(key, minlength=total) == 0] = np.nan
    return net.reshape(judges, size, size)


def _judge_reports(table: Tally, strengths: Strengths, net: Floats) -> tuple[JudgeReport, ...]:
    reports = []
    for number, judge in enumerate(table.judges):
        mine = table.judge == number
        others = np.delete(net, number, axis=0)
        shared = ~np.isnan(others) & ~np.isnan(net[number])
        compared, agreed = int(shared.sum()), int((shared & (others == net[number])).sum())
        index = table.size + number
        reports.append(
            JudgeReport(
                judge=judge,
                games=int(mine.sum()),
                agreement=round(agreed / compared, 4) if compared else None,
                compared=compared,
                position_bias=round(float(strengths.side[number]), 4),
                position_bias_sd=round(float(strengths.covariance[index, index]) ** 0.5, 4),
                first_share=round(float(table.points[mine].mean()), 4),
            )
        )
    return tuple(reports)
