"""The Bradley–Terry fit: unique, finite, symmetric."""

from __future__ import annotations

from dataclasses import fields
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

from clara_eval.ranking.estimate import shared_variance
from clara_eval.ranking.results import Result, Winner
from clara_eval.ranking.strength import (
    Cells,
    Scale,
    fit,
    fit_without,
    gradient,
    merge,
    newton,
    normals,
    one_thread,
    picture,
)
from clara_eval.ranking.tally import tally

VERDICTS: list[Winner] = ["first", "second", "tie"]


@st.composite
def verdicts(draw: st.DrawFn) -> tuple[list[str], list[Result]]:
    items = [f"i{k}" for k in range(draw(st.integers(1, 7)))]
    if len(items) == 1:
        return items, []
    pair = st.lists(st.sampled_from(items), min_size=2, max_size=2, unique=True)
    rows = draw(st.lists(st.tuples(pair, st.sampled_from(VERDICTS), st.sampled_from(["x", "y"])), max_size=40))
    return items, [Result(a, b, winner, judge) for (a, b), winner, judge in rows]


@settings(max_examples=80, deadline=None)
@given(verdicts())
def test_the_slope_is_zero_at_the_fit(case: tuple[list[str], list[Result]]) -> None:
    """The fit is the optimum, whatever is undefeated, winless, unconnected or empty."""
    table = tally(*case)
    found = fit(table)
    assert np.abs(gradient(np.concatenate((found.theta, found.bias)), table)).max() < 1e-6
    assert np.all(np.linalg.eigvalsh(found.covariance) > 0)


@settings(max_examples=40, deadline=None)
@given(verdicts())
def test_turning_every_verdict_around_turns_every_strength_around(case: tuple[list[str], list[Result]]) -> None:
    """Winners and losers are treated alike."""
    items, results = case
    other: dict[str, Winner] = {"first": "second", "second": "first", "tie": "tie"}
    mirrored = [Result(r.first, r.second, other[r.winner], r.judge) for r in results]
    assert np.allclose(fit(tally(items, results)).theta, -fit(tally(items, mirrored)).theta, atol=1e-6)
    assert np.allclose(fit(tally(items, results)).bias, -fit(tally(items, mirrored)).bias, atol=1e-6)


def test_no_results_leave_the_prior() -> None:
    """Without a verdict everybody is equal and the uncertainty is the prior's."""
    found = fit(tally(["a", "b"], []))
    assert found.theta.tolist() == [0, 0]
    assert np.allclose(np.diag(found.covariance), [2.25, 2.25, 0.25])


def test_a_lean_to_the_first_is_seen_for_each_judge() -> None:
    """One judge always says first, the other always second: two position terms of opposite sign, equal strengths."""
    items = ["a", "b", "c", "d"]
    pairs = [(a, b) for a in items for b in items if a != b]
    results = [Result(a, b, "first", "x") for a, b in pairs] + [Result(a, b, "second", "y") for a, b in pairs]
    found = fit(tally(items, results))
    assert np.allclose(found.theta, 0, atol=1e-8)
    assert found.bias[0] > 0.5
    assert found.bias[1] < -0.5


def test_draws_are_fixed_mirrored_and_have_the_fitted_spread() -> None:
    """The posterior sample is the same every time, symmetric about the fit, and as wide as the covariance."""
    found = fit(tally(["a", "b", "c"], [Result("a", "b", "first"), Result("b", "c", "tie")]))
    draws = found.draws(4000)
    assert np.array_equal(draws, found.draws(4000))
    assert np.allclose(draws.mean(axis=0), found.theta)
    assert np.allclose(np.cov(draws.T), found.covariance[:3, :3], atol=0.2)
    assert abs(float(normals(500, 500, "check").std()) - 1) < 0.01


class _Listed(Cells):
    """The same cells, taken one by one."""

    @property
    def is_complete(self) -> bool:
        return False


@pytest.mark.parametrize("size", [2, 3, 30])
def test_a_complete_table_gives_the_same_bits_as_its_cells(size: int) -> None:
    """Where everybody met everybody in both orders the sums are taken by rows, and no digit changes."""
    verdicts_of = np.random.default_rng(size).choice(VERDICTS, size * size)
    looks = permutations(range(size), 2)
    rows = [Result(f"{a:02}", f"{b:02}", verdicts_of[a * size + b], "j") for a, b in looks]
    cells = merge(tally([f"{item:02}" for item in range(size)], rows))
    listed = _Listed(*(getattr(cells, field.name) for field in fields(cells)))
    assert cells.is_complete
    scale = Scale(tie=0.3, pair=0.3, look=0.6)
    mine, theirs = newton(cells, scale), newton(listed, scale)
    at = np.append(mine.theta, mine.bias)
    assert mine.theta.tolist() == theirs.theta.tolist()
    assert np.array_equal(mine.covariance, theirs.covariance)
    assert shared_variance(cells, picture(cells, at, 0.3), mine.covariance) == shared_variance(
        listed, picture(listed, at, 0.3), mine.covariance
    )


@pytest.mark.parametrize("seed", range(6))
def test_all_fits_without_one_group_at_once_are_the_fits_one_by_one(seed: int) -> None:
    """With one judge or two, with ties and shared errors, from the strengths with everybody: the same strengths."""
    random = np.random.default_rng(seed)
    items = [f"i{k}" for k in range(9)]
    looks = [look for look in permutations(items, 2) if random.random() < 0.6]
    judges = ("x", "y")[: 1 + seed % 2]
    rows = [Result(a, b, random.choice(VERDICTS), judge) for a, b in looks for judge in judges]
    table = tally(items, rows)
    strengths = fit(table, Scale(tie=0.3, pair=0.4, look=0.8, spread=1.1))
    group = np.array([0, 1, 2, 2, 2, -1, -1, 3, 3])
    found = fit_without(table, strengths, group, 4)
    for number, theta in enumerate(found):
        rest = table.take((group[table.first] != number) & (group[table.second] != number))
        assert np.allclose(theta, fit(rest, strengths.scale).theta, atol=2e-9)


def test_linear_algebra_has_one_thread_until_the_last_one_leaves() -> None:
    """However the blocks nest, threads are limited inside of all of them and are what they were afterwards."""
    libraries = ThreadpoolController().lib_controllers
    before = [library.num_threads for library in libraries]
    with one_thread():
        with one_thread():
            pass
        assert all(library.num_threads == 1 for library in libraries)
    assert [library.num_threads for library in libraries] == before
