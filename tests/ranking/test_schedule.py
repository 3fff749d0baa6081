"""Schedules: no question twice, fair sides, within budget, and an interruption changes nothing."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.core.errors import BadInput
from clara_eval.ranking.adaptive import Adaptive, Tuning
from clara_eval.ranking.results import Pairing, Result, Winner, canonical_order
from clara_eval.ranking.schedule import (
    JURY_NOTE,
    Both,
    Field,
    Full,
    Schedule,
    choose_schedule,
)
from clara_eval.ranking.strength import normals
from clara_eval.ranking.tally import connected_groups

VERDICTS: list[Winner] = ["first", "second", "tie"]


def field(size: int, judges: int = 1, max_comparisons: int | None = None) -> Field:
    return Field(tuple(f"i{k}" for k in range(size)), tuple(f"j{k}" for k in range(judges)), max_comparisons)


def schedule(name: str, where: Field) -> Schedule:
    made: dict[str, Callable[[], Schedule]] = {
        "full": lambda: Full(where),
        "both": lambda: Both(where),
        "adaptive": lambda: Adaptive(where, 2, (7000, 3000)),
        "full+": lambda: Adaptive(where, 2, (7000, 3000), opening="full"),
    }
    return made[name]()


def verdict(pairing: Pairing, seed: int) -> Result | None:
    """A fixed judge with a fixed answer for each comparison; one in ten comparisons gets none."""
    random = Random(f"{pairing} {seed}")
    if random.random() < 0.1:
        return None
    better = int(pairing.first[1:]) < int(pairing.second[1:])
    return Result(pairing.first, pairing.second, "first" if better else random.choice(VERDICTS), pairing.judge)


def run(
    one: Callable[[], Schedule], seed: int, interrupt: Random | None = None
) -> tuple[list[Result], list[Pairing], list[Pairing]]:
    """Play to the end; with `interrupt`, answers arrive piecemeal, in any order, to a fresh schedule each time."""
    results: list[Result] = []
    undecided: list[Pairing] = []
    asked: list[Pairing] = []
    current = one()
    while batch := [pairing for pairing in current.next_batch(results, undecided) if isinstance(pairing, Pairing)]:
        if interrupt:
            batch = interrupt.sample(batch, interrupt.randint(1, len(batch)))
            interrupt.shuffle(results)
            current = one()
        asked += batch
        for pairing in batch:
            answer = verdict(pairing, seed)
            if answer is None:
                undecided.append(pairing)
            else:
                results.append(answer)
    return results, undecided, asked


NAMES = ["full", "both", "adaptive", "full+"]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(
    size=st.integers(1, 9), judges=st.integers(1, 2), budget=st.none() | st.integers(0, 120), seed=st.integers(0, 99)
)
def test_no_game_is_asked_twice_and_the_budget_holds(
    name: str, size: int, judges: int, budget: int | None, seed: int
) -> None:
    """An ordered pair goes to a judge once at most, undecided ones too, and every judge sees the same looks."""
    _, _, asked = run(lambda: schedule(name, field(size, judges, budget)), seed)
    assert len(asked) == len(set(asked))
    assert budget is None or len(asked) <= budget
    looks = Counter((pairing.first, pairing.second) for pairing in asked)
    assert set(looks.values()) <= {judges}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(size=st.integers(2, 9), budget=st.none() | st.integers(1, 60), seed=st.integers(0, 99))
def test_an_interrupted_tournament_asks_the_same_games(name: str, size: int, budget: int | None, seed: int) -> None:
    """Cut anywhere and continued by a fresh schedule from shuffled records, the comparisons are the same."""
    straight = run(lambda: schedule(name, field(size, 1, budget)), seed)
    pieces = run(lambda: schedule(name, field(size, 1, budget)), seed, interrupt=Random(seed))
    assert sorted(straight[2]) == sorted(pieces[2])


@settings(max_examples=40, deadline=None)
@given(size=st.integers(2, 14), more=st.integers(0, 20), seed=st.integers(0, 99))
def test_with_a_chain_of_calls_or_more_everybody_is_connected(size: int, more: int, seed: int) -> None:
    """Adaptive comparisons with at least one call less than items leave no group apart."""
    where = field(size, 1, size - 1 + more)
    _, _, asked = run(lambda: schedule("adaptive", where), seed)
    met = np.zeros((size, size), dtype=bool)
    for pairing in asked:
        met[where.items.index(pairing.first), where.items.index(pairing.second)] = True
    assert connected_groups(met).tolist() == [0] * size


@given(size=st.integers(2, 30))
def test_full_holds_every_pair_once_with_balanced_sides(size: int) -> None:
    """Each pair once, and nobody is first more than one time oftener than second."""
    pairings = Full(field(size)).next_batch([], ())
    assert {frozenset((g.first, g.second)) for g in pairings} == {
        frozenset(p) for p in combinations(field(size).items, 2)
    }
    lead = Counter(g.first for g in pairings)
    lead.subtract(g.second for g in pairings)
    assert max(abs(value) for value in lead.values()) <= 1


@given(size=st.integers(2, 12))
def test_both_is_full_and_then_every_swap(size: int) -> None:
    """The first batch is a full round, the second the same pairs turned around."""
    both = Both(field(size))
    first = both.next_batch([], ())
    second = both.next_batch([], first)
    assert first == Full(field(size)).next_batch([], ())
    assert [(g.second, g.first) for g in first] == [(g.first, g.second) for g in second]
    assert both.next_batch([], [*first, *second]) == []


def test_adaptive_keeps_sides_nearly_even() -> None:
    """Over a long adaptive tournament nobody is shown first much oftener than second."""
    _, _, asked = run(lambda: schedule("adaptive", field(16, 1, 150)), 3)
    lead = Counter(g.first for g in asked)
    lead.subtract(g.second for g in asked)
    assert max(abs(value) for value in lead.values()) <= 3


def test_adaptive_spends_its_calls_near_the_pay_line() -> None:
    """With two paid places the weakest third is asked about less often than the strongest."""
    _, _, asked = run(lambda: schedule("adaptive", field(24, 1, 140)), 5)
    seen = Counter(item for g in asked for item in (g.first, g.second))
    assert sum(seen[f"i{k}"] for k in range(8)) > 1.5 * sum(seen[f"i{k}"] for k in range(16, 24))


def test_a_long_tournament_keeps_no_table_of_each_batch() -> None:
    """What a schedule remembers of its fits is where they ended: sixty batches hold less than two of their tables."""
    size = 150
    made = Adaptive(field(size, max_comparisons=1200), 2, (7000, 3000), replace(Tuning(), sure=2.0))
    gc.collect()
    tracemalloc.start()
    try:
        results, _, asked = run(lambda: made, 1)
        batches = len(asked) / made.tuning.batch_size(size)
        del results, asked
        normals.cache_clear()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert batches > 60
    assert held < 2 * 8 * size**2, f"{held / 8 / size**2:.1f} tables stay behind {batches:.0f} batches"


def test_auto_takes_the_richest_that_fits() -> None:
    """Both orders, then all pairs once with chosen swaps, then adaptive; the reason is a sentence."""
    items = [f"i{k}" for k in range(10)]
    names = [choose_schedule(items, ["a"], max_comparisons=m).schedule.name for m in (None, 90, 89, 45, 44, 3)]
    assert names == ["both", "both", "full+", "full+", "adaptive", "adaptive"]
    assert choose_schedule(items, ["a", "b"], max_comparisons=90).schedule.name == "full+"
    chosen, why = choose_schedule(items, ["a"], max_comparisons=20)
    assert "20 games" in why
    assert len(chosen.next_batch([], ())) <= 20


@pytest.mark.parametrize("name", ["auto", "full", "both", "adaptive", "fours"])
def test_a_jury_is_told_what_a_second_judge_is_worth(name: str) -> None:
    """Every schedule says it to several judges and to none alone; and when fewer could see both orders for the price."""
    items = [f"i{k}" for k in range(10)]
    assert JURY_NOTE in choose_schedule(items, ["a", "b"], max_comparisons=60, name=name).reason
    assert JURY_NOTE not in choose_schedule(items, ["a"], max_comparisons=60, name=name).reason
    assert "in both orders to one judge" in choose_schedule(items, ["a", "b"], max_comparisons=90, name=name).reason
    assert (
        "in both orders to 2 judges" in choose_schedule(items, ["a", "b", "c"], max_comparisons=200, name=name).reason
    )
    for enough in (60, 180, None):
        assert "in both orders to" not in choose_schedule(items, ["a", "b"], max_comparisons=enough, name=name).reason


def test_an_unknown_schedule_and_a_double_item_are_refused() -> None:
    """Bad input is named together with the remedy."""
    with pytest.raises(BadInput, match="swiss"):
        choose_schedule(["a", "b"], ["j"], max_comparisons=None, name="swiss")
    with pytest.raises(BadInput, match="twice"):
        Field(("a", "a"))


def test_canonical_order_depends_on_challenge_and_content_only() -> None:
    """The order ignores the order of arrival and changes with the challenge."""
    hashes = {f"0x{k:02x}": f"0x{k * 7:064x}" for k in range(12)}
    back = dict(reversed(hashes.items()))
    assert canonical_order("0xaa", hashes) == canonical_order("0xaa", back)
    assert canonical_order("0xaa", hashes) != canonical_order("0xbb", hashes)
    assert sorted(canonical_order("0xaa", hashes)) == sorted(hashes)
