"""How far the verdicts agree with one another, with swapped sides, between judges, and without any one item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from clara_eval.ranking.strength import (
    Strengths,
    cell_keys,
    fit_without,
    merge,
    one_thread,
    picture,
)
from clara_eval.ranking.tally import Floats, Ints, Tally, connected_groups

REFIT_LIMIT = 100_000  # groups × items²: up to 46 single items are fitted again, beyond that first order


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
    """Counts and shares; a share is None where nothing could be compared."""

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


def examine(table: Tally, strengths: Strengths, winner_count: int, clusters: Mapping[str, str]) -> ConsistencyReport:
    """The whole report."""
    beats = net_wins(table)
    cycles, triples = count_cycles(beats)
    same, swaps, judges = _asked(table, strengths)
    played = np.bincount(table.first, minlength=table.size) + np.bincount(table.second, minlength=table.size)
    return ConsistencyReport(
        cycles=cycles,
        decided_triples=triples,
        cyclic_share=round(cycles / triples, 4) if triples else None,
        coverage=round(_pairs(table) / max(1, comb(table.size, 2)), 4),
        swap_consistency=round(same / swaps, 4) if swaps else None,
        swaps=swaps,
        judges=judges,
        groups=_groups(table),
        unplayed=tuple(table.items[i] for i in np.flatnonzero(played == 0)),
        pivotal_items=_pivotal(table, strengths, winner_count, {item: item for item in table.items}),
        pivotal_clusters=_pivotal(table, strengths, winner_count, _shared(table.items, clusters)),
    )


def net_wins(table: Tally) -> npt.NDArray[np.bool_]:
    """W[i, j]: i has more points than j over all their games."""
    size = table.size
    pairs = table.first * size
    pairs += table.second
    lead = np.bincount(pairs, table.half_points - 1, size * size).reshape(size, size)
    beats: npt.NDArray[np.bool_] = lead > lead.T
    return beats


def count_cycles(beats: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Cyclic and decided triples: Σ((W·W)∘Wᵀ)/3 and Σ((U·U)∘U)/6 with U = W or Wᵀ."""
    # Entries stay below 2^24, so 32-bit floats hold them exactly; the sums are taken in 64 bits.
    w = beats.astype(np.float32)
    u = w + w.T
    with one_thread():
        cyclic = float(np.sum((w @ w) * w.T, dtype=np.float64))
        decided = float(np.sum((u @ u) * u, dtype=np.float64))
    return round(cyclic / 3), round(decided / 6)


def _pairs(table: Tally) -> int:
    """How many pairs met."""
    low, high = np.minimum(table.first, table.second), np.maximum(table.first, table.second)
    return int(np.count_nonzero(np.bincount(low * table.size + high, minlength=1)))


@dataclass(frozen=True, slots=True)
class _Cells:
    """Questions (first, second, judge) as sorted keys, their net verdicts (+1, 0, −1), keys of the swapped ones and
    their places among the sorted keys, −1 where they were not asked.
    """

    found: Ints
    net: Ints
    swapped: Ints
    turned: Ints


def _cells(table: Tally) -> _Cells:
    judges = max(1, len(table.judges))
    key = cell_keys(table, judges)
    count = table.size * table.size * judges
    found = np.flatnonzero(np.bincount(key, minlength=count))
    net = np.sign(np.bincount(key, table.half_points - 1, count)[found]).astype(np.int64)
    del key
    place = np.full(count, -1, dtype=np.int64)
    place[found] = np.arange(len(found))
    swapped = _swapped(found, table.size, judges)
    return _Cells(found, net, swapped, place[swapped])


def _swapped(found: Ints, size: int, judges: int) -> Ints:
    """The keys of the same questions the other way round, in as few tables as they take."""
    pair, judge = (found, None) if judges == 1 else np.divmod(found, judges)
    swapped: Ints = pair % size
    swapped *= size
    swapped += pair // size
    if judge is not None:
        swapped *= judges
        swapped += judge
    return swapped


def _asked(table: Tally, strengths: Strengths) -> tuple[int, int, tuple[JudgeReport, ...]]:
    """Of questions asked in both orders how many kept their verdict, how many there are, and what each judge said."""
    cells = _cells(table)
    return *_swaps(cells), _judges(table, strengths, cells)


def _swaps(cells: _Cells) -> tuple[int, int]:
    """Questions asked in both orders to one judge: how many kept their verdict, how many there are."""
    both = (cells.turned >= 0) & (cells.found < cells.swapped)
    kept = cells.net[both] == -cells.net[cells.turned[both]]
    return int(np.sum(kept)), int(np.sum(both))


def _judges(table: Tally, strengths: Strengths, cells: _Cells) -> tuple[JudgeReport, ...]:
    agreement = _agreement(len(table.judges), cells)
    reports = []
    for number, judge in enumerate(table.judges):
        mine = table.judge == number
        agreed, compared = agreement[number]
        spot = table.size + number
        reports.append(
            JudgeReport(
                judge=judge,
                games=int(mine.sum()),
                agreement=round(agreed / compared, 4) if compared else None,
                compared=compared,
                position_bias=round(float(strengths.bias[number]), 4),
                position_bias_sd=round(float(strengths.covariance[spot, spot]) ** 0.5, 4),
                first_share=round(float(table.points[mine].mean()), 4),
            )
        )
    return tuple(reports)


def _agreement(judges: int, cells: _Cells) -> list[tuple[int, int]]:
    """For each judge: (same net verdict, questions) over all questions another judge was asked too."""
    if judges < 2:
        return [(0, 0)] * judges
    pair, judge = np.divmod(cells.found, judges)
    net = cells.net
    verdicts = [dict(zip(pair[judge == g].tolist(), net[judge == g].tolist(), strict=True)) for g in range(judges)]
    counts = []
    for mine in range(judges):
        shared = [
            verdicts[mine][question] == verdict
            for other in range(judges)
            if other != mine
            for question, verdict in verdicts[other].items()
            if question in verdicts[mine]
        ]
        counts.append((sum(shared), len(shared)))
    return counts


def _groups(table: Tally) -> int:
    """Connected groups of items; more than one means that some were never compared, even through others."""
    met = np.zeros((table.size, table.size), dtype=bool)
    met[table.first, table.second] = True
    return int(connected_groups(met).max(initial=-1)) + 1


def _shared(items: tuple[str, ...], clusters: Mapping[str, str]) -> dict[str, str]:
    """Cluster of each item, only for clusters of at least two."""
    known = {item: clusters[item] for item in items if item in clusters}
    sizes = Counter(known.values())
    return {item: name for item, name in known.items() if sizes[name] > 1}


def _pivotal(table: Tally, strengths: Strengths, winner_count: int, label: Mapping[str, str]) -> tuple[str, ...]:
    """Labels without whose items somebody else among the rest would be paid."""
    names = sorted(set(label.values()))
    if table.size <= winner_count or not names:
        return ()
    number = {name: k for k, name in enumerate(names)}
    group = np.array([number[label[item]] if item in label else -1 for item in table.items])
    shifted = _without(table, strengths, group, len(names))
    base = np.argsort(-strengths.theta, kind="stable")
    changed = []
    for name, theta in zip(names, shifted, strict=True):
        stays = group[base] != number[name]
        before = base[stays][:winner_count]
        after = base[stays][np.argsort(-theta[base[stays]], kind="stable")][:winner_count]
        if set(before.tolist()) != set(after.tolist()):
            changed.append(name)
    return tuple(changed)


def _without(table: Tally, strengths: Strengths, group: Ints, groups: int) -> Floats:
    """θ had a group not taken part, one row per group."""
    if groups * table.size**2 > REFIT_LIMIT:
        return strengths.theta + shift_without(table, strengths, group, groups)
    return fit_without(table, strengths, group, groups)


def shift_without(table: Tally, strengths: Strengths, group: Ints, groups: int) -> Floats:
    """First-order change of θ when all games of a group are taken out, one row per group."""
    cells, total, scale = merge(table), len(strengths.covariance), strengths.scale
    seen = picture(cells, np.append(strengths.theta, strengths.bias) / scale.blur, scale.tie)
    rest = cells.weights(seen.variance, scale) * (cells.points - cells.games * seen.mean) / scale.blur
    size, first, second, judge = cells.size, cells.first, cells.second, cells.judge
    del seen, cells  # each of their columns is as large as a table
    pull = np.zeros(groups * total)
    for side, other in ((first, None), (second, first)):
        place = group[side]
        mine = place >= 0 if other is None else (place >= 0) & (place != group[other])
        kept = slice(None) if mine.all() else np.flatnonzero(mine)
        place, told = place[kept], rest[kept]
        place *= total
        pull += np.bincount(place + first[kept], told, groups * total)
        pull -= np.bincount(place + second[kept], told, groups * total)
        pull += np.bincount(place + (size + judge[kept]), told, groups * total)
    with one_thread():
        shift: Floats = -(pull.reshape(groups, total) @ strengths.covariance)[:, :size]
    return np.round(shift, 9)
