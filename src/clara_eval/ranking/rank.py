"""From verdicts to standings: Elo as specified decides who is paid, Bradley–Terry says how sure it is.

In come items in canonical order, results in any order, a seed (the challenge) and the pay line; out goes a `Ranking`.
What must hold: the same set of results gives the same bytes in every order of arrival. Equal records have exactly equal
Elo (`ties`); among them the earlier submission comes first (`tie_break`, lower is earlier), then the lower address
(`by_name`), else the lower canonical index. Below the pay line the order is Elo's too, except in larger fields in which
some never met: there Elo has seen the lower places too rarely, and the fitted strength orders them. Where orders of
several were asked for, the fitted strength orders all places and gives the scores. It refuses unknown items, items
against themselves, and a pay line below one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from clara_eval.core.errors import BadInput
from clara_eval.core.flags import Flag
from clara_eval.ranking.consistency import ConsistencyReport, examine
from clara_eval.ranking.elo import DECIMALS, START, elo, literal_elo
from clara_eval.ranking.elo import score as chain_score
from clara_eval.ranking.estimate import estimate
from clara_eval.ranking.flags import raise_flags
from clara_eval.ranking.payout import checked_payout
from clara_eval.ranking.results import Result
from clara_eval.ranking.strength import ELO_PER_LOGIT, Strengths
from clara_eval.ranking.tally import (
    Floats,
    Ints,
    Tally,
    content_hash,
    tally,
)
from clara_eval.ranking.ties import (
    equal_records,
    in_order,
    level,
    tie_flags,
    tied_places,
)
from clara_eval.ranking.uncertainty import (
    Chances,
    PayMargin,
    chances,
    margins,
    misallocation,
    without_noise,
)

T = TypeVar("T")
OrderedBy = Literal["elo", "elo, then strength", "strength"]
FITTED_FROM = 10  # items
SLOPE_WEIGHT = 4.0  # logits² of spread at which the ratings count as much as the prior on their scale
WORTH_A_THREAD = 50_000  # results
WORTH_THE_MEMORY = 500_000  # of more than these in a round of the service, only one holds its tables at a time
REPLAYED = 20_000  # items × results: up to 27 items in both orders are rated again without each of them
MOST_TIED = 10  # names listed beside one entry; the groups are listed whole, once


@dataclass(frozen=True, slots=True)
class Standing:
    """One item's place. `low` and `high` are the 95 % interval on the scale of the published Elo."""

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
    """Standings, best first, and everything that says how far to trust them. `ties` lists the groups with exactly the
    same rating, in which only arrival decided who stands first.
    """

    standings: tuple[Standing, ...]
    winner_count: int
    payout_bps: tuple[int, ...]
    margin: PayMargin
    margins: tuple[PayMargin, ...]
    misallocation: float
    position_bias: float
    consistency: ConsistencyReport
    flags: tuple[Flag, ...]
    results: int
    literal: bool
    ties: tuple[tuple[str, ...], ...] = ()
    ordered_by: OrderedBy = "elo"
    """`elo`; `elo, then strength`: paid places by Elo, those below by fitted strength; or `strength` throughout."""

    def tied_with(self, item: str) -> list[str]:
        """Others with exactly the rating of this item, at most ten of them."""
        return [other for group in self.ties if item in group for other in group if other != item][:MOST_TIED]

    @property
    def cycles(self) -> int:
        return self.consistency.cycles

    @property
    def decided_triples(self) -> int:
        return self.consistency.decided_triples

    @property
    def winners(self) -> tuple[str, ...]:
        return tuple(standing.item for standing in self.standings[: self.winner_count])


def rank(
    items: Sequence[str],
    results: Sequence[Result],
    *,
    seed: bytes | None,
    winner_count: int,
    payout_bps: Sequence[int] | None = None,
    tie_break: Mapping[str, int] | None = None,
    by_name: bool = False,
    clusters: Mapping[str, str] | None = None,
    literal: bool = False,
    features: Floats | None = None,
) -> Ranking:
    """Rank the items. The seed names the challenge; None takes a hash of the results themselves. `literal` is the
    specification's single pass over the results in the order given. With `features` (rows in the order of the items)
    strengths are those of kinds of entries first, and each entry's own as far as its games say so.
    """
    return rank_table(
        tally(items, results),
        seed=seed,
        winner_count=winner_count,
        payout_bps=payout_bps,
        tie_break=tie_break,
        by_name=by_name,
        clusters=clusters,
        features=features,
        in_given_order=tally(items, results, in_given_order=True) if literal else None,
    )


def rank_table(
    table: Tally,
    *,
    seed: bytes | None,
    winner_count: int,
    payout_bps: Sequence[int] | None = None,
    tie_break: Mapping[str, int] | None = None,
    by_name: bool = False,
    clusters: Mapping[str, str] | None = None,
    features: Floats | None = None,
    in_given_order: Tally | None = None,
    exact: bool = False,
) -> Ranking:
    """The same from columns in canonical order; `in_given_order` holds them as given, for the literal pass. `exact`
    says that the verdicts are arithmetic: where everybody met and no verdicts contradict each other, nothing is
    uncertain but ties.
    """
    payout = checked_payout(winner_count, payout_bps)
    items, literal = table.items, in_given_order is not None
    if not items:
        raise BadInput("There is nothing to rank.", path="items", remedy="Hand in at least one item.")
    classes = equal_records(table)

    thrifty = exact and len(table.first) > WORTH_THE_MEMORY

    def fitted() -> tuple[Strengths, ConsistencyReport]:
        strengths = estimate(table, features)
        return strengths, examine(table, strengths, winner_count, clusters or {})

    rate = partial(_ratings, table, in_given_order, content_hash(table) if seed is None else seed)
    ratings, (strengths, report) = _side_by_side(rate, fitted, len(table.first), thrifty=thrifty)
    ratings = ratings if literal else level(ratings, classes, DECIMALS)
    arrival = tie_break or {}
    theta = level(np.round(strengths.theta, DECIMALS), classes, DECIMALS)
    ordered_by = "elo" if literal else "strength" if features is not None else _ordered_by(table)
    order = in_order(items, theta if ordered_by == "strength" else ratings, arrival, by_name=by_name)
    if ordered_by == "elo, then strength":
        order[winner_count:] = in_order(items, theta, arrival, by_name=by_name, among=order[winner_count:])
    other = in_order(items, ratings if ordered_by == "strength" else theta, arrival, by_name=by_name)
    is_settled = exact and not report.cycles and _all_met(table)
    if is_settled:
        strengths = without_noise(strengths)
    odds = chances(strengths, winner_count)
    paid = margins(strengths, items, order, ratings, odds.draws_rank, winner_count)
    # Where nothing is uncertain, whoever leaves changes no other's place: there is nothing to play again.
    if ordered_by == "elo" and not literal and not is_settled and not report.pivotal_items:
        rated = _Rated(table, content_hash(table) if seed is None else seed, arrival, by_name)
        report = replace(report, pivotal_items=_pivotal_by_elo(rated, set(order[:winner_count])))
    return Ranking(
        standings=_standings(table, order, ratings, strengths, odds, scored_by_fit=ordered_by == "strength"),
        winner_count=winner_count,
        payout_bps=payout,
        margin=paid[-1],
        margins=paid,
        misallocation=misallocation(odds.draws_rank, order, payout),
        position_bias=report.position_bias,
        consistency=report,
        flags=(
            *tie_flags(items, order, ratings, payout, arrival),
            *_methods(items, order[:winner_count], [] if literal else other[:winner_count], ratings, theta),
            *raise_flags(report, paid[-1]),
        ),
        results=len(table.first),
        literal=literal,
        ordered_by=ordered_by,
        ties=tuple(tuple(items[i] for i in group) for group in tied_places(order, ratings)),
    )


def _side_by_side(rate: Callable[[], Floats], fit: Callable[[], T], results: int, *, thrifty: bool) -> tuple[Floats, T]:
    """Elo and the fit know nothing of each other: in large tables each has a processor of its own.

    `thrifty`: in huge ones each has its turn, as in a round by rules, beside which the service does other work.
    """
    if thrifty:
        rated = rate()
        found = fit()
        return rated, found
    if results < WORTH_A_THREAD:
        return rate(), fit()
    with ThreadPoolExecutor(1) as pool:
        rating = pool.submit(rate)
        fitted = fit()
        return rating.result(), fitted


@dataclass(frozen=True, slots=True)
class _Rated:
    """Everything that Elo's order depends on."""

    table: Tally
    seed: bytes
    arrival: Mapping[str, int]
    by_name: bool

    def without(self, item: int) -> list[int]:
        """The order that Elo gives had this item never entered."""
        table = self.table.without(item)
        ratings = level(
            elo(table.size, table.first, table.second, table.points, self.seed), equal_records(table), DECIMALS
        )
        order = in_order(table.items, ratings, self.arrival, by_name=self.by_name)
        return [place + (place >= item) for place in order]


def _pivotal_by_elo(rated: _Rated, paid: set[int]) -> tuple[str, ...]:
    """Items that are not paid and without which somebody else would be: by the very measure that pays.

    The fit may see no such item where Elo has one. Played again only while that is cheap: in larger fields one item
    is too small a part of anybody's record.
    """
    items = rated.table.items
    if len(items) * len(rated.table.first) > REPLAYED:
        return ()
    others = [item for item in range(len(items)) if item not in paid]
    return tuple(sorted(items[item] for item in others if set(rated.without(item)[: len(paid)]) != paid))


def _ratings(table: Tally, given: Tally | None, seed: bytes) -> Floats:
    if given is not None:
        return literal_elo(given.size, given.first, given.second, given.points)
    return elo(table.size, table.first, table.second, table.points, seed)


def _methods(
    items: Sequence[str], paid: Sequence[int], other: Sequence[int], ratings: Floats, theta: Floats
) -> Iterator[Flag]:
    """Told where Elo and the fit would pay different entries, unless only a tie lies between them."""
    here, there = (sorted(set(a) - set(b)) for a, b in ((paid, other), (other, paid)))
    if not other or not here or {ratings[i] for i in here} == {ratings[i] for i in there}:
        return
    if {float(theta[i]) for i in here} == {float(theta[i]) for i in there}:
        return
    mine, theirs = (", ".join(items[i] for i in side[:3]) for side in (here, there))
    yield Flag(
        "methods_disagree",
        "warn",
        f"Elo and the fitted strengths disagree about who is paid: {mine} is, by the other measure {theirs} would be.",
        evidence={"entries": len(here)},
    )


def _ordered_by(table: Tally) -> OrderedBy:
    """By fitted strength where orders of several were read off: Elo takes their pairs for games of their own. Below the
    pay line also where the schedule, or whoever made the file, chose who meets whom; small fields are played in full.
    """
    if any(table.read_off):
        return "strength"
    if table.size < FITTED_FROM:
        return "elo"
    return "elo" if _all_met(table) else "elo, then strength"


def _all_met(table: Tally) -> bool:
    """Whether every pair has a verdict."""
    low, high = np.minimum(table.first, table.second), np.maximum(table.first, table.second)
    met = np.bincount(low * table.size + high, minlength=table.size**2)
    return int(np.count_nonzero(met)) == table.size * (table.size - 1) // 2


def _standings(
    table: Tally, order: Sequence[int], ratings: Floats, strengths: Strengths, odds: Chances, *, scored_by_fit: bool
) -> tuple[Standing, ...]:
    record = _record(table)
    slope = _elo_per_theta(ratings, strengths.theta)
    centre = float(strengths.theta.mean())
    standings = []
    for place, i in enumerate(order, 1):
        theta, half = float(strengths.theta[i]) - centre, float(odds.half_width[i])
        standings.append(
            Standing(
                item=table.items[i],
                rank=place,
                elo=float(ratings[i]),
                score=chain_score(START + ELO_PER_LOGIT * round(theta, 6) if scored_by_fit else float(ratings[i])),
                low=round(float(ratings[i]) - slope * half, 1),
                high=round(float(ratings[i]) + slope * half, 1),
                p_top=float(odds.p_top[i]),
                wins=int(record[0, i]),
                losses=int(record[1, i]),
                ties=int(record[2, i]),
                theta=round(theta, 6),
                theta_low=round(theta - half, 4),
                theta_high=round(theta + half, 4),
                rank_low=int(odds.rank_low[i]),
                rank_high=int(odds.rank_high[i]),
                p_rank=tuple(float(p) for p in odds.p_rank[i]),
            )
        )
    return tuple(standings)


def _record(table: Tally) -> Ints:
    """Wins, losses and ties per item."""
    size, half = table.size, table.half_points
    ahead = [np.bincount(table.first[half == h], minlength=size) for h in (2, 1, 0)]
    behind = [np.bincount(table.second[half == h], minlength=size) for h in (2, 1, 0)]
    return np.stack((ahead[0] + behind[2], ahead[2] + behind[0], ahead[1] + behind[1])).astype(np.int64)


def _elo_per_theta(ratings: Floats, theta: Floats) -> float:
    """How many Elo points one logit is worth here: K = 32 over few games spreads less than 173.7 per logit.

    A line through the ratings, from 173.7 where nothing is known and towards what the ratings show as strengths spread,
    so that no single result makes the intervals jump.
    """
    centred = theta - theta.mean()
    shown = float(np.sum((ratings - START) * centred))
    return max(shown + SLOPE_WEIGHT * ELO_PER_LOGIT, 1.0) / (float(np.sum(centred**2)) + SLOPE_WEIGHT)
