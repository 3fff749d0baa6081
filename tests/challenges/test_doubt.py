"""Doubt in money: a person decides above both limits, and the flag says how much and how few verdicts decide."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from tests.support.simulation import Model, draw_world, play

from clara_eval.challenges.evaluate import Options, doubt_about_money
from clara_eval.config.settings import Settings
from clara_eval.evaluation.plan import EvaluationPlan
from clara_eval.evaluation.review_defaults import DOUBT, Moment, Then, default_of
from clara_eval.ranking import Ranking, Result, rank, tally
from clara_eval.ranking.field import Field
from clara_eval.ranking.schedule import Fixed

OPTIONS = Options(Settings().network, EvaluationPlan(("m",)), 60.0)
USD = 1_000_000


def close_round() -> Ranking:
    """A round in which hardly anything is known about the order."""
    world = draw_world(6, 3, Model(sigma=0.1))
    return rank(tally(world.items, play(world, Fixed(Field(world.items)))), seed=b"", winner_count=1)


def clear_round() -> Ranking:
    results = [Result(a, b, "first" if a < b else "second") for a, b in permutations("abc", 2) for _ in range(9)]
    return rank(tally("abc", results), seed=b"", winner_count=1)


@pytest.mark.parametrize(("worth", "waits"), [(50 * USD, False), (500 * USD, True), (None, False)])
def test_a_close_round_waits_if_enough_money_is_at_stake(worth: int | None, waits: bool) -> None:
    """More than fifty dollars and a fifth of the prize: a person decides; for less it is posted."""
    assert bool(doubt_about_money(close_round(), worth, OPTIONS)) == waits


def test_a_clear_round_does_not_wait_whatever_the_prize() -> None:
    """The share counts as well: a large prize with little doubt is posted."""
    assert clear_round().misallocation < 0.2
    assert doubt_about_money(clear_round(), 900_000 * USD, OPTIONS) == ""
    assert doubt_about_money(close_round(), 900 * USD, replace(OPTIONS, review_doubt_usd=None)) == ""


def test_the_sentence_names_amount_share_and_limits() -> None:
    """A person reads how much is in doubt, and why it waits."""
    told = doubt_about_money(close_round(), 500 * USD, OPTIONS)
    assert f"({100 * close_round().misallocation:.0f} %)" in told
    assert "more than $50.00 and 20 %" in told


def test_doubt_is_posted_as_ranked_if_nobody_decides() -> None:
    """The table of defaults has a row for it."""
    assert (default_of(DOUBT).then, default_of(DOUBT).moment) == (Then.STAYS, Moment.HALF)
