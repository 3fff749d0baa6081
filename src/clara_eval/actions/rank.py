"""Rank pairwise results: from triples, from a CSV file, or simulated with a known truth."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput
from clara_eval.ranking import Ranking, Standing, rank
from clara_eval.ranking.pairwise_csv import read_pairwise
from clara_eval.ranking.payout import checked_payout
from clara_eval.ranking.plots import quality_svg, ratings_svg, win_matrix_svg
from clara_eval.ranking.rank import rank_table
from clara_eval.ranking.results import Result
from clara_eval.ranking.simulator import Point, quality_against_calls

if TYPE_CHECKING:
    from clara_eval.ranking.results import Winner

__all__ = [
    "Point",
    "Ranking",
    "Standing",
    "Verdict",
    "payout_shares",
    "rank_comparisons",
    "rank_file",
    "ranking_document",
    "simulate",
]

Verdict = Literal["left", "right", "tie"]
_SIDES: dict[str, Winner] = {"left": "first", "right": "second", "tie": "tie"}
_FITTED = frozenset(("theta", "thetaLow", "thetaHigh", "pRank"))
"""Fields of a standing that `strength` sums up."""


def rank_comparisons(games: Iterable[tuple[str, str, Verdict]], payout_bps: Sequence[int]) -> Ranking:
    """Rank items by (left, right, winner) triples in any order."""
    results = []
    for number, game in enumerate(games):
        if not _is_comparison(game):
            raise BadInput(
                f"Game {number} {str(game)[:200]} is not a comparison of two items.",
                path=f"games[{number}]",
                remedy='Give two different names and "left", "right" or "tie".',
            )
        left, right, winner = game
        results.append(Result(left, right, _SIDES[winner]))
    items = sorted({item for result in results for item in (result.first, result.second)})
    return rank(items, results, seed=None, winner_count=len(payout_bps), payout_bps=payout_bps)


def _is_comparison(game: object) -> bool:
    """Programs without types call this too."""
    if not isinstance(game, Sequence) or len(game) != 3 or not all(isinstance(part, str) and part for part in game):
        return False
    return game[0] != game[1] and game[2] in _SIDES


def payout_shares(text: str, winners: int | None) -> tuple[int, ...]:
    """Read `equal`, `top3` or a list of basis points."""
    if text in ("", "equal"):
        return checked_payout(3 if winners is None else winners, None)
    try:
        shares = (6000, 2500, 1500) if text == "top3" else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(
            f"--payout {text!r} is not a list of basis points.",
            value=text,
            remedy="Write shares such as 6000,2500,1500 that sum to 10000, or top3, or equal.",
        ) from None
    return checked_payout(len(shares) if winners is None else winners, shares)


def rank_file(
    file: Path, payout: tuple[int, ...], *, literal: bool, with_plots: bool
) -> tuple[Ranking, dict[str, str]]:
    """Rank a CSV file (`left,right,winner`); SVG plots by file name."""
    gc.disable()  # a million rows are no garbage, and collecting among them takes a second
    games = read_pairwise(file)
    table = games.table.in_canonical_order()
    ranking = rank_table(
        table,
        seed=None,
        winner_count=len(payout),
        payout_bps=payout,
        in_given_order=games.table if literal else None,
    )
    plots = {"ratings.svg": ratings_svg(ranking), "matrix.svg": win_matrix_svg(ranking, table)} if with_plots else {}
    return ranking, plots


def ranking_document(ranking: Ranking) -> dict[str, object]:
    rows = []
    for standing in ranking.standings:
        fields = {name: value for name, value in to_camel_json(standing).items() if name not in _FITTED}
        rows.append({**fields, "strength": standing.strength, "tiedWith": ranking.tied_with(standing.item)})
    return {
        "ranking": rows,
        "winnerCount": ranking.winner_count,
        "payoutBps": list(ranking.payout_bps),
        "margin": {**to_camel_json(ranking.margin), "sentence": ranking.margin.sentence},
        "expectedMisallocation": ranking.misallocation,
        "positionBias": ranking.position_bias,
        **to_camel_json(ranking.consistency),
        "flags": to_camel_json(ranking.flags),
        "results": ranking.results,
        "method": "elo, single pass" if ranking.literal else "elo, mean of 100 permutations",
        "orderedBy": ranking.ordered_by,
    }


def simulate(
    size: int, trials: int, seed: int, schedule: str, payout: tuple[int, ...]
) -> tuple[list[Point], dict[str, str]]:
    """Simulate challenges: what each schedule's calls buy, and an SVG plot by file name."""
    found = quality_against_calls(size, trials, seed, payout)
    points = [point for point in found if schedule in ("all", point.schedule)]
    return points, {"quality.svg": quality_svg(points)}
