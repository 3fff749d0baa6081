"""What running adds to the facts: measured values that no claim moves, and flags where nothing could be measured."""

from __future__ import annotations

import pytest

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.evaluation.features.extract import choose_values, executed_flags, executed_values
from clara_eval.harness import Executed, RunOutcome
from clara_eval.harness.model import Call

SCHEMA = FeatureSchema(
    (
        Feature("tests_passed", "number", 0, 1, better="higher", source="measured"),
        Feature("test_small", "boolean", better="higher", source="measured"),
        Feature("gas_small", "integer", 0, better="lower", source="measured"),
    )
)
RAN = Executed(
    "solidity",
    RunOutcome.FAILED,
    calls=(Call("setUp", "setUp", RunOutcome.PASSED, 9), Call("test_small", "test", RunOutcome.FAILED, 25_000)),
    facts={"compiles": True},
)


def test_a_lying_extractor_moves_nothing_that_was_executed() -> None:
    """Whatever a model claims about executed features, the vector is the measured one, and the gap is a flag."""
    measured = executed_values(SCHEMA, RAN)
    honest, _ = choose_values(SCHEMA, measured, {})
    lies = {"tests_passed": 1.0, "test_small": True, "gas_small": 1}
    vector, flags = choose_values(SCHEMA, measured, lies)
    assert vector == honest
    assert vector.as_dict() == {"tests_passed": 0.0, "test_small": False, "gas_small": None}
    assert {flag.code for flag in flags} == {"claim_gap"}


def test_only_what_passed_has_a_cost() -> None:
    """Whoever fails early is not cheap: gas is known of a function that passed, and of no other."""
    for outcome, gas in ((RunOutcome.PASSED, 25_000), (RunOutcome.FAILED, None), (RunOutcome.OUT_OF_GAS, None)):
        ran = Executed("solidity", outcome, calls=(RAN.calls[0], Call("test_small", "test", outcome, 25_000)))
        assert executed_values(SCHEMA, ran)["gas_small"] == gas


def test_what_does_not_compile_fails_its_tests_and_costs_nothing_known() -> None:
    """Tests that could not begin are failed; gas that was not used is unknown, not zero."""
    broken = Executed("solidity", RunOutcome.DOES_NOT_COMPILE, facts={"compiles": False})
    assert executed_values(SCHEMA, broken) == {"tests_passed": 0.0, "test_small": False}
    (flag,) = executed_flags(broken)
    assert (flag.code, flag.severity) == ("does_not_run", "info")


@pytest.mark.parametrize("outcome", [RunOutcome.PASSED, RunOutcome.FAILED])
def test_an_ordinary_end_raises_no_flag(outcome: RunOutcome) -> None:
    """Passing and failing are what tests are for."""
    assert executed_flags(Executed("solidity", outcome)) == ()


def test_a_machine_that_failed_knows_nothing_and_asks_for_a_person() -> None:
    """Infrastructure gives no value, and the post waits for review."""
    lost = Executed("solidity", RunOutcome.INFRASTRUCTURE)
    assert executed_values(SCHEMA, lost) == {}
    (flag,) = executed_flags(lost)
    assert (flag.code, flag.severity) == ("not_executed", "review")
