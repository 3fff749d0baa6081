"""Elo: the fast mean over permutations is the plain formula, replayed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.ranking.elo import (
    PERMUTATIONS,
    chain_score,
    deal_rounds,
    elo,
    expected,
    literal_elo,
    row_order,
    shuffle,
)
from clara_eval.ranking.results import Ints


def permutation(rows: Ints, seed: bytes, number: int) -> Ints:
    """Positions in the sorted results, in the order in which permutation `number` processes them."""
    played = rows[row_order(rows, seed, number)].ravel()
    return played[played >= 0]


def naive(size: int, games: list[tuple[int, int, float]]) -> list[float]:
    ratings = [1500.0] * size
    for a, b, points in games:
        change = 32 * (points - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400)))
        ratings[a] += change
        ratings[b] -= change
    return ratings


@st.composite
def tournaments(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, float]]]:
    size = draw(st.integers(2, 9))
    pair = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda ab: ab[0] != ab[1])
    games = draw(st.lists(st.tuples(pair, st.sampled_from([0.0, 0.5, 1.0])), max_size=60))
    return size, [(a, b, points) for (a, b), points in games]


def columns(games: list[tuple[int, int, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(games).reshape(-1, 3)
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2]


@pytest.mark.specification("3.3", "Same pairwise results always produce the same ELO scores")
@settings(max_examples=40, deadline=None)
@given(tournaments())
def test_mean_over_permutations_is_the_naive_loop_over_each_of_them(
    case: tuple[int, list[tuple[int, int, float]]],
) -> None:
    """The published rating is the mean of 100 naive passes over the permutations that are spelled out."""
    size, games = case
    first, second, points = columns(games)
    plan = deal_rounds(size, first, second, b"seed")
    passes = [naive(size, [games[i] for i in permutation(plan, b"seed", p)]) for p in range(PERMUTATIONS)]
    assert np.allclose(np.mean(passes, axis=0), elo(size, first, second, points, b"seed"), atol=2e-6, rtol=0)


@settings(max_examples=60, deadline=None)
@given(tournaments(), st.integers(0, PERMUTATIONS - 1))
def test_a_permutation_holds_every_result_once_and_no_item_twice_in_a_round(
    case: tuple[int, list[tuple[int, int, float]]], number: int
) -> None:
    """Rounds are conflict-free, and their order loses or repeats nothing."""
    size, games = case
    first, second, _ = columns(games)
    plan = deal_rounds(size, first, second, b"s")
    assert sorted(permutation(plan, b"s", number).tolist()) == list(range(len(games)))
    for row in plan.tolist():
        players = [player for i in row if i >= 0 for player in games[i][:2]]
        assert len(players) == len(set(players))


@settings(max_examples=40, deadline=None)
@given(tournaments())
def test_points_only_move_between_items(case: tuple[int, list[tuple[int, int, float]]]) -> None:
    """The sum of all ratings stays 1500 per item."""
    size, games = case
    assert abs(float(elo(size, *columns(games), b"x").sum()) - 1500 * size) < 1e-5 * size
    assert abs(float(literal_elo(size, *columns(games)).sum()) - 1500 * size) < 1e-5 * size


def test_expected_score_is_the_logistic_of_the_difference() -> None:
    """The table look-up agrees with the closed formula and saturates without overflow."""
    gaps = np.concatenate((np.linspace(-3000, 3000, 5001), [-1e6, 1e6]))
    with np.errstate(over="ignore"):
        assert np.allclose(expected(gaps), 1 / (1 + 10 ** (-gaps / 400)), atol=1e-13, rtol=0)


def test_known_bits_of_the_permutation_source() -> None:
    """The shuffle is SHAKE-256 and nothing else: these orders may never change."""
    assert shuffle(8, b"challenge", "results").tolist() == [7, 4, 0, 3, 6, 2, 5, 1]
    first, second = np.array([0, 0, 0, 1, 1, 2]), np.array([1, 2, 3, 2, 3, 3])
    ratings = elo(4, first, second, np.array([1.0, 1.0, 0.5, 1.0, 0.0, 1.0]), b"challenge")
    assert ratings.tolist() == [1530.529534, 1484.734159, 1484.733429, 1500.002878]


def test_every_second_permutation_is_the_one_before_backwards() -> None:
    """Late and early games change places, so that neither end of the order counts more."""
    first, second = np.array([0, 0, 0, 1, 1, 2]), np.array([1, 2, 3, 2, 3, 3])
    plan = deal_rounds(4, first, second, b"s")
    home = {game: number for number, row in enumerate(plan.tolist()) for game in row if game >= 0}
    for number in range(0, PERMUTATIONS, 2):
        order, back = (
            [home[game] for game in permutation(plan, b"s", which).tolist()] for which in (number, number + 1)
        )
        assert order == back[::-1]


@pytest.mark.specification("3.3", "Final ELO scores map to the range 0-10000")
def test_score_on_chain_is_the_expected_share_in_basis_points() -> None:
    """1500 maps to 5000, far ratings stay inside 0–10000."""
    assert [chain_score(rating) for rating in (1500, 1900, 1100, 1e6, -1e6)] == [5000, 9091, 909, 10000, 0]
