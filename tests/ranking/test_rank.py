"""The ranking as a whole: order-free, fair to names, honest at the edges."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulation import TOP3, Model, draw_world, play

from clara_eval.core.errors import BadInput
from clara_eval.core.model import Winner
from clara_eval.evaluation.review_rules import ranking_flags
from clara_eval.ranking import Ranking, Result, rank, tally
from clara_eval.ranking.results import Field
from clara_eval.ranking.schedule import Adaptive, Fixed

VERDICTS: list[Winner] = ["first", "second", "tie"]


@st.composite
def contests(draw: st.DrawFn) -> tuple[list[str], list[Result]]:
    items = [f"i{k}" for k in range(draw(st.integers(2, 7)))]
    pair = st.lists(st.sampled_from(items), min_size=2, max_size=2, unique=True)
    rows = draw(st.lists(st.tuples(pair, st.sampled_from(VERDICTS), st.sampled_from(["", "x"])), max_size=30))
    return items, [Result(a, b, winner, judge) for (a, b), winner, judge in rows]


def ranked(items: list[str], results: list[Result], winners: int = 2) -> Ranking:
    return rank(tally(items, results), seed=b"challenge", winner_count=winners)


@settings(max_examples=50, deadline=None)
@given(contests(), st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_the_same_bytes(case: tuple[list[str], list[Result]], random: Random) -> None:
    """Shuffling the results changes nothing at all in the ranking."""
    items, results = case
    shuffled = results[:]
    random.shuffle(shuffled)
    assert repr(ranked(items, results)) == repr(ranked(items, shuffled))


@settings(max_examples=30, deadline=None)
@given(contests())
def test_names_do_not_matter(case: tuple[list[str], list[Result]]) -> None:
    """Renamed items get the same numbers under their new names."""
    items, results = case
    name = {item: f"z{len(items) - k}" for k, item in enumerate(items)}
    renamed = [Result(name[r.first], name[r.second], r.winner, r.judge) for r in results]
    plain, other = ranked(items, results), ranked([name[item] for item in items], renamed)
    assert [replace(s, item=name[s.item]) for s in plain.standings] == list(other.standings)


@pytest.mark.specification("3.3", "Rank by score descending")
@settings(max_examples=30, deadline=None)
@given(contests())
def test_standings_are_sorted_and_their_numbers_are_possible(case: tuple[list[str], list[Result]]) -> None:
    """Elo falls with the rank, ranges hold it, chances sum to the number of paid places."""
    standings = ranked(*case).standings
    assert [s.rank for s in standings] == list(range(1, len(standings) + 1))
    assert all(a.elo >= b.elo for a, b in pairwise(standings))
    assert all(s.low - 0.05 <= s.elo <= s.high + 0.05 and 0 <= s.score <= 10_000 for s in standings)
    assert abs(sum(s.p_top for s in standings) - 2) < 1e-3
    assert sum(s.wins for s in standings) == sum(s.losses for s in standings)


def test_an_undefeated_and_a_winless_item_are_no_problem() -> None:
    """A perfect line is ranked as it is, with finite intervals."""
    items = [f"p{k}" for k in range(6)]
    results = [Result(a, b, "first") for i, a in enumerate(items) for b in items[i + 1 :]]
    found = ranked(items, results)
    assert [s.item for s in found.standings] == items
    assert all(np.isfinite([s.low, s.high, s.theta]).all() for s in found.standings)
    assert found.consistency.cycles == 0


def test_without_results_everybody_is_equal_and_the_flags_say_so() -> None:
    """No verdicts: all at 1500, canonical order, a toss-up, and a flag that nobody was compared."""
    found = ranked(["b", "a", "c"], [])
    assert [(s.item, s.elo, s.score) for s in found.standings] == [
        ("b", 1500, 5000),
        ("a", 1500, 5000),
        ("c", 1500, 5000),
    ]
    assert found.margin.word == "toss-up"
    assert {"toss_up", "unplayed"} <= {flag.code for flag in ranking_flags(found, by_arrival=True)}


def test_a_single_item_wins_clearly() -> None:
    """One submission takes the place without a pay line."""
    found = rank(tally(["only"], []), seed=b"", winner_count=1)
    assert found.winners == ("only",)
    assert found.margin.word == "clear"
    assert found.standings[0].p_top == 1


def test_ties_everywhere_go_to_the_earlier_submission() -> None:
    """Equal Elo is broken by the caller's order of arrival, then by canonical index."""
    items = ["a", "b", "c", "d"]
    results = [Result(a, b, "tie") for a in items for b in items if a != b]
    found = rank(tally(items, results), seed=b"s", winner_count=2, tie_break={"c": 1, "b": 2, "a": 3})
    assert [s.item for s in found.standings] == ["c", "b", "a", "d"]
    assert {s.elo for s in found.standings} == {1500.0}


@pytest.mark.specification("3.3", "Initialize all at 1500; K = 32; one result after the other")
def test_the_literal_pass_is_the_specification_in_the_order_given() -> None:
    """One pass, K = 32 from 1500: the second result already sees the first."""
    results = [Result("a", "b", "first"), Result("b", "a", "first")]
    given = tally(["a", "b"], results, in_given_order=True)
    found = rank(given, seed=b"", winner_count=1, literal=True)
    first_step = 32 * 0.5
    second_step = 32 * (1 - 1 / (1 + 10 ** (2 * first_step / 400)))
    assert found.standings[0].item == "b"
    assert abs(found.standings[0].elo - (1500 - first_step + second_step)) < 1e-6


def test_every_flag_can_be_raised_and_speaks_to_a_poster() -> None:
    """A judge that always says first, with two groups that never met, is flagged for a person."""
    items = [f"i{k}" for k in range(16)]
    half = [(a, b) for side in (items[:8], items[8:]) for a in side for b in side if a != b]
    found = ranked(items, [Result(a, b, "first", "x") for a, b in half])
    severe = {flag.code for flag in ranking_flags(found, by_arrival=True) if flag.severity == "review"}
    assert {"unconnected", "swap", "position_bias"} <= severe
    assert all(flag.sentence.endswith(".") for flag in ranking_flags(found, by_arrival=True))


def test_a_coin_for_a_judge_raises_the_cycle_flag() -> None:
    """With equal strengths a quarter of the triples is cyclic, and automatic payment is refused."""
    world = draw_world(24, 5, Model(sigma=0.0))
    found = ranked(list(world.items), play(world, Fixed(Field(world.items))))
    assert found.consistency.decided_triples > 1000
    assert 0.2 < (found.consistency.cyclic_share or 0) < 0.3
    assert "review" in {flag.severity for flag in ranking_flags(found, by_arrival=True) if flag.code == "cycles"}


def test_judges_that_disagree_are_reported() -> None:
    """Two judges with opposite verdicts agree nowhere."""
    items = [f"i{k}" for k in range(8)]
    pairs = [(a, b) for k, a in enumerate(items) for b in items[k + 1 :]]
    results = [Result(a, b, "first", "x") for a, b in pairs] + [Result(a, b, "second", "y") for a, b in pairs]
    found = ranked(items, results)
    assert [judge.agreement for judge in found.consistency.judges] == [0.0, 0.0]
    assert "disagreement" in {flag.code for flag in ranking_flags(found, by_arrival=True)}


def test_a_swap_that_keeps_the_winner_counts_as_consistent() -> None:
    """Swap consistency looks at who won, not at which side."""
    results = [
        Result("a", "b", "first"),
        Result("b", "a", "second"),
        Result("a", "c", "first"),
        Result("c", "a", "first"),
    ]
    report = ranked(["a", "b", "c"], results).consistency
    assert (report.swaps, report.swap_consistency) == (2, 0.5)


def test_a_good_judge_on_both_orders_is_not_sent_to_review() -> None:
    """The study's 80 % judge stays below every review threshold in an ordinary challenge."""
    world = draw_world(20, 11)
    found = ranked(list(world.items), play(world, Fixed(Field(world.items), is_both=True)), winners=3)
    assert [flag for flag in ranking_flags(found, by_arrival=True) if flag.severity == "review"] == []


def test_bad_input_names_the_offender() -> None:
    """Unknown items, self-play and a wrong pay line are refused with a remedy."""
    with pytest.raises(BadInput, match="'x'"):
        ranked(["a", "b"], [Result("a", "x", "first")])
    with pytest.raises(BadInput, match="itself"):
        ranked(["a", "b"], [Result("a", "a", "first")])
    with pytest.raises(BadInput, match="twice"):
        ranked(["a", "a"], [])
    with pytest.raises(BadInput, match="does not fit"):
        rank(tally(["a", "b"], []), seed=b"", winner_count=2, payout_bps=(6000, 3000))
    with pytest.raises(BadInput, match="winners"):
        ranked(["a", "b"], [], winners=0)
    with pytest.raises(BadInput, match="nothing to rank"):
        ranked([], [])


@pytest.mark.specification("5", "Layer 5: A > B, B > C, C > A is flagged")
def test_a_cycle_of_three_is_flagged_and_waits() -> None:
    """A over B, B over C, C over A: all are tied, the flag says why, and a person looks before money moves."""
    found = ranked(
        ["a", "b", "c"], [Result("a", "b", "first"), Result("b", "c", "first"), Result("c", "a", "first")], 1
    )
    flag = next(flag for flag in ranking_flags(found, by_arrival=True) if flag.code == "cycles")
    assert flag.severity == "review"
    assert "a contradiction" in flag.sentence
    assert found.ties == (("a", "b", "c"),)


def test_a_cycle_far_from_the_money_is_told_and_does_not_wait() -> None:
    """A small field with a winner beyond doubt is paid although the others contradict each other."""
    rest = ["b", "c", "d"]
    won = [Result("a", other, "first") for other in rest for _ in range(12)]
    won += [Result(other, "a", "second") for other in rest for _ in range(12)]
    cycle = [Result("b", "c", "first"), Result("c", "d", "first"), Result("d", "b", "first")]
    found = ranked(["a", *rest], [*won, *cycle], 1)
    assert found.margin.word == "clear"
    assert [flag.severity for flag in ranking_flags(found, by_arrival=True) if flag.code == "cycles"] == ["warn"]


def test_the_range_does_not_jump_with_the_first_result() -> None:
    """Before any result every place is likely; one result moves an end of a range by at most one place of eight."""
    items = [f"i{k}" for k in range(8)]
    before = ranked(items, []).standings[0]
    after = ranked(items, [Result("i0", "i1", "first")]).standings[0]
    assert (before.rank_low, before.rank_high) == (1, 8)
    assert after.rank_low == 1
    assert after.rank_high in {7, 8}


def test_clear_is_said_of_the_paid_set_and_not_of_one_neighbour() -> None:
    """Two entries far ahead of the third are a clear set of two; which of them is first stays a toss-up."""
    items = ["a", "b", "c", "d"]
    games = [Result(x, y, "first") for x in "ab" for y in "cd" for _ in range(20)]
    games += [Result(y, x, "second") for x in "ab" for y in "cd" for _ in range(20)]
    games += [Result("a", "b", "tie"), Result("b", "a", "tie"), Result("c", "d", "tie"), Result("d", "c", "tie")]
    found = rank(tally(items, games), seed=b"", winner_count=2, payout_bps=(7000, 3000))
    assert [margin.word for margin in found.margins] == ["toss-up", "clear"]
    assert found.margin.set_chance >= 0.9
    assert "these 2 are the best" in found.margin.sentence


def test_places_below_the_pay_line_follow_the_fit_where_some_never_met() -> None:
    """In an adaptive tournament Elo orders the paid places and the fitted strength the others; the ranking says so."""
    world = draw_world(25, 8)
    schedule = Adaptive(Field(world.items, max_comparisons=120), TOP3)
    found = rank(tally(world.items, play(world, schedule)), seed=b"x", winner_count=3, payout_bps=(6000, 2500, 1500))
    paid, rest = found.standings[:3], found.standings[3:]
    assert found.ordered_by == "elo, then strength"
    assert all(a.elo >= b.elo for a, b in pairwise(paid))
    assert all(s.elo <= paid[-1].elo for s in rest)
    assert all(a.theta >= b.theta - 1e-6 or a.item in found.tied_with(b.item) for a, b in pairwise(rest))
    complete = rank(tally(world.items, play(world, Fixed(Field(world.items)))), seed=b"x", winner_count=3)
    assert complete.ordered_by == "elo"


def test_the_fewest_verdicts_that_decide_are_counted() -> None:
    """One verdict between two that are nearly level; several if one is far ahead; none to count if all are paid."""
    items = ["a", "b", "c"]
    close = [Result("a", "b", "first"), Result("a", "c", "first"), Result("b", "c", "first")]
    assert ranked(items, close, 1).deciding_verdicts == 1
    both = [*close, *(Result(r.second, r.first, "second") for r in close)]
    assert ranked(items, both * 3, 1).deciding_verdicts == 4
    assert ranked(items, both, 3).deciding_verdicts is None
    assert ranked(items, both * 20, 1).deciding_verdicts is None
