"""Odd sets of results: whatever somebody hands in, the ranking is finite, repeatable and without a jump."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations
from random import Random

import numpy as np
import pytest

from clara_eval.ranking import Ranking, Result, rank, tally
from clara_eval.ranking.results import equal_records

ITEMS = [f"i{k:02}" for k in range(12)]
PAIRS = list(combinations(ITEMS, 2))
FOUR = tuple(ITEMS[:4])
ODD: dict[str, list[Result]] = {
    "nothing": [],
    "one result": [Result("i00", "i01", "first")],
    "all ties": [Result(a, b, "tie") for a, b in PAIRS],
    "one undefeated, the others level": [Result(a, b, "first" if a == "i00" else "tie") for a, b in PAIRS],
    "a perfect line in both orders": [Result(a, b, "first" if a < b else "second") for a, b in permutations(ITEMS, 2)],
    "two groups that never met": [Result(a, b, "first") for a, b in PAIRS if (a < "i06") == (b < "i06")],
    "every result five times": [Result(a, b, "first") for a, b in PAIRS] * 5,
    "thousands of one pair": [Result("i00", "i01", "first")] * 3000,
    "a circle of everybody": [Result(a, b, "first") for a, b in zip(ITEMS, [*ITEMS[1:], ITEMS[0]], strict=True)],
    "whoever is shown first wins": [Result(a, b, "first") for a, b in permutations(ITEMS, 2)],
    "judges of opposite opinions": [Result(a, b, w, w) for a, b in PAIRS for w in ("first", "second")],
    "one order of four, again and again": [Result(a, b, "first", "", FOUR) for a, b in combinations(FOUR, 2)] * 60,
}


def ranked(results: list[Result]) -> Ranking:
    return rank(tally(ITEMS, results), seed=b"odd", winner_count=3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", ODD)
def test_odd_results_give_a_sane_ranking(case: str) -> None:
    """No warning, no infinity, the same in any order of arrival; intervals hold the rating, ranges hold a rank, and
    "clear" is not said where the paid set is a guess.
    """
    results = ODD[case]
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        found = ranked(results)
    assert repr(found) == repr(ranked(Random(1).sample(results, len(results))))
    for standing in found.standings:
        assert standing.low - 0.05 <= standing.elo <= standing.high + 0.05
        assert standing.high - standing.low < 4000
        assert standing.theta_low - 1e-4 <= standing.theta <= standing.theta_high + 1e-4
        assert 1 <= standing.rank_low <= standing.rank_high <= len(ITEMS)
    assert sum(standing.p_top for standing in found.standings) == pytest.approx(3, abs=1e-3)
    assert {margin.word for margin in found.margins if margin.set_chance < 0.85} <= {"toss-up", "uncertain"}


@pytest.mark.parametrize("seed", range(3))
def test_no_result_makes_a_range_jump(seed: int) -> None:
    """From none at all on, each further result moves no end of a range by more than four places of twelve."""
    rng = Random(seed)
    played: list[Result] = []
    before: dict[str, tuple[int, int]] = {}
    for a, b in rng.sample(PAIRS, 40):
        ends = {standing.item: (standing.rank_low, standing.rank_high) for standing in ranked(played).standings}
        assert all(abs(a - b) <= 4 for item, old in before.items() for a, b in zip(ends[item], old, strict=True))
        played.append(Result(a, b, rng.choice(("first", "second", "tie"))))
        before = ends


def test_equal_records_of_a_long_chain_are_found() -> None:
    """Where every step splits off two more, two hundred entries end in a hundred pairs, mirrored about the middle."""
    items = [f"{k:04}" for k in range(200)]
    classes = equal_records(tally(items, [Result(a, b, "tie") for a, b in pairwise(items)]))
    assert np.array_equal(classes, classes[::-1])
    assert len(set(classes.tolist())) == 100
