"""The words at the pay line say what the judge's verdicts tell, and whose verdicts they are."""

from __future__ import annotations

from itertools import permutations

from clara_eval.ranking import Result, rank, tally

NAMES = [f"i{k:02}" for k in range(16)]


def test_a_field_that_ties_is_about_equal_and_two_alone_are_a_toss_up() -> None:
    """One split pair tells nothing; ties of all with all say that both are equally good, and name the judge."""
    split = rank(tally("ab", [Result("a", "b", "first"), Result("b", "a", "first")]), seed=b"", winner_count=1).margin
    ties = [Result(a, b, "tie") for a, b in permutations(NAMES, 2)]
    equal = rank(tally(NAMES, ties), seed=b"", winner_count=1).margin
    assert (split.word, equal.word) == ("toss-up", "about equal")
    assert "by this judge, the two are about equally good" in equal.sentence
    assert "by this judge" in split.sentence
