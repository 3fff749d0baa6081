"""Schedules: no question twice, fair sides, within budget, and an interruption changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulation import TOP3, Model, draw_world, play

from clara_eval.core.errors import BadInput
from clara_eval.core.model import Winner
from clara_eval.evaluation.run import canonical_order
from clara_eval.ranking import Group, Pairing, Result, Schedule, choose_schedule
from clara_eval.ranking.results import Field, connected_groups
from clara_eval.ranking.schedule import Adaptive, Fixed

VERDICTS: list[Winner] = ["first", "second", "tie"]


def field(size: int, judges: int = 1, max_comparisons: int | None = None) -> Field:
    return Field(tuple(f"i{k}" for k in range(size)), tuple(f"j{k}" for k in range(judges)), max_comparisons)


def schedule(name: str, where: Field) -> Schedule:
    made: dict[str, Callable[[], Schedule]] = {
        "full": lambda: Fixed(where),
        "both": lambda: Fixed(where, is_both=True),
        "adaptive": lambda: Adaptive(where, (7000, 3000)),
        "fours": lambda: Adaptive(where, (7000, 3000), name="fours"),
    }
    return made[name]()


def answer(question: Pairing | Group, seed: int) -> list[Result]:
    """A fixed judge with a fixed answer for each question; one in ten questions gets none."""
    random = Random(f"{question} {seed}")
    if random.random() < 0.1:
        return []
    if isinstance(question, Group):
        return question.read_off(sorted(question.items, key=lambda item: int(item[1:]) + random.random() * 4))
    better = int(question.first[1:]) < int(question.second[1:])
    winner = "first" if better else random.choice(VERDICTS)
    return [Result(question.first, question.second, winner, question.judge)]


def run(name: str, where: Field, seed: int, shuffled: Random | None = None) -> list[Pairing | Group]:
    """Play to the end; with `shuffled`, each batch is asked of a fresh schedule that has the answers in any order."""
    results: list[Result] = []
    undecided: list[Pairing | Group] = []
    asked: list[Pairing | Group] = []
    current = schedule(name, where)
    while batch := current.next_batch(results, undecided):
        if shuffled:
            shuffled.shuffle(results)
            current = schedule(name, where)
        asked += batch
        for question in batch:
            found = answer(question, seed)
            results += found
            undecided += [] if found else [question]
    return asked


NAMES = ["full", "both", "adaptive", "fours"]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(
    size=st.integers(1, 9), judges=st.integers(1, 2), budget=st.none() | st.integers(0, 120), seed=st.integers(0, 99)
)
def test_no_game_is_asked_twice_and_the_budget_holds(
    name: str, size: int, judges: int, budget: int | None, seed: int
) -> None:
    """An ordered pair goes to a judge once at most, undecided ones too, and every judge sees the same looks."""
    asked = run(name, field(size, judges, budget), seed)
    assert len(asked) == len(set(asked))
    assert budget is None or len(asked) <= budget
    looks = Counter((q.first, q.second) if isinstance(q, Pairing) else q.items for q in asked)
    assert set(looks.values()) <= {judges}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(size=st.integers(2, 9), budget=st.none() | st.integers(1, 60), seed=st.integers(0, 99))
def test_the_order_of_answers_changes_no_question(name: str, size: int, budget: int | None, seed: int) -> None:
    """A fresh schedule with the answers so far, in any order, asks the same next batch."""
    where = field(size, 1, budget)
    assert run(name, where, seed) == run(name, where, seed, shuffled=Random(seed))


@pytest.mark.parametrize("name", ["adaptive", "fours"])
@settings(max_examples=15, deadline=None)
@given(size=st.integers(2, 14), seed=st.integers(0, 99))
def test_with_enough_calls_all_are_connected(name: str, size: int, seed: int) -> None:
    """With three calls an item no group stays apart."""
    where = field(size, 1, 3 * size)
    met = np.eye(size, dtype=bool)
    for question in run(name, where, seed):
        shown = question.items if isinstance(question, Group) else (question.first, question.second)
        places = [where.items.index(item) for item in shown]
        met[np.ix_(places, places)] = True
    assert connected_groups(met).tolist() == [0] * size


@given(size=st.integers(2, 30))
def test_full_holds_every_pair_once_with_balanced_sides(size: int) -> None:
    """Each pair once, and nobody is first more than one time oftener than second."""
    pairings = Fixed(field(size)).next_batch([], ())
    assert {frozenset((g.first, g.second)) for g in pairings} == {
        frozenset(p) for p in combinations(field(size).items, 2)
    }
    lead = Counter(g.first for g in pairings)
    lead.subtract(g.second for g in pairings)
    assert max(abs(value) for value in lead.values()) <= 1


@given(size=st.integers(2, 12))
def test_both_is_full_and_then_every_swap(size: int) -> None:
    """The first batch is a full round, the second the same pairs turned around."""
    both = Fixed(field(size), is_both=True)
    first = both.next_batch([], ())
    second = both.next_batch([], first)
    assert first == Fixed(field(size)).next_batch([], ())
    assert [(g.second, g.first) for g in first] == [(g.first, g.second) for g in second]
    assert both.next_batch([], [*first, *second]) == []


def run_pairs(size: int, budget: int, seed: int) -> list[Pairing]:
    return [q for q in run("adaptive", field(size, 1, budget), seed) if isinstance(q, Pairing)]


def test_adaptive_keeps_sides_nearly_even() -> None:
    """Over a long adaptive tournament nobody is shown first much oftener than second."""
    asked = run_pairs(16, 150, 3)
    lead = Counter(g.first for g in asked)
    lead.subtract(g.second for g in asked)
    assert max(abs(value) for value in lead.values()) <= 3


def test_adaptive_spends_its_calls_near_the_pay_line() -> None:
    """With two paid places the weakest third is asked about less often than the strongest."""
    asked = run_pairs(24, 140, 5)
    seen = Counter(item for g in asked for item in (g.first, g.second))
    assert sum(seen[f"i{k}"] for k in range(8)) > 1.5 * sum(seen[f"i{k}"] for k in range(16, 24))


def test_auto_takes_the_schedule_that_fits() -> None:
    """Small fields and rules: both orders or adaptive, rules once if that fits; else orders of four."""
    few, many = [[f"i{k}" for k in range(size)] for size in (7, 10)]
    names = [choose_schedule(few, ["a"], max_comparisons=most).name for most in (None, 42, 41, 21, 20, 3)]
    assert names == ["both", "both", "adaptive", "adaptive", "adaptive", "adaptive"]
    assert choose_schedule(few, ["a", "b"], max_comparisons=42).name == "adaptive"
    names = [choose_schedule(many, ["rules"], max_comparisons=most).name for most in (None, 89, 45, 44)]
    assert names == ["both", "full", "full", "adaptive"]
    assert [choose_schedule(many, ["a"], max_comparisons=most).name for most in (None, 20)] == ["fours", "fours"]
    chosen = choose_schedule(many, ["a"], max_comparisons=20)
    assert "20 games" in chosen.explain(())
    assert len(chosen.next_batch([], ())) <= 20


def test_a_clear_field_is_asked_less_than_a_close_one() -> None:
    """The schedule ends by itself when no question lowers the doubt about the money."""
    worlds = [draw_world(12, 3, Model(sigma=sigma, bias=0.0)) for sigma in (30.0, 1.0)]
    asked = [len({r.question for r in play(w, Adaptive(Field(w.items), TOP3, name="fours"))}) for w in worlds]
    assert asked[0] < asked[1] < 132


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


def test_a_schedule_that_ends_by_itself_says_what_the_rest_would_have_bought() -> None:
    """How many questions of how many, and how far another answer would move the prizes; nothing if all were asked."""
    world = draw_world(12, 5)
    schedule = choose_schedule(world.items, ("",), max_comparisons=None, winner_count=3, payout_bps=TOP3)
    questions = {result.question for result in play(world, schedule)}
    assert len(questions) < schedule.most_questions
    said = f"It ended after {len(questions)} of at most 132 questions: by this judge, every paid place is clear, or"
    rest = "no other answer is expected to move the prizes by more than"
    reason = schedule.explain(range(132))  # type: ignore[arg-type]
    assert schedule.explain(questions) == f"{reason} {said} {rest} 0.5 % of the pot."
    small = choose_schedule(world.items[:4], ("",), max_comparisons=None)
    assert "It ended" not in small.explain(())
