"""Verdicts by arithmetic: nothing is uncertain but a tie, and nothing is called exact that is not."""

from __future__ import annotations

import random
from itertools import permutations

from clara_eval.core.model import Winner
from clara_eval.ranking import Ranking, Result, rank, tally

ITEMS = [f"i{k}" for k in range(7)]


def verdict(a: int, b: int) -> Winner:
    return "tie" if a == b else "first" if a > b else "second"


def by_merit(merits: list[int]) -> list[Result]:
    """Everybody against everybody, in both orders."""
    places = range(len(merits))
    return [Result(ITEMS[a], ITEMS[b], verdict(merits[a], merits[b]), "rules") for a, b in permutations(places, 2)]


def ranked(results: list[Result], *, exact: bool = True) -> Ranking:
    return rank(tally(ITEMS, results), seed=b"challenge", winner_count=3, exact=exact)


def test_arithmetic_leaves_no_doubt_about_the_paid_places() -> None:
    """Seven entries in a strict order: paid or not for certain, at one rank, with intervals of no width."""
    found = ranked(by_merit([7, 6, 5, 4, 3, 2, 1]))
    assert [s.p_top for s in found.standings] == [1, 1, 1, 0, 0, 0, 0]
    assert all(s.low == round(s.elo, 1) == s.high and s.rank_low == s.rank == s.rank_high for s in found.standings)
    assert (found.margin.probability, found.margin.set_chance, found.margin.word) == (1, 1, "clear")
    assert found.misallocation == 0


def test_the_posted_numbers_do_not_depend_on_it() -> None:
    """Ratings, scores and places are those of any other round; only what is said about doubt differs."""
    sure, doubtful = (ranked(by_merit([7, 6, 5, 4, 3, 2, 1]), exact=exact) for exact in (True, False))
    assert [(s.item, s.elo, s.score) for s in sure.standings] == [(s.item, s.elo, s.score) for s in doubtful.standings]
    assert doubtful.margin.probability < 1


def test_who_is_level_at_the_pay_line_shares_the_chance() -> None:
    """Places 3 and 4 with equal merit: the lot would decide, the margin says a toss-up, the others are certain."""
    found = ranked(by_merit([7, 6, 4, 4, 3, 2, 1]))
    chance = {s.item: s.p_top for s in found.standings}
    assert [chance[item] for item in ("i0", "i1", "i4", "i5", "i6")] == [1, 1, 0, 0, 0]
    assert abs(chance["i2"] - 0.5) < 0.05
    assert abs(chance["i3"] - 0.5) < 0.05
    assert (found.margin.word, found.margin.tied) == ("about equal", True)


def test_contradictions_and_missing_pairs_keep_their_doubt() -> None:
    """A circle of three, or one pair that never met: not exact, whoever judged."""
    whole = by_merit([7, 6, 5, 4, 3, 2, 1])
    circle = [
        Result(r.first, r.second, "first" if r.first == "i3" else "second", "rules")
        if {r.first, r.second} == {"i1", "i3"}
        else r
        for r in whole
    ]
    missing = [r for r in whole if {r.first, r.second} != {"i2", "i3"}]
    for results in (circle, missing):
        assert repr(ranked(results)) == repr(ranked(results, exact=False))


def test_whoever_leaves_a_settled_field_changes_nothing() -> None:
    """Verdicts by arithmetic, ties among them: played again without each unpaid entry, Elo pays the same entries."""
    rng = random.Random(7)
    for _ in range(12):
        items = [f"i{k:02}" for k in range(rng.randint(3, 16))]
        merits = [rng.choice((1, 2, 3)) if rng.random() < 0.3 else rng.randrange(4, 1000) for _ in items]
        results = [
            Result(items[a], items[b], verdict(merits[a], merits[b]), "rules")
            for a, b in permutations(range(len(items)), 2)
        ]
        found = [rank(tally(items, results), seed=b"seed", winner_count=2, exact=exact) for exact in (True, False)]
        assert [ranking.consistency.pivotal_items for ranking in found] == [(), ()]
