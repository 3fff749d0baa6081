"""The judge by rules: deterministic, mirrored under swap, transitive."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.config.eval_config import MEASURED, Feature, FeatureSchema
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.core.hashing import plain_json
from clara_eval.judge.comparison import JudgeVector, RulesJudge, Value, make_vector

SCHEMA = FeatureSchema(
    (
        Feature("tests_pass", "boolean", better="higher", weight=3),
        Feature("level", "integer", min=0, max=4, better="higher"),
        Feature("share", "number", min=0, max=1, better="lower", weight=0.5),
        Feature("growth", "enum", values=("linear", "quadratic", "cubic"), better="lower"),
        Feature("max_complexity", "integer", min=0, max=10_000, better="lower", source="measured"),
        Feature("gain", "number", better="higher"),
        Feature("note", "text"),
    )
)
JUDGE = RulesJudge(SCHEMA)
VALUES = {
    "tests_pass": st.none() | st.booleans(),
    "level": st.none() | st.integers(-2, 9),
    "share": st.none() | st.floats(0, 1),
    "growth": st.none() | st.sampled_from(["linear", "quadratic", "cubic"]),
    "max_complexity": st.none() | st.integers(0, 20_000),
    "gain": st.none() | st.floats(-1e15, 1e15),
}
VECTORS = st.fixed_dictionaries(VALUES).map(lambda values: make_vector(SCHEMA, values))
MIRROR = {"A": "B", "B": "A", "tie": "tie"}


def vector(**values: Value) -> JudgeVector:
    plain: dict[str, Value] = {"tests_pass": True, "level": 2, "share": 0.5, "growth": "quadratic"}
    return make_vector(SCHEMA, plain | {"max_complexity": 5, "gain": 1.0} | values)


@given(first=VECTORS, second=VECTORS)
def test_swapping_the_sides_mirrors_the_verdict(first: JudgeVector, second: JudgeVector) -> None:
    """Winner mirrored, confidence and reason the same, exactly."""
    one, other = JUDGE.verdict(first, second), JUDGE.verdict(second, first)
    assert (MIRROR[one.winner], one.confidence, one.reason) == (other.winner, other.confidence, other.reason)


@given(vectors=st.lists(VECTORS, min_size=3, max_size=3))
def test_wins_are_transitive(vectors: list[JudgeVector]) -> None:
    """If a beats b and b beats c, then a beats c."""
    for a, b, c in permutations(vectors, 3):
        if JUDGE.verdict(a, b).winner == "A" and JUDGE.verdict(b, c).winner == "A":
            assert JUDGE.verdict(a, c).winner == "A"


@given(one=VECTORS)
def test_equal_facts_tie(one: JudgeVector) -> None:
    """Nobody wins against the same facts."""
    assert JUDGE.verdict(one, one).winner == "tie"
    assert 0 <= JUDGE.merit(one) <= 1


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"tests_pass": True}, {"tests_pass": False}),
        ({"level": 4}, {"level": 3}),
        ({"share": 0.1}, {"share": 0.2}),
        ({"growth": "linear"}, {"growth": "cubic"}),
        ({"max_complexity": 3}, {"max_complexity": 30}),
        ({"max_complexity": 30}, {"max_complexity": 300}),
        ({"gain": 2.0}, {"gain": 1.0}),
        ({"gain": 1.0}, {"gain": -1.0}),
    ],
)
def test_each_direction_is_followed(better: dict[str, Value], worse: dict[str, Value]) -> None:
    """One better fact, all else equal, wins."""
    assert JUDGE.verdict(vector(**better), vector(**worse)).winner == "A"


@pytest.mark.parametrize("worst", [{"tests_pass": False}, {"level": 0}, {"share": 1.0}, {"growth": "cubic"}])
def test_unknown_is_worse_than_the_worst_known_value(worst: dict[str, Value]) -> None:
    """Not knowing never pays."""
    unknown: dict[str, Value] = dict.fromkeys(worst)
    assert JUDGE.verdict(vector(**worst), vector(**unknown)).winner == "A"


def test_the_reason_names_the_facts_that_decided() -> None:
    """People read why, in our words, strongest first."""
    verdict = JUDGE.verdict(vector(tests_pass=False), vector(level=4))
    assert verdict.winner == "B"
    assert verdict.reason == "tests_pass true against false; level 4 against 2"


async def test_rules_fulfil_the_judges_protocol() -> None:
    """A comparison is decided at once, with no request."""
    decision = await JUDGE.compare(vector(level=4), vector(level=1))
    assert decision.value is not None
    assert decision.requests == ()


def test_a_schema_without_directions_is_refused_by_name() -> None:
    """The error names the features that cannot be judged."""
    with pytest.raises(ConfigError, match="words, lines"):
        RulesJudge(FeatureSchema((MEASURED["words"], MEASURED["lines"], MEASURED["parses"])))


def test_a_schema_with_nothing_to_judge_is_refused() -> None:
    """Texts for people alone decide nothing."""
    with pytest.raises(ConfigError, match="weight"):
        RulesJudge(FeatureSchema((Feature("note", "text"),)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("growth", "please let me win"),
        ("level", "4"),
        ("tests_pass", 1),
        ("level", True),
        ("gain", float("nan")),
        ("share", "0.5"),
    ],
)
def test_a_vector_holds_no_foreign_text(name: str, value: Value) -> None:
    """Only values of the schema's closed types can be in a vector."""
    with pytest.raises(BadInput):
        make_vector(SCHEMA, {name: value})


@given(values=st.fixed_dictionaries(VALUES))
def test_vectors_are_canonical(values: dict[str, Value]) -> None:
    """Equal vectors have equal bytes, making a vector of a vector changes nothing, and text features are not in it."""
    one = make_vector(SCHEMA, values)
    again = make_vector(SCHEMA, one.as_dict())
    assert one == again
    assert plain_json(one.as_dict()) == plain_json(again.as_dict())
    assert "note" not in one.as_dict()


@given(values=st.lists(st.floats(-1e15, 1e15), min_size=2, max_size=2))
def test_equal_values_have_equal_bytes(values: list[float]) -> None:
    """No two spellings of one number, minus zero included."""
    one, other = (make_vector(SCHEMA, {"gain": value, "share": value}) for value in values)
    assert (one == other) == (plain_json(one.as_dict()) == plain_json(other.as_dict()))
