"""Every attack on a harness, through the real sandboxes, the real compiler and the EVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.engines import RememberingMachine

from clara_eval.harness import Executed, Language, Machine, MissingEngine
from clara_eval.redteam.machine_attacks import HARNESSES, HarnessAttack, gain_of

ATTACKS = {(language, attack.name): attack for language, one in HARNESSES.items() for attack in one.attacks}
SOLIDITY = HARNESSES["solidity"].attacks
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
def machine(python_engine: None, solc: str | None) -> Iterator[Machine]:
    found = RememberingMachine(solc)
    for language in HARNESSES:
        try:
            found.require(language)
        except MissingEngine as missing:
            pytest.skip(str(missing))
    yield found
    found.close()


@pytest.fixture(scope="module")
def honest(machine: Machine) -> dict[Language, Executed]:
    return {language: one.run(machine, one.honest) for language, one in HARNESSES.items()}


@pytest.mark.timeout(900)
def test_the_honest_solution_passes_everything(honest: dict[Language, Executed]) -> None:
    """Beside the attacks the harness itself is right: the honest solution passes every test and has its number."""
    for language, found in honest.items():
        assert found.outcome == "passed", (language, found.detail, found.logs)
        assert found.features["metric_gas" if language == "solidity" else "metric_work"]


def test_there_are_enough_different_attacks() -> None:
    """Each language is attacked in at least 25 ways, each with a name, a line for people and a program of its own."""
    for one in HARNESSES.values():
        for part in ("name", "what", "source"):
            assert len({getattr(attack, part) for attack in one.attacks}) == len(one.attacks) >= 25
        assert {attack.works for attack in one.attacks} == {True, False}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("language", "name"), ATTACKS)
def test_an_attack_gains_nothing(
    machine: Machine, honest: dict[Language, Executed], language: Language, name: str
) -> None:
    """No test is passed and no number is had that was not earned, and nothing is cheaper than honest work."""
    attack = ATTACKS[language, name]
    found = HARNESSES[language].run(machine, attack.source)
    assert gain_of(attack, found, honest[language]) == ([], [])


@pytest.mark.parametrize("attack", SOLIDITY, ids=lambda one: one.name)
def test_a_solidity_attack_is_refused_or_fails_its_tests(machine: Machine, attack: HarnessAttack) -> None:
    """An idle contract is measured, passes no test and has no metric; one that works passes all of them."""
    found = HARNESSES["solidity"].run(machine, attack.source)
    assert found.features["tests_passed"] == float(attack.works)
    if not attack.works:
        assert found.features.get("metric_gas") is None
        assert found.is_measured
        refused = found.outcome in {"does_not_compile", "does_not_fit", "forbidden_import"}
        assert (attack.name in REFUSED) == refused, found
