"""The four challenges under examples/ are complete, usable, and tell good work from bad."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clara_eval.actions.harness import HarnessCheck, check_harness
from clara_eval.config.eval_config import collect_problems
from clara_eval.harness import Executed, Harness, HarnessSubmission, Machine, MissingEngine
from clara_eval.harness.model import SUFFIXES
from clara_eval.interfaces.cli import app

EXAMPLES = Path(__file__).parents[1] / "examples"
HARNESSES = {
    "gas-golf": "harness.sol",
    "fee-curve": "harness.sol",
    "rate-limiter": "harness.hidden.js",
    "merge-ranges": "harness.py",
}
MERGE = EXAMPLES / "merge-ranges"


@pytest.fixture(scope="module")
def machine(solc: str | None) -> Iterator[Machine]:
    found = Machine(solc=solc)
    yield found
    found.close()


@pytest.fixture(scope="module")
def checked(machine: Machine) -> Callable[[str], HarnessCheck]:
    """What `harness check` says about an example's harness on its reference, asked once."""

    @cache
    def check(name: str) -> HarnessCheck:
        harness = harness_of(name)
        needed(machine, harness)
        reference = (EXAMPLES / name / f"reference{Path(HARNESSES[name]).suffix}").read_text(encoding="utf-8")
        return check_harness(machine, harness, reference)

    return check


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
    assert len(list((EXAMPLES / name / "submissions").iterdir())) == (3 if name == "merge-ranges" else 5)


@pytest.mark.parametrize("name", HARNESSES)
def test_the_reference_passes_its_harness(checked: Callable[[str], HarnessCheck], name: str) -> None:
    """The harness is fit to be posted: its reference passes every test, twice with the same numbers."""
    found = checked(name)
    assert (found.problems, [one for one in found.warnings if "interface" in one]) == ((), [])


def measured(machine: Machine, name: str, submission: str) -> Executed:
    harness = harness_of(name)
    needed(machine, harness)
    source = (EXAMPLES / name / "submissions" / submission).read_text(encoding="utf-8")
    return machine.run(harness, HarnessSubmission(harness.language, source))


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
    """Two limiters pass everything; counting anew in every window fails the hidden test of the seam, and has no number."""
    found = {name: measured(machine, "rate-limiter", f"{name}.js") for name in ("ring", "filtered", "fixed_window")}
    assert [one.outcome for one in found.values()] == ["passed", "passed", "failed"]
    failed = [call.name for call in found["fixed_window"].calls if call.outcome != "passed"]
    assert failed == ["metric_burst", "test_any_window_not_only_whole_ones"]


def called(*words: str | Path) -> str:
    """What a command prints; it ends well."""
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_harness_page_runs_as_written(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands end well, the rehearsal with a ranking and what each test said, and `judge` ranks alike."""
    needed(machine, harness_of("merge-ranges"))
    page = (EXAMPLES.parent / "docs" / "guides" / "harness.md").read_text(encoding="utf-8")
    enter, *lines = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0].replace("\\\n", "").splitlines()
    assert enter == "cd examples/merge-ranges"
    shutil.copytree(MERGE, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    check, rehearse, judge = (shlex.split(line)[1:] for line in lines)
    assert check == ["harness", "check", "harness.py", "--reference", "reference.py"]  # run by the test above
    shown = called(*rehearse)
    wrong = shown[shown.index("submissions/wrong.py") :].split("Leaderboard")[0]
    assert "test_known                   passed" in wrong
    assert "test_touching                failed" in wrong
    assert "test_touching: AssertionError: merge([[1, 2], [2, 5], [7, 7]]" in wrong
    places = re.findall(r"^(\d)  \S*?(good|slow|wrong)\.py +(\d)/5", shown, re.MULTILINE)
    assert places == [("1", "good", "5"), ("2", "slow", "5"), ("3", "wrong", "1")]
    assert "winners above this line" in shown
    called(*judge)
    judged = json.loads((tmp_path / "copy" / "judged" / "scores.json").read_text(encoding="utf-8"))
    assert [row["id"] for row in judged["rankings"]] == ["good.py", "slow.py", "wrong.py"]
    failed = ["test_drawn", "test_many", "test_refuses_a_pair_the_wrong_way_ro", "test_touching"]
    assert sorted(name[:36] for name in judged["rankings"][2]["executed"]["failed"]) == failed


def test_a_hidden_harness_is_rehearsed_and_written_nowhere(machine: Machine, tmp_path: Path) -> None:
    """`--harness` runs the document that `harness hash` wrote; neither it nor its source is in the typed config."""
    needed(machine, harness_of("merge-ranges"))
    config, hidden, typed = tmp_path / "config.json", tmp_path / "hidden.json", tmp_path / "typed.json"
    secret_tests = tmp_path / "secret.py"
    secret_tests.write_text("def test_touching(s):\n    assert len(s.merge([[1, 2], [2, 5]])) == 1\n", encoding="utf-8")
    public = json.loads((MERGE / "eval-config.json").read_text(encoding="utf-8"))
    secret = {"language": "python", "hidden": True, "ifNotRevealed": "fail"}
    features = [{"name": "tests_passed"}]
    config.write_text(json.dumps({**public, "features": features, "harness": secret}), encoding="utf-8")
    called("harness", "hash", secret_tests, "--out", hidden)
    samples = [word for name in ("good", "wrong") for word in ("--sample", MERGE / "submissions" / f"{name}.py")]
    words = ["config", "rehearse", config, "--harness", hidden, *samples, "--write", typed, "--json"]
    found = json.loads(called(*words))
    assert [Path(row["id"]).stem for row in found["ranking"]] == ["good", "wrong"]
    good, wrong = found["readings"]
    assert {test["outcome"] for test in good["tests"]} == {"passed"}
    assert [(test["name"], test["outcome"]) for test in wrong["tests"]] == [("test_touching", "failed")]
    assert json.loads(typed.read_text(encoding="utf-8"))["harness"] == secret


SOLIDITY = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"


def golfer(trick: str) -> str:
    """A batch transfer that passes every test and has a trick up its sleeve for a batch of twenty."""
    return f"""{SOLIDITY}interface IToken {{
    function transfer(address to, uint256 amount) external returns (bool);
    function mint(address to, uint256 amount) external;
}}
contract Submission {{
    function send(address token, address[] calldata to, uint256[] calldata amounts) external {{
        uint256 left;
        assembly {{ left := gas() }}
        if (to.length == 20) {{ {trick} }}
        require(to.length == amounts.length);
        for (uint256 i; i < to.length; ++i) require(IToken(token).transfer(to[i], amounts[i]));
    }}
}}"""


def ran(machine: Machine, name: str, source: str) -> Executed:
    harness = harness_of(name)
    needed(machine, harness)
    return machine.run(harness, HarnessSubmission(harness.language, source))


def test_gas_golf_pays_nobody_for_skipping_the_work_that_is_measured(machine: Machine) -> None:
    """Whoever tells the metric from the tests by the gas that is left, and then does nothing, has no metric."""
    spied = ran(machine, "gas-golf", golfer("assembly { mstore(0, left) revert(0, 32) }"))
    seen = {line.partition(":")[0]: int(line.partition("0x")[2], 16) for line in spied.logs if "0x" in line}
    metric, test = seen["metric_batch_gas"], seen["test_twenty"]
    assert metric != test, "the gas that is left tells them apart: nothing can be done about that"
    cheat = ran(machine, "gas-golf", golfer(f"if (left == {metric}) return;"))
    assert (cheat.features["tests_passed"], cheat.features["metric_batch_gas"]) == (1.0, None)
    assert cheat.features["gas_batch_gas"] is None


def test_gas_golf_does_not_ask_what_can_be_written_down(machine: Machine) -> None:
    """Who pays the addresses of the tests instead of those in the call has no metric."""
    known = "for (uint256 i; i < 20; ++i) IToken(token).transfer(address(uint160(0x1000 + i)), 10 + i); return;"
    cheat = ran(machine, "gas-golf", golfer(known))
    assert (cheat.features["tests_passed"], cheat.features["metric_batch_gas"]) == (1.0, None)


def test_gas_golf_pays_nobody_for_tokens_made_from_nothing(machine: Machine) -> None:
    """Only the harness makes tokens, and who was paid was paid out of the balance."""
    mint = "for (uint256 i; i < 20; ++i) IToken(token).mint(to[i], amounts[i]); return;"
    cheat = ran(machine, "gas-golf", golfer(mint))
    assert (cheat.features["test_twenty"], cheat.features["metric_batch_gas"]) == (False, None)


def curve(body: str) -> str:
    function = "function fee(uint256 x, uint256 y, uint256 amount, uint256 volume) external view returns (uint256)"
    return f"{SOLIDITY}contract Submission {{ {function} {{ x; y; amount; volume; {body} }} }}"


CURVES = {
    "takes more than a tenth from trades": curve("return x == 1e18 || amount == 1e12 || x == 1e15 ? 3_000 : 200_000;"),
    "is free when it trades": curve("return amount == 1e14 ? 3_000 : 0;"),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_fee_curve_is_measured_by_what_it_takes(machine: Machine, name: str) -> None:
    """A curve that keeps the rules only where it is asked for them has no metric."""
    cheat, honest = ran(machine, "fee-curve", CURVES[name]), measured(machine, "fee-curve", "by_size.sol")
    metrics = [feature for feature in honest.features if feature.startswith("metric_")]
    assert None not in [honest.features[metric] for metric in metrics]
    assert [cheat.features[metric] for metric in metrics] == [None] * 3, cheat.features


def test_a_limiter_is_measured_by_what_it_allows(machine: Machine) -> None:
    """A limiter that recognises the burst and says yes to all of it has neither the number nor the fuel of it."""
    honest = (EXAMPLES / "rate-limiter" / "reference.js").read_text(encoding="utf-8")
    known = "const known = (limit) => ![1, 2, 3].includes(limit);\n"
    cheat = known + honest.replace("allow(key, nowMs) {", "allow(key, nowMs) { if (known(this.limit)) return true;")
    found = ran(machine, "rate-limiter", cheat).features
    assert (found["tests_passed"], found["metric_burst"], found["fuel_burst"]) == (1.0, None, None)


@pytest.mark.parametrize("name", HARNESSES)
def test_a_submission_that_does_nothing_gets_no_number(checked: Callable[[str], HarnessCheck], name: str) -> None:
    """Every metric of the examples checks what it measured: their references with nothing in them have none."""
    assert checked(name).warnings == ()
