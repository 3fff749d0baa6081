"""Every attack on a Solidity harness, through the real compiler and EVM: no undeserved test, no undeserved number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clara_eval.harness import Executed, Machine
from clara_eval.redteam.solidity_harness import (
    HONEST,
    IDLE_ATTACKS,
    SOLIDITY_ATTACKS,
    WORKING_ATTACKS,
    HarnessAttack,
    gains_over,
    run_solidity,
)

REFUSED = {
    "abstract",
    "global_attached",
    "imports_the_harness",
    "library",
    "modifier_bomb",
    "only_fallback",
    "other_type",
    "struct_bomb",
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    found = Machine(cache=tmp_path_factory.mktemp("cache"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def honest(machine: Machine) -> Executed:
    return run_solidity(machine, HONEST)


def test_there_are_enough_and_all_differ() -> None:
    """At least 25 attacks, each with a name, a line and a source of its own."""
    assert len({attack.name for attack in SOLIDITY_ATTACKS}) == len(SOLIDITY_ATTACKS) >= 25
    assert len({attack.source for attack in SOLIDITY_ATTACKS}) == len(SOLIDITY_ATTACKS)


@pytest.mark.parametrize("attack", IDLE_ATTACKS, ids=lambda one: one.name)
def test_who_does_no_work_passes_no_test(machine: Machine, honest: Executed, attack: HarnessAttack) -> None:
    """No test passes without the work and no metric has a number, whatever names and types a submission brings."""
    found = run_solidity(machine, attack.source)
    assert found.features["tests_passed"] == 0.0
    assert found.features.get("metric_gas") is None
    assert found.is_measured
    assert (attack.name in REFUSED) == (found.outcome in {"does_not_compile", "does_not_fit", "forbidden_import"}), (
        found
    )
    assert list(gains_over(honest, found)) == []


@pytest.mark.parametrize("attack", WORKING_ATTACKS, ids=lambda one: one.name)
def test_a_trick_gives_no_better_number(machine: Machine, honest: Executed, attack: HarnessAttack) -> None:
    """Who passes the tests and tricks the scales has no number there, or one that is no better than the honest one."""
    found = run_solidity(machine, attack.source)
    assert found.features["tests_passed"] == 1.0
    assert list(gains_over(honest, found)) == []
