"""A large round by rules: the same verdicts as pair by pair, behind one hash that anybody can compute again."""

from __future__ import annotations

import random
from hashlib import sha256
from struct import pack

import pytest

from clara_eval.challenges.stored_results import is_shown
from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.evaluation.play import LISTED, judge_by_rules, play_tournament
from clara_eval.judge.comparison import JudgeVector, RulesJudge, make_vector
from clara_eval.ranking import Schedule, tally
from clara_eval.ranking.results import Field, balanced_columns
from clara_eval.ranking.schedule import Fixed

SCHEMA = FeatureSchema(
    (
        Feature("size", "integer", 0, 1_000_000, better="lower", weight=2.0),
        Feature("grade", "number", 0, 1, better="higher", weight=3.0),
        Feature("kind", "enum", values=("poor", "fair", "good"), better="higher"),
        Feature("tested", "boolean", better="higher"),
    )
)
ITEMS = tuple(f"0x{(number * 7919) % 100_003:040x}" for number in range(LISTED + 7))


def vectors() -> dict[str, JudgeVector]:
    """Coarse values, so that ties and near ties are among them."""
    rng = random.Random(5)
    return {
        item: make_vector(
            SCHEMA,
            {
                "size": rng.choice((None, 10, 11, 5000, 5001)),
                "grade": rng.choice((0.5, 0.5001, 0.501, 0.9)),
                "kind": rng.choice(("poor", "fair", "good", None)),
                "tested": rng.random() < 0.5,
            },
        )
        for item in ITEMS
    }


@pytest.mark.parametrize(
    "schedule",
    [Fixed(Field(ITEMS)), Fixed(Field(ITEMS), True), Fixed(Field(ITEMS, max_comparisons=6000), True)],
    ids=lambda s: s.name,
)
async def test_every_verdict_is_that_of_asking_pair_by_pair(schedule: Schedule) -> None:
    """The columns, and each comparison made from them, are what the rules say about each pair alone."""
    shown, judge = vectors(), RulesJudge(SCHEMA)
    played = await play_tournament(schedule, {"": judge}, shown)
    found = judge_by_rules(schedule, {"": judge}, ITEMS, shown)
    assert found is not None
    slow = tally(ITEMS, [comparison.result for comparison in played])
    for column in ("first", "second", "half_points"):
        assert getattr(found.table, column).tolist() == getattr(slow, column).tolist()
    assert {1, 2, 0} == set(found.table.half_points.tolist())
    by_pair = {(c.first, c.second): (c.winner, c.confidence, c.reason) for c in played}
    assert len(found) == len(by_pair)
    assert {(c.first, c.second): (c.winner, c.confidence, c.reason) for c in found[::37]}.items() <= by_pair.items()


async def test_the_hash_is_over_nine_bytes_a_verdict() -> None:
    """Both indices and the half points, in order; one turned verdict gives another hash."""
    found = judge_by_rules(Fixed(Field(ITEMS), is_both=True), {"rules": RulesJudge(SCHEMA)}, ITEMS, vectors())
    assert found is not None
    table = found.table
    rows = zip(table.first.tolist(), table.second.tolist(), table.half_points.tolist(), strict=True)
    assert found.commitment == "0x" + sha256(b"".join(pack("<IIB", *row) for row in rows)).hexdigest()
    before = found.commitment
    table.half_points[4000] = (table.half_points[4000] + 1) % 3
    assert found.commitment != before


def test_small_rounds_models_and_chosen_pairs_are_played() -> None:
    """Up to a hundred entries, with a second judge, or where the schedule chooses, comparisons are listed."""
    judge, shown = RulesJudge(SCHEMA), vectors()
    assert judge_by_rules(Fixed(Field(ITEMS[:LISTED]), is_both=True), {"rules": judge}, ITEMS[:LISTED], shown) is None
    assert judge_by_rules(Fixed(Field(ITEMS), is_both=True), {"rules": judge, "other": judge}, ITEMS, shown) is None


@pytest.mark.parametrize("size", [2, 3, 7])
def test_columns_and_places_of_looks_are_those_of_the_list(size: int) -> None:
    """The looks as columns, and whether one is among the first so many, agree with the list of looks."""
    once = list(zip(*(column.tolist() for column in balanced_columns(size)), strict=True))
    first, second = balanced_columns(size)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == once
    for name, looks in (("full", once), ("both", [*once, *((b, a) for a, b in once)])):
        for count in range(len(looks) + 1):
            shown = {(a, b) for a in range(size) for b in range(size) if a != b and is_shown(name, size, count, a, b)}
            assert shown == set(looks[:count])
