"""Rank the items of a tournament: Elo decides who is paid, the model says how certain that is.

Invariant: equal results give equal bytes in every order of arrival. Equal records have exactly equal Elo; among them
the earlier submission is first (`tie_break`, lower is earlier), then the lower name (`by_name`) or index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from clara_eval.core.errors import BadInput
from clara_eval.ranking.chances import Chances, PayMargin, certain_strengths, count_chances, margins, misallocation
from clara_eval.ranking.consistency import ConsistencyReport, report_consistency
from clara_eval.ranking.elo import DECIMALS, START, chain_score, elo, literal_elo
from clara_eval.ranking.model import ELO_PER_LOGIT, REPEATING, fit
from clara_eval.ranking.results import (
    Floats,
    Ints,
    Tally,
    average_classes,
    checked_payout,
    content_hash,
    equal_records,
    group_ties,
    sort_items,
)

OrderedBy = Literal["elo", "elo, then strength", "elo without repeats", "elo without repeats, then strength"]
FITTED_FROM = 10  # items; smaller fields are played in full
MAX_RERATED = 20_000  # items × results, to rate again with other results: 27 items in both orders
MAX_CLUSTERS = 20  # each costs one more rating
MAX_REVERSED = 12  # verdicts; so many are not wrong by chance
MAX_TIED = 10  # names per item; `ties` has the whole groups


@dataclass(frozen=True, slots=True)
class Standing:
    """One item's place, with 90 % intervals: of its rank, and of the Elo and theta at those ranks."""

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
    """Standings, best first, and how certain they are; `ties` are groups ordered only by arrival."""

    standings: tuple[Standing, ...]
    winner_count: int
    payout_bps: tuple[int, ...]
    margin: PayMargin
    margins: tuple[PayMargin, ...]
    misallocation: float
    deciding_verdicts: int | None
    """Fewest verdicts found whose reversal changes who is paid; None above 12, or if not searched."""
    position_bias: float
    consistency: ConsistencyReport
    results: int
    literal: bool
    ties: tuple[tuple[str, ...], ...] = ()
    ordered_by: OrderedBy = "elo"

    def tied_with(self, item: str) -> list[str]:
        """Return up to ten other items with exactly this item's rating."""
        return [other for group in self.ties if item in group for other in group if other != item][:MAX_TIED]

    @property
    def winners(self) -> tuple[str, ...]:
        return tuple(standing.item for standing in self.standings[: self.winner_count])


def rate(table: Tally, seed: bytes, *, repeats: bool = True) -> Floats:
    """Return the published Elo of each item, averaged over equal records."""
    columns = (table.first, table.second, table.points) if repeats else table.without_repeats()
    return average_classes(elo(table.size, *columns, seed), equal_records(table), DECIMALS)


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
    """Rank the items; `literal` rates in one pass over the rows, `exact` verdicts have no noise."""
    payout = checked_payout(winner_count, payout_bps)
    if not table.items:
        raise BadInput("There is nothing to rank.", path="items", remedy="Hand in at least one item.")
    strengths, is_complete = fit(table), table.is_complete
    repeats = not table.read_off or strengths.same < REPEATING
    seed = content_hash(table) if seed is None else seed
    pay_rule = _PayRule(seed, winner_count, tie_break or {}, by_name, literal, repeats)
    theta = average_classes(np.round(strengths.theta, DECIMALS), equal_records(table), DECIMALS)
    ratings = pay_rule.rate(table)
    order = pay_rule.sort_items(table, ratings)
    ordered_by: OrderedBy = "elo" if repeats else "elo without repeats"
    if table.size >= FITTED_FROM and not is_complete and not literal:
        ordered_by = "elo, then strength" if repeats else "elo without repeats, then strength"
        order[winner_count:] = pay_rule.sort_items(table, theta, order[winner_count:])
    report = report_consistency(table, strengths, *pay_rule.find_pivotal(table, order, clusters or {}))
    if exact and is_complete and not report.cycles:
        strengths = certain_strengths(strengths, theta)
    chances = count_chances(strengths, winner_count)
    pay_margins = margins(table.items, order, ratings, chances, winner_count)
    return Ranking(
        standings=_standings(table, order, ratings, strengths.theta, chances),
        winner_count=winner_count,
        payout_bps=payout,
        margin=pay_margins[-1],
        margins=pay_margins,
        misallocation=misallocation(chances.places, order, payout),
        deciding_verdicts=pay_rule.deciding_verdicts(table, order),
        position_bias=report.position_bias,
        consistency=report,
        results=len(table.first),
        literal=literal,
        ordered_by=ordered_by,
        ties=tuple(tuple(table.items[i] for i in group) for group in group_ties(order, ratings)),
    )


@dataclass(frozen=True, slots=True)
class _PayRule:
    """What decides who is paid, besides the results."""

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

    def sort_items(self, table: Tally, ratings: Floats, among: Sequence[int] | None = None) -> list[int]:
        return sort_items(table.items, ratings, self.arrival, by_name=self.by_name, among=among)

    def paid(self, table: Tally) -> set[str]:
        order = self.sort_items(table, self.rate(table))
        return {table.items[i] for i in order[: self.winner_count]}

    def find_pivotal(
        self, table: Tally, order: Sequence[int], clusters: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Find unpaid items (in small rounds) and clusters whose absence would change who else is paid."""
        if table.size <= self.winner_count:
            return (), ()
        unpaid = order[self.winner_count :] if table.size * len(table.first) <= MAX_RERATED else []
        known = {item: clusters[item] for item in table.items if item in clusters}
        heads = sorted(head for head, count in Counter(known.values()).items() if count > 1)[:MAX_CLUSTERS]
        members = {head: [i for i, item in enumerate(table.items) if known.get(item) == head] for head in heads}
        return (
            tuple(sorted(table.items[i] for i in unpaid if self._changes_paid(table, order, [i]))),
            tuple(head for head in heads if self._changes_paid(table, order, members[head])),
        )

    def deciding_verdicts(self, table: Tally, order: Sequence[int]) -> int | None:
        """Count the reversed verdicts against a paid and for an unpaid item that change who is paid."""
        paid, best = self.winner_count, MAX_REVERSED + 1
        if table.size <= paid or table.size * len(table.first) > MAX_RERATED:
            return None
        now = {table.items[i] for i in order[:paid]}
        lines = [(paid - 1, paid), (paid - 1, paid + 1), (paid - 2, paid)]
        for above, below in ((a, b) for a, b in lines if a >= 0 and b < table.size):
            half_points = table.half_points.copy()
            for count, row in enumerate(reversible_rows(table, order[above], order[below])[: best - 1], 1):
                lost = order[above] == table.first[row] or order[below] == table.second[row]
                half_points[row] = 0 if lost else 2
                if self.paid(replace(table, half_points=half_points)) != now:
                    best = count
                    break
        return best if best <= MAX_REVERSED else None

    def _changes_paid(self, table: Tally, order: Sequence[int], out: Sequence[int]) -> bool:
        """Return whether others of the rest would be paid if these had not taken part."""
        rest = [table.items[i] for i in order if i not in out][: self.winner_count]
        return bool(rest) and set(rest) != self.paid(table.without(out))


def reversible_rows(table: Tally, above: int, below: int) -> list[int]:
    """Return the rows to reverse against `above` or for `below`: first those between the two."""
    first, second, half = table.first, table.second, table.half_points
    against = ((first == above) & (half > 0)) | ((second == above) & (half < 2))
    favour = ((first == below) & (half < 2)) | ((second == below) & (half > 0))
    both = against & favour
    return [*np.flatnonzero(both).tolist(), *np.flatnonzero((against | favour) & ~both).tolist()]


def _standings(
    table: Tally, order: Sequence[int], ratings: Floats, fitted: Floats, chances: Chances
) -> tuple[Standing, ...]:
    record, centred = _count_record(table), fitted - fitted.mean()
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


def _count_record(table: Tally) -> Ints:
    """Count wins, losses and ties of each item."""
    ahead, behind = (
        [np.bincount(side[table.half_points == half], minlength=table.size) for half in (2, 1, 0)]
        for side in (table.first, table.second)
    )
    return np.stack((ahead[0] + behind[2], ahead[2] + behind[0], ahead[1] + behind[1])).astype(np.int64)
