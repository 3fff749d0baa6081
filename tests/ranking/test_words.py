"""What the ranking says about itself comes true on simulated judges of every kind: a small watch beside the bench.

`bench/ranking.py --only words,coverage` measures the same in fields of 25 with a thousand trials a case.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.support.simulated_jury import draw_jury

from clara_eval.ranking.rank import Ranking, rank
from clara_eval.ranking.schedule import Both, Field, Full
from clara_eval.ranking.simulator import Model, SimulatedWorld, draw_world, play

SIZE, TRIALS = 12, 25
JURY = "jury of three, correlation .6"
MODELS: dict[str, Model] = {
    "base": Model(),
    "right on 70 %": Model(sigma=0.85),
    "right on 90 %": Model(sigma=3.55),
    "quirks sd 1": Model(pair_sd=1.0),
    "quirks sd 2": Model(pair_sd=2.0),
    "position bias 1": Model(bias=1.0),
    "another simulator": Model(family="probit"),
    JURY: Model(),
}


@cache
def said(case: str, schedule: str) -> list[tuple[SimulatedWorld, Ranking]]:
    """Worlds of a case, and what was said about each."""
    found = []
    for seed in range(70_000, 70_000 + (TRIALS if schedule == "both" else 4 * TRIALS)):  # one look tells less
        jury = case == JURY
        world = draw_jury(SIZE, seed, judges=3, correlation=0.6) if jury else draw_world(SIZE, seed, MODELS[case])
        field = Field(world.items, ("0", "1", "2") if jury else ("",))
        results = play(world, Both(field) if schedule == "both" else Full(field))
        found.append((world, rank(world.items, results, seed=b"words", winner_count=3)))
    return found


def test_words_and_chances_come_true() -> None:
    """Over all kinds of judges: the entries down to a place that is called clear are the best in at least .89, a
    toss-up at the pay line goes to the better one in at least .45, and a chance of .9 or more is one in at least .93.
    """
    clear, toss_up, sure = [], [], []
    for case in MODELS:
        for world, found in said(case, "both"):
            best = np.argsort(-world.truth).tolist()
            for margin in found.margins:
                paid = [int(standing.item) for standing in found.standings[: margin.place]]
                ahead = world.truth[int(margin.item)] > world.truth[int(margin.next_item)]
                clear += [set(paid) == set(best[: margin.place])] if margin.word == "clear" else []
                toss_up += [ahead] if margin.word == "toss-up" and margin.place == found.winner_count else []
                sure += [ahead] if margin.probability >= 0.9 else []
    assert min(len(clear), len(toss_up), len(sure)) > 40
    assert np.mean(clear) >= 0.89
    assert np.mean(toss_up) >= 0.45
    assert np.mean(sure) >= 0.93


@pytest.mark.parametrize("schedule", ["full", "both"])
@pytest.mark.parametrize("case", ["base", "quirks sd 1", "right on 90 %", JURY])
def test_intervals_and_ranges_of_ranks_cover_the_truth(case: str, schedule: str) -> None:
    """95 % intervals hold the true strength, and ranges from 5 to 95 % the true rank, in at least .90 of cases,
    also in a small field of a judge who is nearly always right, where how far strengths spread is hardly seen.
    """
    covered, ranged = [], []
    for world, found in said(case, schedule):
        truth = world.truth - world.truth.mean()
        place = np.argsort(np.argsort(-truth)) + 1
        for standing in found.standings:
            item = int(standing.item)
            covered.append(standing.theta_low <= truth[item] <= standing.theta_high)
            ranged.append(standing.rank_low <= place[item] <= standing.rank_high)
    assert np.mean(ranged) >= 0.90
    assert np.mean(covered) >= 0.90
