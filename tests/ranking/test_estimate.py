"""The scale of strengths: measured where it can be, steady where it cannot."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.support.simulated_jury import draw_jury, jury_table

from clara_eval.ranking.estimate import estimate, standardised
from clara_eval.ranking.results import Result
from clara_eval.ranking.schedule import balanced_looks
from clara_eval.ranking.simulator import Model, SimulatedWorld, draw_world
from clara_eval.ranking.strength import Scale, Strengths, fit
from clara_eval.ranking.tally import tally


def both(world: SimulatedWorld) -> list[tuple[int, int]]:
    return [(i, j) for i in range(world.size) for j in range(world.size) if i != j]


def mean_scale(model: Model, trials: int = 12) -> tuple[float, float, float]:
    """Spread, quirk and ν, averaged over simulated challenges in both orders."""
    scales = [
        estimate(world.table(both(world))).scale for world in (draw_world(25, 900 + t, model) for t in range(trials))
    ]
    return tuple(float(np.mean(x)) for x in zip(*((s.spread * s.blur, s.quirk, s.tie) for s in scales), strict=True))  # type: ignore[return-value]


def test_a_better_judge_spreads_strengths_wider() -> None:
    """The spread follows the judge: right on 70, 80 and 90 % of random pairs."""
    poor, good, best = (mean_scale(Model(sigma=sigma))[0] for sigma in (0.85, 1.65, 3.55))
    assert 0.7 < poor < 1.2
    assert 1.4 < good < 1.9
    assert best > 2.5


def test_quirks_of_pairs_are_seen_in_the_swap() -> None:
    """Without quirks hardly any, with sd 1 and 2 more and more."""
    none, some, much = (mean_scale(Model(pair_sd=sd))[1] for sd in (0.0, 1.0, 2.0))
    assert none < 0.5 < some < 1.2 < much


def test_ties_are_measured() -> None:
    """The weight of a tie comes out near the simulated one, and is zero where there is none."""
    assert 0.2 < mean_scale(Model(nu=0.32))[2] < 0.45
    assert estimate(tally(["a", "b"], [Result("a", "b", "first")])).scale.tie == 0


def test_judges_who_err_together_count_for_less_than_independent_ones() -> None:
    """Three judges with the same errors leave more uncertainty than three with their own."""

    def sure(correlation: float) -> tuple[float, float]:
        worlds = [draw_jury(16, 40 + t, judges=3, correlation=correlation) for t in range(6)]
        found = [estimate(jury_table(world, both(world))) for world in worlds]
        return float(np.mean([f.scale.look for f in found])), float(np.mean([widths(f) for f in found]))

    (own_look, own), (shared_look, shared) = sure(0.0), sure(0.6)
    assert own_look < 0.5
    assert shared_look > 1.5
    assert shared > 1.15 * own


def widths(found: Strengths) -> float:
    return float(np.sqrt(np.diag(found.covariance)[: len(found.theta)]).mean())


def test_nothing_jumps_with_the_first_results() -> None:
    """One more verdict changes an interval by a little, from none at all up to the tenth."""
    items = [f"i{k}" for k in range(6)]
    pairings = [Result(a, b, "first") for k, a in enumerate(items) for b in items[k + 1 :]]
    sizes = [widths(estimate(tally(items, pairings[:count]))) for count in range(11)]
    assert all(abs(after / before - 1) < 0.12 for before, after in pairwise(sizes))


def test_the_plain_scale_is_the_plain_fit() -> None:
    """`fit` with the plain scale is Bradley–Terry with fixed priors."""
    world = draw_world(10, 3)
    table = world.table(list(balanced_looks(10)))
    assert np.array_equal(fit(table).theta, fit(table, Scale()).theta)


@pytest.mark.parametrize("explained", [0.75, 0.0])
def test_features_help_where_they_tell_something_and_do_no_harm_where_not(explained: float) -> None:
    """With few comparisons strengths correlate better with the truth if features explain them, and hardly worse if not."""
    gains = []
    for trial in range(12):
        world = draw_world(30, 600 + trial)
        random = np.random.default_rng(trial)
        noise = random.normal(size=(4, 30))
        truth = (world.truth - world.truth.mean()) / world.truth.std()
        columns = explained**0.5 * truth + (1 - explained) ** 0.5 * noise if explained else noise
        table = world.table(list(balanced_looks(30))[::7])
        plain, helped = estimate(table).theta, estimate(table, standardised(columns.tolist(), 30)).theta
        gains.append(np.corrcoef(helped, truth)[0, 1] - np.corrcoef(plain, truth)[0, 1])
    assert np.mean(gains) > (0.02 if explained else -0.03)


def test_constant_features_are_left_out() -> None:
    """A feature that is the same for all explains nothing; with no other there are no features."""
    assert standardised([[1.0, 1.0, 1.0]], 3) is None
    found = standardised([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]], 3)
    assert found is not None
    assert found.shape == (3, 1)
