"""The three challenges under examples/ are complete, usable, and tell good work from bad."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clara_eval.eval_config import collect_problems
from clara_eval.execution import Executed, Harness, Machine, MissingEngine, Submission
from clara_eval.execution.checking import check_harness
from clara_eval.execution.model import SUFFIXES

EXAMPLES = Path(__file__).parents[1] / "examples"
HARNESSES = {"gas-golf": "harness.sol", "fee-curve": "harness.sol", "rate-limiter": "harness.hidden.js"}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    found = Machine(cache=tmp_path_factory.mktemp("cache"))
    yield found
    found.close()


def harness_of(name: str, file: str = "") -> Harness:
    path = EXAMPLES / name / (file or HARNESSES[name])
    return Harness(SUFFIXES[path.suffix], path.read_text(encoding="utf-8"))


def needed(machine: Machine, harness: Harness) -> None:
    try:
        machine.require(harness.language)
    except MissingEngine as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", HARNESSES)
def test_the_config_is_usable_and_holds_the_harness_beside_it(name: str) -> None:
    """A poster can post the config as it is, and the harness in it is the file that people run."""
    text = (EXAMPLES / name / "eval-config.json").read_text(encoding="utf-8")
    assert collect_problems(text) == []
    public = harness_of(name, "harness.public.js" if name == "rate-limiter" else "")
    assert json.loads(text)["harness"]["source"] == public.source
    assert len(list((EXAMPLES / name / "submissions").iterdir())) == 5


@pytest.mark.parametrize("name", HARNESSES)
def test_the_reference_passes_its_harness(machine: Machine, name: str) -> None:
    """The harness is fit to be posted: its reference passes every test, twice with the same numbers."""
    harness = harness_of(name)
    needed(machine, harness)
    reference = (EXAMPLES / name / f"reference{Path(HARNESSES[name]).suffix}").read_text(encoding="utf-8")
    assert check_harness(machine, harness, reference).problems == ()


def measured(machine: Machine, name: str, submission: str) -> Executed:
    harness = harness_of(name)
    needed(machine, harness)
    source = (EXAMPLES / name / "submissions" / submission).read_text(encoding="utf-8")
    return machine.run(harness, Submission(harness.language, source))


def test_gas_golf_tells_cheap_from_dear_and_careless(machine: Machine) -> None:
    """Assembly beats the plain loop, and what looks at nothing is cheap and fails."""
    plain, golfed, careless = (measured(machine, "gas-golf", f"{n}.sol") for n in ("plain", "assembly", "careless"))
    assert plain.outcome == golfed.outcome == "passed"
    assert careless.outcome == "failed"
    dear, cheap = plain.features["metric_batch_gas"], golfed.features["metric_batch_gas"]
    assert dear is not None
    assert cheap is not None
    assert cheap < dear


def test_the_hidden_tests_of_the_rate_limiter_find_the_seam(machine: Machine) -> None:
    """Two limiters pass everything; counting anew in every window fails exactly the hidden test of the seam."""
    found = {name: measured(machine, "rate-limiter", f"{name}.js") for name in ("ring", "filtered", "fixed_window")}
    assert [one.outcome for one in found.values()] == ["passed", "passed", "failed"]
    failed = [call.name for call in found["fixed_window"].calls if call.outcome != "passed"]
    assert failed == ["test_any_window_not_only_whole_ones"]
