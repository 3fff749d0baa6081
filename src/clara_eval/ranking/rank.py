"""From verdicts to standings: Elo as specified decides who is paid, the model says how sure that is.

Invariant: the same results give the same bytes in every order of arrival. Equal records have exactly equal Elo; among
them the earlier submission is first (`tie_break`, lower is earlier), then the lower name (`by_name`) or index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from clara_eval.core.errors import BadInput
from clara_eval.ranking.chances import Chances, PayMargin, count_chances, margins, misallocation, without_noise
from clara_eval.ranking.consistency import ConsistencyReport, examine
from clara_eval.ranking.elo import DECIMALS, START, chain_score, elo, literal_elo
from clara_eval.ranking.model import ELO_PER_LOGIT, REPEATING, fit
from clara_eval.ranking.results import (
    Floats,
    Ints,
    Tally,
    checked_payout,
    content_hash,
    equal_records,
    in_order,
    level,
    tied_places,
)

OrderedBy = Literal["elo", "elo, then strength", "elo without repeats", "elo without repeats, then strength"]
FITTED_FROM = 10  # items: smaller fields are played in full
REPLAYED = 20_000  # items × results: up to 27 items in both orders are rated again with other results
MOST_CLUSTERS = 20  # each is a ranking of its own
MOST_TURNED = 12  # verdicts: more decide nothing by chance
MOST_TIED = 10  # names listed beside one entry; the groups are listed whole, once


@dataclass(frozen=True, slots=True)
class Standing:
    """One item's place; it is by 90 % between `rank_low` and `rank_high`, and `low` and `high` are the Elo there."""

    item: str
    rank: int
    elo: float
    score: int
    low: float
    high: float
    p_top: float
    wins: int
    losses: int
    ties: int
    theta: float
    theta_low: float
    theta_high: float
    rank_low: int
    rank_high: int
    p_rank: tuple[float, ...]

    @property
    def strength(self) -> float:
        """Bradley–Terry strength on an Elo-like scale: 1500 + 173.7178 θ."""
        return round(START + ELO_PER_LOGIT * self.theta, 1)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Standings, best first, and how far to trust them; `ties` are groups that only arrival put in order."""

    standings: tuple[Standing, ...]
    winner_count: int
    payout_bps: tuple[int, ...]
    margin: PayMargin
    margins: tuple[PayMargin, ...]
    misallocation: float
    deciding_verdicts: int | None
    """The fewest verdicts found whose reversal pays others; None if it was not looked for, or more than twelve."""
    position_bias: float
    consistency: ConsistencyReport
    results: int
    literal: bool
    ties: tuple[tuple[str, ...], ...] = ()
    ordered_by: OrderedBy = "elo"

    def tied_with(self, item: str) -> list[str]:
        """Others with exactly the rating of this item, at most ten of them."""
        return [other for group in self.ties if item in group for other in group if other != item][:MOST_TIED]

    @property
    def winners(self) -> tuple[str, ...]:
        return tuple(standing.item for standing in self.standings[: self.winner_count])


def rate(table: Tally, seed: bytes, *, repeats: bool = True) -> Floats:
    """The published Elo of every item: order-free, and the same for equal records; perhaps without repeats."""
    columns = (table.first, table.second, table.points) if repeats else table.without_repeats()
    return level(elo(table.size, *columns, seed), equal_records(table), DECIMALS)


def rank(
    table: Tally,
    *,
    seed: bytes | None,
    winner_count: int,
    payout_bps: Sequence[int] | None = None,
    tie_break: Mapping[str, int] | None = None,
    by_name: bool = False,
    clusters: Mapping[str, str] | None = None,
    literal: bool = False,
    exact: bool = False,
) -> Ranking:
    """Rank the items of a table: `literal` in a single pass over its rows, `exact` if the verdicts are arithmetic."""
    payout = checked_payout(winner_count, payout_bps)
    if not table.items:
        raise BadInput("There is nothing to rank.", path="items", remedy="Hand in at least one item.")
    strengths, is_complete = fit(table), table.is_complete
    repeats = not table.read_off or strengths.same < REPEATING
    seed = content_hash(table) if seed is None else seed
    paying = _Paying(seed, winner_count, tie_break or {}, by_name, literal, repeats)
    theta = level(np.round(strengths.theta, DECIMALS), equal_records(table), DECIMALS)
    ratings = paying.rate(table)
    order = paying.in_order(table, ratings)
    ordered_by: OrderedBy = "elo" if repeats else "elo without repeats"
    if table.size >= FITTED_FROM and not is_complete and not literal:
        ordered_by = "elo, then strength" if repeats else "elo without repeats, then strength"
        order[winner_count:] = paying.in_order(table, theta, order[winner_count:])
    report = examine(table, strengths, *paying.pivotal(table, order, clusters or {}))
    if exact and is_complete and not report.cycles:
        strengths = without_noise(strengths, theta)
    chances = count_chances(strengths, winner_count)
    paid = margins(table.items, order, ratings, chances, winner_count)
    return Ranking(
        standings=_standings(table, order, ratings, strengths.theta, chances),
        winner_count=winner_count,
        payout_bps=payout,
        margin=paid[-1],
        margins=paid,
        misallocation=misallocation(chances.places, order, payout),
        deciding_verdicts=paying.deciding_verdicts(table, order),
        position_bias=report.position_bias,
        consistency=report,
        results=len(table.first),
        literal=literal,
        ordered_by=ordered_by,
        ties=tuple(tuple(table.items[i] for i in group) for group in tied_places(order, ratings)),
    )


@dataclass(frozen=True, slots=True)
class _Paying:
    """What decides who is paid, beside the results."""

    seed: bytes
    winner_count: int
    arrival: Mapping[str, int]
    by_name: bool
    literal: bool
    repeats: bool

    def rate(self, table: Tally) -> Floats:
        if self.literal:
            return literal_elo(table.size, table.first, table.second, table.points)
        return rate(table, self.seed, repeats=self.repeats)

    def in_order(self, table: Tally, ratings: Floats, among: Sequence[int] | None = None) -> list[int]:
        return in_order(table.items, ratings, self.arrival, by_name=self.by_name, among=among)

    def paid(self, table: Tally) -> set[str]:
        order = self.in_order(table, self.rate(table))
        return {table.items[i] for i in order[: self.winner_count]}

    def pivotal(
        self, table: Tally, order: Sequence[int], clusters: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Unpaid items, if that is cheap, and clusters of several, without which others of the rest would be paid."""
        if table.size <= self.winner_count:
            return (), ()
        unpaid = order[self.winner_count :] if table.size * len(table.first) <= REPLAYED else []
        known = {item: clusters[item] for item in table.items if item in clusters}
        heads = sorted(head for head, count in Counter(known.values()).items() if count > 1)[:MOST_CLUSTERS]
        members = {head: [i for i, item in enumerate(table.items) if known.get(item) == head] for head in heads}
        return (
            tuple(sorted(table.items[i] for i in unpaid if self._decide(table, order, [i]))),
            tuple(head for head in heads if self._decide(table, order, members[head])),
        )

    def deciding_verdicts(self, table: Tally, order: Sequence[int]) -> int | None:
        """Turn verdicts against a paid item and for an unpaid one until others are paid: those of the two first."""
        paid, best = self.winner_count, MOST_TURNED + 1
        if table.size <= paid or table.size * len(table.first) > REPLAYED:
            return None
        now = {table.items[i] for i in order[:paid]}
        lines = [(paid - 1, paid), (paid - 1, paid + 1), (paid - 2, paid)]
        for above, below in ((a, b) for a, b in lines if a >= 0 and b < table.size):
            half_points = table.half_points.copy()
            for count, row in enumerate(turnable(table, order[above], order[below])[: best - 1], 1):
                lost = order[above] == table.first[row] or order[below] == table.second[row]
                half_points[row] = 0 if lost else 2
                if self.paid(replace(table, half_points=half_points)) != now:
                    best = count
                    break
        return best if best <= MOST_TURNED else None

    def _decide(self, table: Tally, order: Sequence[int], out: Sequence[int]) -> bool:
        """Whether others of the rest would be paid had these not taken part."""
        rest = [table.items[i] for i in order if i not in out][: self.winner_count]
        return bool(rest) and set(rest) != self.paid(table.without(out))


def turnable(table: Tally, above: int, below: int) -> list[int]:
    """Rows that can still be turned against `above` and for `below`: those of the two, then the others, by position."""
    first, second, half = table.first, table.second, table.half_points
    against = ((first == above) & (half > 0)) | ((second == above) & (half < 2))
    favour = ((first == below) & (half < 2)) | ((second == below) & (half > 0))
    both = against & favour
    return [*np.flatnonzero(both).tolist(), *np.flatnonzero((against | favour) & ~both).tolist()]


def _standings(
    table: Tally, order: Sequence[int], ratings: Floats, fitted: Floats, chances: Chances
) -> tuple[Standing, ...]:
    record, centred = _record(table), fitted - fitted.mean()
    elo_at, theta_at = (np.sort(values)[::-1] for values in (ratings, centred))
    standings = []
    for place, i in enumerate(order, 1):
        rating, theta = float(ratings[i]), float(centred[i])
        best, worst = int(chances.rank_low[i]), int(chances.rank_high[i])
        standings.append(
            Standing(
                item=table.items[i],
                rank=place,
                elo=rating,
                score=chain_score(rating),
                low=round(min(rating, float(elo_at[worst - 1])), 1),
                high=round(max(rating, float(elo_at[best - 1])), 1),
                p_top=float(chances.p_top[i]),
                wins=int(record[0, i]),
                losses=int(record[1, i]),
                ties=int(record[2, i]),
                theta=round(theta, 6),
                theta_low=round(min(theta, float(theta_at[worst - 1])), 4),
                theta_high=round(max(theta, float(theta_at[best - 1])), 4),
                rank_low=best,
                rank_high=worst,
                p_rank=tuple(float(p) for p in chances.p_rank[i]),
            )
        )
    return tuple(standings)


def _record(table: Tally) -> Ints:
    """Wins, losses and ties of each item."""
    ahead, behind = (
        [np.bincount(side[table.half_points == half], minlength=table.size) for half in (2, 1, 0)]
        for side in (table.first, table.second)
    )
    return np.stack((ahead[0] + behind[2], ahead[2] + behind[0], ahead[1] + behind[1])).astype(np.int64)
