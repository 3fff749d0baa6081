"""Every attack on a Python or JavaScript harness, through the real sandboxes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clara_eval.harness import Executed, Language, Machine, MissingEngine
from clara_eval.redteam.script_harness import HARNESSES, gain_of, run_script

pytestmark = pytest.mark.xdist_group("python-engine")
ATTACKS = {(language, attack.name): attack for language, (_, _, found) in HARNESSES.items() for attack in found}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    found = Machine()
    for language in HARNESSES:
        try:
            found.require(language)
        except MissingEngine as missing:
            pytest.skip(str(missing))
    yield found
    found.close()


@pytest.fixture(scope="module")
def honest(machine: Machine) -> dict[Language, Executed]:
    return {language: run_script(machine, language, source) for language, (_, source, _) in HARNESSES.items()}


@pytest.mark.timeout(900)
def test_the_honest_solution_passes_everything(honest: dict[Language, Executed]) -> None:
    """Beside the attacks the harness itself is right: the honest solution passes every test and has its number."""
    for language, found in honest.items():
        assert found.outcome == "passed", (language, found.detail, found.logs)
        assert found.features["metric_work"]


def test_there_are_enough_different_attacks() -> None:
    """Each language is attacked in at least 25 ways, each with a name, a line for people and a program of its own."""
    for _, _, attacks in HARNESSES.values():
        assert len({attack.source for attack in attacks}) == len({attack.what for attack in attacks}) == len(attacks)
        assert len({attack.name for attack in attacks}) == len(attacks) >= 25


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("language", "name"), ATTACKS)
def test_an_attack_gains_nothing(
    machine: Machine, honest: dict[Language, Executed], language: Language, name: str
) -> None:
    """No test is passed and no number is had that was not earned, and nothing is cheaper than honest work."""
    attack = ATTACKS[language, name]
    gain = gain_of(attack, run_script(machine, language, attack.source), honest[language])
    assert gain == ([], [])
