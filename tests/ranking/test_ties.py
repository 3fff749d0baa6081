"""Ties: equal records are equal to the last bit, and only arrival and address decide among them."""

from __future__ import annotations

from itertools import combinations, permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulation import draw_world, play

from clara_eval.core.model import Winner
from clara_eval.evaluation.review_rules import ranking_flags
from clara_eval.ranking import Ranking, Result, rank, tally
from clara_eval.ranking.results import Field, equal_records
from clara_eval.ranking.schedule import Fixed

VERDICTS: list[Winner] = ["first", "second", "tie"]


def paid(items: list[str], results: list[Result], arrival: dict[str, int], seed: bytes = b"s") -> Ranking:
    return rank(tally(items, results), seed=seed, winner_count=1, tie_break=arrival, by_name=True)


def points(items: list[str], results: list[Result]) -> dict[str, float]:
    worth = {"first": 1.0, "tie": 0.5, "second": 0.0}
    gained = dict.fromkeys(items, 0.0)
    for result in results:
        gained[result.first] += worth[result.winner]
        gained[result.second] += 1 - worth[result.winner]
    return gained


@pytest.mark.parametrize("trial", range(60))
def test_the_earlier_of_two_with_equal_points_is_always_paid(trial: int) -> None:
    """In a complete field equal points are a tie whoever they were taken from, and no seed breaks it."""
    world = draw_world(6 + trial % 7, 5000 + trial)
    items = list(world.items)
    results = play(world, Fixed(Field(world.items), is_both=trial % 2 == 0))
    arrival = {item: Random(trial).randrange(3) for item in items}
    found = [paid(items, results, arrival, f"seed {k}".encode()) for k in range(3)]
    gained = points(items, results)
    best = sorted(items, key=lambda item: (-gained[item], arrival[item], item))
    for one in found:
        assert [s.item for s in one.standings] == best
        ratings = {s.item: s.elo for s in one.standings}
        assert all((ratings[a] == ratings[b]) == (gained[a] == gained[b]) for a, b in combinations(items, 2))


@pytest.mark.parametrize("trial", range(40))
def test_an_entry_that_loses_every_game_changes_nothing_among_equals(trial: int) -> None:
    """Whoever is paid in a tie is paid with one more loser in the field too."""
    world = draw_world(5 + trial % 5, 6000 + trial)
    items = list(world.items)
    results = play(world, Fixed(Field(world.items), is_both=True))
    loser = [*(Result(item, "loser", "first") for item in items), *(Result("loser", item, "second") for item in items)]
    arrival = {item: -number for number, item in enumerate(items)}
    before = [s.item for s in paid(items, results, arrival).standings]
    after = [s.item for s in paid([*items, "loser"], [*results, *loser], arrival).standings]
    assert after == [*before, "loser"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_equal_records_have_equal_ratings(data: st.DataObject) -> None:
    """Members of a class have exactly one rating, complete or not, however often a pair was repeated."""
    items = [f"i{k}" for k in range(data.draw(st.integers(2, 7)))]
    pairs = data.draw(st.lists(st.sampled_from(list(combinations(items, 2))), max_size=20))
    both = [Result(*sides, "tie") for pair in pairs for sides in (pair, pair[::-1])]
    chosen = [result._replace(winner=data.draw(st.sampled_from(VERDICTS))) for result in both[::2]]
    mirrored = [Result(r.second, r.first, _mirror(r.winner)) for r in chosen]
    table = tally(items, [*chosen, *mirrored])
    classes, found = equal_records(table), rank(table, seed=b"s", winner_count=1)
    elo = {standing.item: standing.elo for standing in found.standings}
    assert all(
        elo[items[a]] == elo[items[b]] for a, b in permutations(range(len(items)), 2) if classes[a] == classes[b]
    )


def _mirror(winner: Winner) -> Winner:
    return {"first": "second", "second": "first", "tie": "tie"}[winner]  # type: ignore[return-value]


def test_the_same_points_against_other_opponents_are_no_tie_where_the_schedule_chose() -> None:
    """Beating the best and beating the worst are different records when not everybody met everybody."""
    line = [Result("best", "mid", "first"), Result("mid", "worst", "first"), Result("best", "worst", "first")]
    table = tally(
        ["best", "mid", "worst", "x", "y"], [*line, Result("x", "best", "first"), Result("y", "worst", "first")]
    )
    classes = equal_records(table)
    assert classes[3] != classes[4]
    mirror = tally(["a", "b", "c", "d"], [Result("a", "b", "first"), Result("c", "d", "first")])
    assert equal_records(mirror)[0] == equal_records(mirror)[2] != equal_records(mirror)[1]


def test_a_tie_across_the_pay_line_is_told_in_words() -> None:
    """The flag names who is paid, who is not, and why; the groups are listed once."""
    items = ["0xb", "0xa", "0xc"]
    results = [Result("0xa", "0xc", "first"), Result("0xb", "0xc", "first"), Result("0xa", "0xb", "tie")]
    found = paid(items, results, {"0xa": 9, "0xb": 9, "0xc": 1})
    flag = next(flag for flag in ranking_flags(found, by_arrival=True) if flag.code == "tie_at_pay_line")
    assert found.ties == (("0xa", "0xb"),)
    assert found.tied_with("0xb") == ["0xa"]
    assert found.tied_with("0xc") == []
    assert flag.sentence == (
        "A tie at the pay line: 0xa and 0xb have equal records. 0xa is paid and 0xb not, because among equals the "
        "earlier submission comes first, then the lower address."
    )


def test_a_tie_for_different_prizes_is_told_and_one_for_equal_prizes_is_not() -> None:
    """Only what moves money is worth a sentence."""
    items = ["a", "b", "c"]
    results = [Result("a", "c", "first"), Result("b", "c", "first"), Result("a", "b", "tie")]
    told = rank(tally(items, results), seed=b"", winner_count=2, payout_bps=(7000, 3000))
    quiet = rank(tally(items, results), seed=b"", winner_count=2)
    assert [flag.code for flag in ranking_flags(told, by_arrival=True) if flag.code.startswith("tie")] == [
        "tie_for_prize"
    ]
    assert [flag.code for flag in ranking_flags(quiet, by_arrival=True) if flag.code.startswith("tie")] == []


def test_the_sum_of_ratings_survives_levelling() -> None:
    """A class gets its mean: no point is made or lost."""
    world = draw_world(12, 77)
    found = rank(tally(world.items, play(world, Fixed(Field(world.items)))), seed=b"x", winner_count=3)
    assert found.ties
    assert abs(np.sum([s.elo for s in found.standings]) - 12 * 1500) < 1e-4
