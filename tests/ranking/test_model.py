"""The model of a round: unique, finite, symmetric, and on a scale that the results show."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulated_jury import draw_jury, jury_table
from tests.support.simulation import Model, SimulatedWorld, draw_world
from threadpoolctl import ThreadpoolController

from clara_eval.core.model import Winner
from clara_eval.ranking import Group, Result, tally
from clara_eval.ranking.model import Strengths, fit, normals, one_thread
from clara_eval.ranking.results import Floats

VERDICTS: list[Winner] = ["first", "second", "tie"]


@st.composite
def verdicts(draw: st.DrawFn) -> tuple[list[str], list[Result]]:
    items = [f"i{k}" for k in range(draw(st.integers(1, 7)))]
    if len(items) == 1:
        return items, []
    pair = st.lists(st.sampled_from(items), min_size=2, max_size=2, unique=True)
    rows = draw(st.lists(st.tuples(pair, st.sampled_from(VERDICTS), st.sampled_from(["x", "y"])), max_size=40))
    return items, [Result(a, b, winner, judge) for (a, b), winner, judge in rows]


@settings(max_examples=40, deadline=None)
@given(verdicts())
def test_turning_every_verdict_around_turns_every_strength_around(case: tuple[list[str], list[Result]]) -> None:
    """Winners and losers are treated alike, and the covariance is that of a maximum."""
    items, results = case
    other: dict[str, Winner] = {"first": "second", "second": "first", "tie": "tie"}
    mirrored = [Result(r.first, r.second, other[r.winner], r.judge) for r in results]
    mine, theirs = fit(tally(items, results)), fit(tally(items, mirrored))
    assert np.allclose(mine.theta, -theirs.theta, atol=1e-6)
    assert np.allclose(mine.side, -theirs.side, atol=1e-6)
    assert np.all(np.linalg.eigvalsh(mine.covariance) > 0)


@settings(max_examples=20, deadline=None)
@given(verdicts())
def test_strengths_are_finite_and_the_slope_is_zero_there(case: tuple[list[str], list[Result]]) -> None:
    """With one result for a pair the fit is plain penalised logistic regression, and its gradient vanishes."""
    items, results = case
    once = {frozenset((r.first, r.second)): r for r in results}
    table = tally(items, list(once.values()))
    found = fit(table)
    z: Floats = found.theta[table.first] - found.theta[table.second] + found.side[table.judge]
    rest = table.points - 1 / (1 + np.exp(-z))
    slope = np.bincount(table.first, rest, len(items)) - np.bincount(table.second, rest, len(items))
    assert np.allclose(slope, found.theta / found.spread**2, atol=1e-5)


def test_no_results_leave_the_prior() -> None:
    """Without a verdict all are equal and the uncertainty is the prior's."""
    found = fit(tally(["a", "b"], []))
    assert found.theta.tolist() == [0, 0]
    assert np.allclose(np.diag(found.covariance), [2.25, 2.25, 0.25])


def test_a_lean_to_the_first_is_seen_for_each_judge() -> None:
    """One judge always says first, the other always second: two side effects of opposite sign, equal strengths."""
    items = ["a", "b", "c", "d"]
    pairs = list(permutations(items, 2))
    results = [Result(a, b, "first", "x") for a, b in pairs] + [Result(a, b, "second", "y") for a, b in pairs]
    found = fit(tally(items, results))
    assert np.allclose(found.theta, 0, atol=1e-8)
    assert found.side[0] > 0.5
    assert found.side[1] < -0.5


def test_draws_are_fixed_mirrored_and_have_the_fitted_spread() -> None:
    """The posterior sample is the same every time, symmetric about the fit, and as wide as the covariance."""
    found = fit(tally(["a", "b", "c"], [Result("a", "b", "first"), Result("b", "c", "tie")]))
    draws = found.draw(4000)
    assert np.array_equal(draws, found.draw(4000))
    assert np.allclose(draws.mean(axis=0), found.theta)
    assert np.allclose(np.cov(draws.T), found.covariance[:3, :3], atol=0.2)
    assert abs(float(normals(500, 500).std()) - 1) < 0.01


def test_linear_algebra_has_one_thread_inside_and_as_many_as_before_outside() -> None:
    """Threads are limited while a fit runs, and are what they were afterwards."""
    libraries = ThreadpoolController().lib_controllers
    with ThreadpoolController().limit(limits=2):
        assert [library.num_threads for library in libraries] == [2] * len(libraries) != []
        with one_thread():
            assert all(library.num_threads == 1 for library in libraries)
        assert [library.num_threads for library in libraries] == [2] * len(libraries)


def scales(model: Model) -> tuple[float, float]:
    """Spread and shared variance of a pair, averaged over simulated rounds in both orders."""
    found = [fit(world.table(both(world))) for world in (draw_world(25, 900 + t, model) for t in range(8))]
    return float(np.mean([one.spread for one in found])), float(np.mean([one.pair for one in found]))


def both(world: SimulatedWorld) -> list[tuple[int, int]]:
    return list(permutations(range(world.size), 2))


def test_a_better_judge_spreads_strengths_wider() -> None:
    """The spread follows the judge: right on 70, 80 and 90 % of random pairs."""
    poor, good, best = (scales(Model(sigma=sigma))[0] for sigma in (0.85, 1.65, 3.55))
    assert 0.6 < poor < 1.2 < good < 1.9
    assert best > 2.3


def test_quirks_of_pairs_are_seen_in_the_swap() -> None:
    """Results on a pair share hardly any variance without quirks, and more with larger ones."""
    none, some, much = (scales(Model(pair_sd=sd))[1] for sd in (0.0, 1.0, 2.0))
    assert none < 0.3 < some < much


def test_judges_who_err_together_count_for_less_than_independent_ones() -> None:
    """Three judges with the same errors leave more uncertainty than three with their own."""

    def sure(correlation: float) -> tuple[float, float]:
        worlds = [draw_jury(16, 40 + t, judges=3, correlation=correlation) for t in range(6)]
        found = [fit(jury_table(world, both(world))) for world in worlds]
        return float(np.mean([f.same for f in found])), float(np.mean([widths(f) for f in found]))

    (own_same, own), (shared_same, shared) = sure(0.0), sure(0.6)
    assert own_same < 0.5
    assert shared_same > 1.2
    assert shared > 1.1 * own


def widths(found: Strengths) -> float:
    return float(np.sqrt(np.diag(found.covariance)[: len(found.theta)]).mean())


def test_nothing_jumps_with_the_first_results() -> None:
    """One more verdict changes an interval by a little, from none at all up to the tenth."""
    items = [f"i{k}" for k in range(6)]
    pairings = [Result(a, b, "first") for k, a in enumerate(items) for b in items[k + 1 :]]
    sizes = [widths(fit(tally(items, pairings[:count]))) for count in range(11)]
    assert all(abs(after / before - 1) < 0.15 for before, after in pairwise(sizes))


def test_an_order_of_four_counts_for_less_than_six_questions() -> None:
    """Six pairs from one order leave more uncertainty than six that were asked one by one."""
    items = ["a", "b", "c", "d"]
    order = Group(tuple(items)).read_off(items)
    asked = [result._replace(group=()) for result in order]
    assert widths(fit(tally(items, order))) > widths(fit(tally(items, asked)))
