"""Cycles, stability and agreement against slow, obvious counts."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.ranking.consistency import count_cycles, examine, net_wins, shift_without
from clara_eval.ranking.results import Result, Winner
from clara_eval.ranking.schedule import balanced_looks
from clara_eval.ranking.simulator import draw_world
from clara_eval.ranking.strength import fit
from clara_eval.ranking.tally import tally

VERDICTS: list[Winner] = ["first", "second", "tie"]


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 8), st.data())
def test_cycles_in_matrix_form_are_the_brute_force_count(size: int, data: st.DataObject) -> None:
    """Every triple looked at one by one gives the same cycles and decided triples."""
    items = [f"i{k}" for k in range(size)]
    pair = st.lists(st.sampled_from(items), min_size=2, max_size=2, unique=True)
    rows = data.draw(st.lists(st.tuples(pair, st.sampled_from(VERDICTS)), max_size=60))
    wins = net_wins(tally(items, [Result(a, b, w) for (a, b), w in rows]))
    cyclic = decided = 0
    for i, j, k in combinations(range(size), 3):
        if all(wins[a, b] or wins[b, a] for a, b in ((i, j), (j, k), (i, k))):
            decided += 1
            cyclic += sorted(int(wins[a, [i, j, k]].sum()) for a in (i, j, k)) == [1, 1, 1]
    assert count_cycles(wins) == (cyclic, decided)


def test_first_order_stability_agrees_with_fitting_again_without_the_item() -> None:
    """For large fields the quick answer keeps the top three of a real refit in nearly all cases."""
    agree = []
    for seed in range(10):
        world = draw_world(14, seed)
        table = world.table(list(balanced_looks(14)))
        found = fit(table)
        quick = found.theta + shift_without(table, found, np.arange(14), 14)
        for i in range(14):
            again = fit(table.take((table.first != i) & (table.second != i))).theta
            rest = np.array([j for j in range(14) if j != i])
            tops = [set(rest[np.argsort(-theta[rest])][:3].tolist()) for theta in (again, quick[i])]
            agree.append(tops[0] == tops[1])
    assert np.mean(agree) > 0.9


def test_a_pivotal_item_is_named() -> None:
    """A leads only thanks to its games against c; without c, b, who beat a, would be paid."""
    results = [Result("b", "a", "first"), *[Result("a", "c", "first")] * 3, *[Result("c", "b", "first")] * 3]
    table = tally(["a", "b", "c"], results)
    assert examine(table, fit(table), 1, {}).pivotal_items == ("c",)


def test_a_cluster_that_decides_who_is_paid_is_named() -> None:
    """Clones that all lose to one item and beat its rival are pivotal as a group; single items know no clusters."""
    clones = [f"c{k}" for k in range(6)]
    items = ["a", "b", *clones]
    results = (
        [Result("b", "a", "first")]
        + [Result("a", c, "first") for c in clones]
        + [Result(c, "b", "first") for c in clones]
    )
    table = tally(items, results)
    report = examine(table, fit(table), 1, {**dict.fromkeys(clones, "copies"), "a": "alone"})
    assert report.pivotal_clusters == ("copies",)
