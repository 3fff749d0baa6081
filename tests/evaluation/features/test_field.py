"""The field tells who stands out: outliers, claims without support, a missing second view; and leaves honest ones alone."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import median

import pytest

from clara_eval.config.eval_config import MEASURED, Feature, FeatureSchema, level_feature
from clara_eval.core.address import Address
from clara_eval.core.model import Flag
from clara_eval.evaluation.features.extract import SecondView, SubmissionFacts, choose_values
from clara_eval.evaluation.features.field import AMBIGUOUS_CLAIMS, compare_field, usual_of_others
from clara_eval.judge.comparison import Value

FUNCTIONS = FeatureSchema((MEASURED["functions"],))
LEVEL = FeatureSchema((level_feature("correctness"),))
LEVELS = FeatureSchema(tuple(level_feature(name) for name in ("right", "clear", "safe")))


def account(number: int) -> Address:
    return Address(f"0x{number:040x}")


def measured(schema: FeatureSchema, **values: Value) -> SubmissionFacts:
    vector, flags = choose_values(schema, values, {})
    return SubmissionFacts(vector, {}, dict(values), {}, flags)


def claimed(
    schema: FeatureSchema, view: SecondView = "read", unsupported: tuple[str, ...] = (), **values: Value
) -> SubmissionFacts:
    vector, flags = choose_values(schema, {}, values)
    return SubmissionFacts(vector, {}, {}, dict(values), flags, (), view, unsupported)


def codes(schema: FeatureSchema, field: list[SubmissionFacts]) -> list[list[str]]:
    found = compare_field(schema, {account(n): facts for n, facts in enumerate(field)})
    return [[flag.code for flag in found[account(n)].flags] for n in range(len(field))]


@pytest.mark.specification("5", "Layer 5: statistical outliers are flagged for review")
def test_sixty_functions_among_two_to_four_stand_out() -> None:
    """In a batch of eight one with sixty functions is flagged, and nobody else."""
    field = [measured(FUNCTIONS, functions=count) for count in (2, 3, 4, 2, 3, 4, 3, 60)]
    assert codes(FUNCTIONS, field) == [*([[]] * 7), ["outlier"]]


def test_steps_of_a_wide_range_make_no_outliers() -> None:
    """What the judge sees in steps of ten is compared as it was measured."""
    schema = FeatureSchema((MEASURED["mean_complexity"],))
    values = (1.2, 2.0, 3.1, 2.2, 4.4, 1.9, 5.2, 2.5)
    assert codes(schema, [measured(schema, mean_complexity=value) for value in values]) == [[]] * 8


def test_a_small_or_mixed_field_has_no_outliers() -> None:
    """Four entries say nothing about what is usual, and sizes that differ by ten are usual where all differ."""
    assert codes(FUNCTIONS, [measured(FUNCTIONS, functions=count) for count in (2, 3, 4, 60)]) == [[]] * 4
    spread = (1, 3, 8, 20, 45, 90, 2, 30)
    assert codes(FUNCTIONS, [measured(FUNCTIONS, functions=count) for count in spread]) == [[]] * 8


@pytest.mark.parametrize("lie", [4, 3])
def test_one_claim_that_stands_out_is_flagged(lie: int) -> None:
    """One claimed feature is enough: alone at the top, or a step below it, above a field in the middle."""
    values = [2, 2, 1, 2, 1, 2, 2, 1, 2, 1, 2, lie]
    found = codes(LEVEL, [claimed(LEVEL, correctness=value) for value in values])
    assert found == [*([[]] * 11), ["claims_stand_out"]]


def test_whoever_would_be_paid_for_one_claim_alone_is_looked_at() -> None:
    """Two nearly at the best of one scale are looked at where two are paid, not where one is, and not among equals."""
    field = [claimed(LEVEL, correctness=value) for value in (1, 2, 0, 2, 1, 2, 4, 1, 2, 4)]

    def looked_at(paid: int, entries: list[SubmissionFacts], schema: FeatureSchema = LEVEL) -> list[int]:
        found = compare_field(schema, {account(n): facts for n, facts in enumerate(entries)}, paid)
        return [n for n in range(len(entries)) if any(f.severity == "review" for f in found[account(n)].flags)]

    assert looked_at(2, field) == [6, 9]
    assert looked_at(1, field) == []
    assert looked_at(3, [*field, field[6]]) == []
    measured_too = FeatureSchema((*LEVEL.features, MEASURED["max_nesting"], MEASURED["duplicate_share"]))
    vectors = [choose_values(measured_too, {"max_nesting": 2, "duplicate_share": 0.0}, f.claimed)[0] for f in field]
    facts = {"max_nesting": 2, "duplicate_share": 0.0}
    mixed = [replace(f, vector=v, measured=dict(facts)) for f, v in zip(field, vectors, strict=True)]
    assert looked_at(2, mixed, measured_too) == []


def test_where_the_field_cannot_tell_nobody_is_flagged_and_the_place_waits() -> None:
    """Three at the best of a wide scale may be honest: none is flagged, and each is marked as not told from a liar."""
    wide = [claimed(LEVEL, correctness=value) for value in (0, 1, 1, 2, 2, 1, 0, 1, 2, 4, 4, 4)]
    found = compare_field(LEVEL, {account(n): facts for n, facts in enumerate(wide)}, 3)
    flags = {who: [(flag.code, flag.severity) for flag in facts.flags] for who, facts in found.items() if facts.flags}
    assert flags == {account(n): [(AMBIGUOUS_CLAIMS, "info")] for n in (9, 10, 11)}


def test_uneven_claims_near_the_best_are_looked_at_like_even_ones() -> None:
    """The best of one and a step below in another is as suspicious as the best of both: 4, 3, 4, 3 is a usual lie."""
    pair = FeatureSchema((level_feature("right"), level_feature("clear")))
    field = [claimed(pair, right=n % 4, clear=(n + 1) % 4) for n in range(9)]
    for right, clear in ((4, 3), (4, 4), (3, 3)):
        assert codes(pair, [*field, claimed(pair, right=right, clear=clear)])[-1] == ["claims_stand_out"]
    mixed = [claimed(LEVELS, right=2, clear=n % 4, safe=2) for n in range(7)]
    assert "nearly_all_best" in codes(LEVELS, [*mixed, claimed(LEVELS, right=4, clear=3, safe=4)])[-1]


@pytest.mark.specification("5", "Layer 4: an injection that inflates one submission is normalized against others")
def test_what_words_alone_show_cannot_win() -> None:
    """A claim that no code supports counts at most as the median of the others."""
    field = {account(n): claimed(LEVEL, unsupported=("correctness",), correctness=n % 3) for n in range(6)}
    field[account(9)] = claimed(LEVEL, unsupported=("correctness",), correctness=4)
    found = {who: facts.vector.as_dict()["correctness"] for who, facts in compare_field(LEVEL, field).items()}
    assert found[account(9)] == 1
    assert found[account(0)] == 0
    undirected = FeatureSchema((Feature("kind", "enum", values=("plain", "proven")),))
    lone = [claimed(undirected, kind="plain") for _ in range(3)] + [
        claimed(undirected, unsupported=("kind",), kind="proven")
    ]
    seen = compare_field(undirected, {account(n): facts for n, facts in enumerate(lone)})
    assert seen[account(3)].vector.as_dict() == {"kind": None}


def test_views_that_differ_for_most_entries_flag_nobody() -> None:
    """A feature about names differs for everybody between the views; for one entry alone it is a reason to look."""
    flag = Flag("views_disagree", "review", "It differs.", evidence={"feature": "correctness", "full": 4, "neutral": 1})

    def severities(count: int) -> list[str]:
        field = [claimed(LEVEL, correctness=1 + n % 2) for n in range(6)]
        field = [replace(f, flags=(flag,)) if n < count else f for n, f in enumerate(field)]
        found = compare_field(LEVEL, {account(n): facts for n, facts in enumerate(field)})
        return [one.severity for one in found[account(0)].flags if one.code == "views_disagree"]

    assert severities(1) == ["review"]
    assert severities(6) == ["info"]


def test_the_best_of_a_group_does_not_stand_out() -> None:
    """Where a third of the field is far better than the rest, nobody of it is an outlier."""
    number = FeatureSchema((Feature("coverage", "number", min=0, max=100, better="higher"),))
    field = [claimed(number, coverage=value) for value in (30, 32, 35, 31, 36, 33, 34, 38, 80, 82, 84, 85)]
    assert codes(number, field) == [[]] * 12


def test_good_claims_among_good_claims_are_left_alone() -> None:
    """Where several are at the top, nobody stands out."""
    assert codes(LEVEL, [claimed(LEVEL, correctness=value) for value in (4, 4, 3, 4, 3, 2, 4, 3, 1, 3)]) == [[]] * 10


def test_everything_a_step_below_the_best_is_flagged_where_it_is_rare() -> None:
    """Three claims one step below the maximum, in a field where nobody else has that, wait for a person."""
    field = [claimed(LEVELS, right=2, clear=n % 4, safe=2) for n in range(7)]
    assert "nearly_all_best" in codes(LEVELS, [*field, claimed(LEVELS, right=3, clear=3, safe=3)])[-1]
    alike = [claimed(LEVELS, right=3, clear=4, safe=3) for _ in range(5)]
    assert codes(LEVELS, alike) == [[]] * 5


def test_a_claim_that_nothing_shows_counts_as_the_middle() -> None:
    """Where others name a line that shows it, a claim without one is capped; where nobody does, the usual counts."""
    field = {account(n): claimed(LEVEL, correctness=3) for n in range(5)}
    field[account(9)] = claimed(LEVEL, unsupported=("correctness",), correctness=4)
    found = compare_field(LEVEL, field)
    assert found[account(9)].vector.as_dict() == {"correctness": 2}
    assert [(f.code, f.severity) for f in found[account(9)].flags] == [("unsupported_claim", "review")]
    nobody = {who: replace(facts, unsupported=("correctness",)) for who, facts in field.items()}
    assert compare_field(LEVEL, nobody)[account(9)].vector.as_dict() == {"correctness": 3}


@pytest.mark.parametrize(
    ("feature", "before", "after"),
    [
        (Feature("x", "number", min=0, max=100, better="lower"), 3, 50.0),
        (Feature("x", "boolean", better="higher"), True, False),
        (Feature("x", "enum", values=("low", "medium", "high"), better="higher"), "high", "medium"),
        (Feature("x", "integer", min=0, max=4, better="higher"), 1, 1),
        (Feature("x", "number", min=0, max=100), 90, None),
    ],
    ids=["lower", "boolean", "enum", "already low", "no direction"],
)
def test_the_middle_is_the_middle_of_every_type(feature: Feature, before: Value, after: Value) -> None:
    """The cap goes towards the worse end, and never makes a claim better."""
    schema = FeatureSchema((feature,))
    found = compare_field(schema, {account(1): claimed(schema, unsupported=("x",), x=before)})
    assert found[account(1)].vector.as_dict() == {"x": after}


def test_a_missing_second_view_waits_where_others_have_one() -> None:
    """Code that cannot be parsed is flagged and capped; so is prose among code; prose among prose is not."""
    field = [claimed(LEVEL, correctness=value) for value in (2, 1, 2)]
    for view in ("missing", "none"):
        entries = {account(n): facts for n, facts in enumerate([*field, claimed(LEVEL, view, correctness=4)])}
        found = compare_field(LEVEL, entries)[account(3)]
        assert [flag.code for flag in found.flags] == ["unsupported_claim", "no_second_view"]
        assert found.vector.as_dict() == {"correctness": 1}
    assert codes(LEVEL, [claimed(LEVEL, "none", correctness=2) for _ in range(4)]) == [[]] * 4


def test_the_order_of_entries_does_not_matter() -> None:
    """The same field in another order gets the same facts and flags."""
    field = {account(n): claimed(LEVEL, correctness=value) for n, value in enumerate((1, 2, 1, 2, 4, 2, 1, 2))}
    assert compare_field(LEVEL, dict(reversed(field.items()))) == compare_field(LEVEL, field)


def test_what_is_usual_among_the_others_leaves_out_one_entry() -> None:
    """Median and deviation without one entry are those of the rest, for every entry of any field."""
    rng = random.Random(7)
    for size in range(2, 40):
        values = [rng.choice((1.0, 2.0, 2.5, rng.uniform(0, 9))) for _ in range(size)]
        for place, mine in enumerate(values):
            rest = values[:place] + values[place + 1 :]
            middle = median(rest)
            spread = max(1.4826 * median([abs(value - middle) for value in rest]), 0.01)
            assert usual_of_others(values, mine, 0.01) == (middle, spread)
