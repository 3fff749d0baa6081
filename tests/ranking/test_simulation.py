"""The simulator draws the worlds it claims to draw, and its measures mean what they say."""

from __future__ import annotations

import numpy as np
from tests.support.simulated_jury import strength_order
from tests.support.simulation import TOP3, Model, draw_world, looks_of, play, quality

from clara_eval.ranking.results import Field
from clara_eval.ranking.schedule import Fixed


def test_the_judge_is_right_on_four_of_five_and_ties_one_in_ten() -> None:
    """Spread .3 bias aside, decisive verdicts agree with the truth on 80 % of pairs and 10 % are ties."""
    right, ties, total = 0, 0, 0
    for seed in range(30):
        world = draw_world(40, seed, Model(bias=0.0))
        better = world.truth[:, None] > world.truth
        off = ~np.eye(40, dtype=bool)
        ties += int(np.sum(world.verdicts[off] == 1))
        right += int(np.sum((world.verdicts == 2)[off & better])) + int(np.sum((world.verdicts == 0)[off & ~better]))
        total += int(off.sum())
    assert 0.08 < ties / total < 0.12
    assert 0.78 < right / (total - ties) < 0.82


def test_a_world_repeats_itself_and_its_judge_too() -> None:
    """One seed, one world; the same ordered pair always gets the same verdict."""
    first, again = draw_world(10, 3), draw_world(10, 3)
    assert np.array_equal(first.verdicts, again.verdicts)
    games = Fixed(Field(first.items)).next_batch([], ())
    assert [first.answer(game) for game in games] == [again.answer(game) for game in games]


def test_pair_quirks_turn_around_with_the_sides() -> None:
    """With huge quirks the verdict on a pair hardly depends on the order of sides."""
    world = draw_world(40, 1, Model(sigma=0.0, bias=0.0, pair_sd=50.0))
    off = ~np.eye(40, dtype=bool)
    assert np.mean((world.verdicts + world.verdicts.T)[off] == 2) > 0.9


def test_the_true_order_is_perfect_and_the_reverse_is_worst() -> None:
    """Quality is 1 for the truth; for the reverse everything is misallocated and τ is −1."""
    truth = np.array([3.0, 1.0, 2.0, -1.0, 0.0, -2.0])
    best = quality(truth, np.argsort(-truth), TOP3)
    worst = quality(truth, np.argsort(truth), TOP3)
    assert (best.top1, best.set, best.order, best.misallocation, best.regret, best.tau) == (1, 1, 1, 0, 0, 1)
    assert (worst.set, worst.misallocation, worst.tau) == (0, 1, -1)
    swapped = quality(truth, np.array([2, 0, 1, 4, 3, 5]), TOP3)
    assert (swapped.set, swapped.order, round(swapped.misallocation, 9)) == (1, 0, 0.35)


def test_a_strong_judge_finds_the_truth() -> None:
    """Without noise to speak of, both orders give the exact order."""
    world = draw_world(8, 2, Model(sigma=60.0, bias=0.0, nu=0.0))
    table = world.table(looks_of(play(world, Fixed(Field(world.items), is_both=True))))
    assert quality(world.truth, strength_order(table)).order == 1
