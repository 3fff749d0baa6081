"""Cycles, stability and agreement against slow, obvious counts."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.core.model import Winner
from clara_eval.ranking import Result, rank, tally
from clara_eval.ranking.consistency import count_cycles, net_wins

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


def test_a_pivotal_item_is_named() -> None:
    """A leads only thanks to its games against c; without c, b, who beat a, would be paid."""
    results = [Result("b", "a", "first"), *[Result("a", "c", "first")] * 3, *[Result("c", "b", "first")] * 3]
    found = rank(tally(["a", "b", "c"], results), seed=b"", winner_count=1)
    assert found.consistency.pivotal_items == ("c",)


def test_a_cluster_that_decides_who_is_paid_is_named() -> None:
    """Clones that all lose to one item and beat its rival are pivotal as a group; single items know no clusters."""
    clones = [f"c{k}" for k in range(6)]
    items = ["a", "b", *clones]
    results = (
        [Result("b", "a", "first")]
        + [Result("a", c, "first") for c in clones]
        + [Result(c, "b", "first") for c in clones]
    )
    clusters = {**dict.fromkeys(clones, "copies"), "a": "alone"}
    found = rank(tally(items, results), seed=b"", winner_count=1, clusters=clusters)
    assert found.consistency.pivotal_clusters == ("copies",)
