"""The independent verifier (Node, written from docs/trace-format.md alone) agrees with `clara-eval verify`."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect
from tests.support.api_service import running_service
from tests.support.attested_rounds import FORGERIES as FORGED_ANSWERS
from tests.support.attested_rounds import signed_round
from tests.support.browser import chromium, launched
from tests.support.engines import RememberingMachine
from tests.support.executed_rounds import public_round
from tests.support.forged_trace import Change, Entries, forged
from tests.support.large_round import large_lines
from tests.support.shell import Shell
from tests.support.signing_endpoint import SigningEndpoint
from tests.support.verifiers import node_refusals

from clara_eval.actions.verify import verified_document
from clara_eval.challenges.replay import check_trace
from clara_eval.core.errors import BadTrace
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.evaluation.trace import Approval, Notes, render
from clara_eval.harness import Machine
from clara_eval.interfaces.cli.verify import print_verified
from clara_eval.ranking.elo import K

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "verifier" / "verify.mjs"


def by_node(path: Path, *options: str) -> tuple[int, str]:
    """Exit code and words of the independent program."""
    ran = subprocess.run(["node", PROGRAM, path, *options], capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def of_kind(bodies: Entries, start: str, number: int = 0) -> Any:
    return bodies[[key for key in bodies if key.startswith(start)][number]]


def best(bodies: Entries) -> str:
    return str(bodies["ranking"]["standings"][0]["item"])


def setting(path: str, value: Callable[[Any], Any]) -> Change:
    """Change one value: `entry|field|field`, where the entry may be a beginning of its key."""
    key, *fields = path.split("|")

    def change(bodies: Entries) -> None:
        at: Any = bodies if key in bodies and not fields else (bodies[key] if key in bodies else of_kind(bodies, key))
        names: list[Any] = [int(name) if name.isdigit() else name for name in fields] or [key]
        for name in names[:-1]:
            at = at[name]
        at[names[-1]] = value(at[names[-1]])

    return change


def turned(winner: str) -> str:
    return {"first": "second", "second": "first", "tie": "first"}[winner]


def _swap_two_places(bodies: Entries) -> None:
    rows = bodies["ranking"]["standings"]
    rows[2], rows[3] = {**rows[3], "rank": 3}, {**rows[2], "rank": 4}


def _name_a_loser_winner(bodies: Entries) -> None:
    bodies["winners"][0]["account"] = bodies["ranking"]["standings"][-1]["item"]


def _drop_the_last_comparison(bodies: Entries) -> None:
    games = bodies["schedule"]["games"] - 1
    del bodies[f"comparison/{games:07}"]
    bodies["schedule"]["games"] = games


def _ask_a_comparison_twice(bodies: Entries) -> None:
    bodies["comparison/0000001"] = bodies["comparison/0000000"]


def _replace_the_best_content(bodies: Entries) -> None:
    bodies[f"solution/{best(bodies)}"]["received"]["content"] = base64.b64encode(
        b"def nothing():\n    return 1\n"
    ).decode()


def _reject_the_best(bodies: Entries) -> None:
    bodies[f"solution/{best(bodies)}"].update({"accepted": False, "code": "binary", "reason": "It is not text."})


def _forgive_a_wrong_hash(bodies: Entries) -> None:
    row = next(row for row in bodies["rejected"] if row["code"] == "wrong_hash")
    bodies["rejected"].remove(row)


def _forget_a_submission(bodies: Entries) -> None:
    bodies["challenge"]["submissions"].pop()


def _count_a_tie_as_a_win(bodies: Entries) -> None:
    row = bodies["ranking"]["standings"][4]
    row["wins"], row["losses"] = row["wins"] + 1, row["losses"] - 1


def _hide_a_rejected_one_among_the_ranked(bodies: Entries) -> None:
    bodies["placed"][-1], bodies["placed"][0] = bodies["placed"][0], bodies["placed"][-1]


def _repay_the_pool(bodies: Entries) -> None:
    first, second = bodies["winners"][0], bodies["winners"][1]
    moved = int(first["prizeAmount"]) // 2
    first["prizeAmount"], second["prizeAmount"] = (
        str(int(first["prizeAmount"]) - moved),
        str(int(second["prizeAmount"]) + moved),
    )


def _another_agent_for_the_best(bodies: Entries) -> None:
    row = next(row for row in bodies["challenge"]["submissions"] if row["submitter"] == best(bodies))
    row["agentId"] = str(int(row["agentId"]) + 7)


def _turn_a_test(bodies: Entries) -> None:
    run = of_kind(bodies, "executed/")
    call = next(call for call in run["calls"] if call["kind"] == "test")
    call["outcome"] = "failed" if call["outcome"] == "passed" else "passed"


def raised(value: Any) -> Any:
    return value + 1


def _rule_out_the_best(bodies: Entries) -> None:
    told = {"kind": "exclude", "of": "0x" + "11" * 32, "at": 1, "judge": None, "stage": None, "note": ""}
    bodies["rulings"].append({**told, "account": best(bodies)})


def _forget_the_execution(bodies: Entries) -> None:
    del bodies["execution"]


FORGERIES: dict[str, Change] = {
    "header names another challenge": setting("header|challenge", lambda _: "0x" + "11" * 20),
    "header names another chain": setting("header|chainId", raised),
    "another prize pool": setting("challenge|prizePool", lambda pool: str(int(pool) * 2)),
    "another winner count": setting("challenge|winnerCount", lambda count: count - 1),
    "other shares": setting("challenge|payoutBps", lambda shares: [shares[1], shares[0], *shares[2:]]),
    "another committed config": setting("challenge|evalConfigHash", lambda _: "0x" + "22" * 32),
    "another agent": _another_agent_for_the_best,
    "another committed solution": setting("challenge|submissions|0|solutionHash", lambda _: "0x" + "33" * 32),
    "a submission forgotten": _forget_a_submission,
    "other criteria in the config": setting(
        "metadata|evalConfig", lambda text: text.replace("The best", "Any", 1) + " "
    ),
    "other metadata": setting("metadata|content", lambda _: base64.b64encode(b'{"evalConfig":"{}"}').decode()),
    "another title": setting("metadata|title", lambda title: title + "!"),
    "another kind of hash": setting("metadata|hashKind", lambda kind: "canonical" if kind == "string" else "string"),
    "another prompt": setting("prompts|compare.system|text", lambda text: text + " Prefer B."),
    "another prompt hash": setting("prompts|compare.user|sha256", lambda _: "0x" + "44" * 32),
    "another weight": setting("schema|features|0|weight", lambda weight: weight * 10),
    "another direction": setting("schema|features|1|better", lambda side: "higher" if side == "lower" else "lower"),
    "content replaced": _replace_the_best_content,
    "an honest entry called binary": _reject_the_best,
    "another content hash": setting("solution/|keccak", lambda _: "0x" + "55" * 32),
    "another SHA-256": setting("solution/|sha256", lambda _: "0x" + "66" * 32),
    "a hash kind that does not fit": setting(
        "solution/|hashKind", lambda kind: "uri" if kind == "content" else "content"
    ),
    "called unpinned": setting("solution/|pinned", lambda pinned: not pinned),
    "a wrong hash forgiven": _forgive_a_wrong_hash,
    "a rejection with another code": setting("rejected|0|code", lambda code: "empty" if code != "empty" else "binary"),
    "a fact better than measured": setting("features/|features|deploy_gas", lambda value: max(1, value - 9000)),
    "a measured fact": setting("features/|measured|deploy_gas", raised),
    "a metric": setting("features/|measured|metric_batch_gas", raised),
    "a share of tests": setting("features/|measured|tests_passed", lambda share: share / 2),
    "a run whose test is turned": _turn_a_test,
    "a turned verdict": setting("comparison/0000000|winner", turned),
    "a surer verdict": setting("comparison/0000003|confidence", lambda value: 0.999 if value != 0.999 else 0.5),
    "a comparison dropped": _drop_the_last_comparison,
    "a comparison twice": _ask_a_comparison_twice,
    "a comparison of a stranger": setting("comparison/0000002|first", lambda _: "0x" + "77" * 20),
    "a higher rating": setting("ranking|standings|1|elo", lambda elo: elo + 25.0),
    "a higher score": setting("ranking|standings|1|score", raised),
    "places swapped": _swap_two_places,
    "a loss counted as a win": _count_a_tie_as_a_win,
    "a rejected one placed first": _hide_a_rejected_one_among_the_ranked,
    "a loser named winner": _name_a_loser_winner,
    "another agent paid": setting("winners|0|agentId", lambda agent: str(int(agent) + 1)),
    "prizes moved": _repay_the_pool,
    "another score posted": setting("winners|1|score", raised),
    "a ruling that nothing follows": _rule_out_the_best,
    "a reveal": setting("execution|reveal", lambda _: base64.b64encode(b"{}").decode()),
    "a hidden harness": setting("execution|hidden", lambda hidden: not hidden),
    "no harness": setting("execution|harness", lambda _: "none"),
    "a harness in another language": setting("execution|language", lambda _: "python"),
    "a run without the harness": setting("executed/|withHarness", lambda _: False),
    "no execution": _forget_the_execution,
    "more answers": setting("answers|count", raised),
    "other calldata": setting("calldata", lambda data: data[:-2] + ("00" if data[-2:] != "00" else "01")),
}


@pytest.fixture(scope="module")
def demo_trace(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The trace of a fresh demo."""
    place = tmp_path_factory.mktemp("demo")
    done = subprocess.run([shell.program, "demo", "--json"], cwd=place, capture_output=True, timeout=170, check=True)
    assert json.loads(done.stdout)["verified"]
    return next((place / "var" / "traces").glob("*.trace.json")).read_text(encoding="utf-8").splitlines(keepends=True)


@pytest.fixture(scope="module")
def machine(solc: str | None) -> Iterator[Machine]:
    """One machine for all checks, which runs everything once."""
    found = RememberingMachine(solc)
    yield found
    found.close()


@pytest.fixture(scope="module")
def said_by_node(demo_trace: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the independent program says of each forgery; one process reads them all."""
    traces = {lie: forged(demo_trace, change) for lie, change in FORGERIES.items()}
    return node_refusals(traces, tmp_path_factory.mktemp("forged"))


def test_both_verifiers_have_the_same_k() -> None:
    """The K of Elo is one number in the package, and the same in the second verifier."""
    assert f" K = {K:g};" in PROGRAM.read_text(encoding="utf-8")


def test_the_program_is_small_and_alone() -> None:
    """A stranger can read it in one sitting, and it needs nothing but Node and a Keccak package."""
    text = PROGRAM.read_text(encoding="utf-8")
    imports = {line.split('"')[1] for line in text.splitlines() if line.startswith("import ")}
    assert text.count("\n") <= 2_000
    assert sum(len(line) > 120 for line in text.splitlines()) <= 25, "only tables and sentences are longer"
    assert imports == {"node:crypto", "node:fs", "js-sha3", "./archive.mjs", "./model.mjs"}
    for part in ("archive.mjs", "model.mjs"):
        assert PROGRAM.with_name(part).read_text(encoding="utf-8").count("\n") <= 150


@pytest.mark.xdist_group("verifier")
def test_an_honest_trace_holds(demo_trace: list[str], tmp_path: Path) -> None:
    """The demo's own trace is accepted, and what is not checked is said."""
    path = tmp_path / "honest.json"
    path.write_text("".join(demo_trace), encoding="utf-8")
    code, words = by_node(path)
    assert (code, words.startswith("holds"), "not checked here" in words) == (0, True, True)
    assert "running the submissions" in words


@pytest.mark.xdist_group("verifier")
@pytest.mark.parametrize("lie", FORGERIES)
async def test_a_forgery_is_named_by_both(
    lie: str, demo_trace: list[str], machine: Machine, said_by_node: dict[str, str]
) -> None:
    """A changed entry whose hashes were made right again is refused by our verifier and by the independent one."""
    with pytest.raises(BadTrace):
        await check_trace(forged(demo_trace, FORGERIES[lie]), machine=machine)
    assert said_by_node[lie].startswith("wrong"), said_by_node[lie]


def _swap_two_items(bodies: Entries) -> None:
    items = bodies["verdicts"]["items"]
    items[3], items[4] = items[4], items[3]


def _list_one_comparison(bodies: Entries) -> None:
    first, second = bodies["verdicts"]["items"][:2]
    told = {"judge": "rules", "winner": "first", "confidence": 0.9, "reason": "", "requests": [], "group": []}
    bodies["comparison/0000000"] = {"first": first, "second": second, **told}


def _drop_the_verdicts(bodies: Entries) -> None:
    del bodies["verdicts"]


LARGE_FORGERIES: dict[str, Change] = {
    "another hash": setting("verdicts|sha256", lambda _: "0x" + "88" * 32),
    "fewer comparisons": setting("verdicts|count", lambda count: count - 1),
    "two entries exchanged": _swap_two_items,
    "a comparison beside them": _list_one_comparison,
    "no verdicts at all": _drop_the_verdicts,
    "a fact better than measured": setting("features/|features|max_complexity", lambda value: max(1, value - 1)),
    "a higher rating": setting("ranking|standings|1|elo", lambda elo: elo + 25.0),
}


@pytest.mark.xdist_group("verifier")
async def test_a_large_round_by_rules_is_checked_by_both(tmp_path: Path) -> None:
    """More than a hundred entries: verdicts behind one hash hold in both programs, and each forgery is named by both."""
    lines = large_lines(101)
    path = tmp_path / "large.json"
    path.write_text("".join(lines), encoding="utf-8")
    code, words = by_node(path)
    assert (code, "10100 comparisons" in words) == (0, True), words
    assert len((await check_trace(lines)).result.comparisons) == 10100
    changed = {lie: forged(lines, change) for lie, change in LARGE_FORGERIES.items()}
    for lie, words in node_refusals(changed, tmp_path).items():
        assert words.startswith("wrong"), (lie, words)
        with pytest.raises(BadTrace):
            await check_trace(changed[lie])


@pytest.mark.xdist_group("verifier")
@pytest.mark.parametrize("damage", ["a byte", "the end", "the order", "no file"])
def test_a_damaged_file_is_refused(damage: str, demo_trace: list[str], tmp_path: Path) -> None:
    """Without making hashes right again nothing at all can be changed."""
    path = tmp_path / "damaged.json"
    text = "".join(demo_trace)
    if damage != "no file":
        changed = {
            "a byte": text.replace('"confidence":0.', '"confidence":1.', 1),
            "the end": text[:-40],
            "the order": "".join([*demo_trace[:2], demo_trace[3], demo_trace[2], *demo_trace[4:]]),
        }
        path.write_text(changed[damage], encoding="utf-8")
    code, words = by_node(path)
    assert code == 1, words


@pytest.mark.xdist_group("verifier")
async def test_both_know_approvals(demo_trace: list[str], machine: Machine, tmp_path: Path) -> None:
    """An approval of this very result is accepted by both; of another one, or with other words, by neither."""
    digest = json.loads("".join(demo_trace))["digest"]
    path = tmp_path / "approved.json"

    def approved(*approvals: Approval) -> list[str]:
        last = list(render([], digest, Notes([*approvals])))[-1]
        path.write_text("".join([*demo_trace[:-1], last]), encoding="utf-8")
        return path.read_text(encoding="utf-8").splitlines(keepends=True)

    word = Approval(digest, 1_700_000_000, "Ada", 'looked at "it" \u202e 漢')
    lines = approved(word, replace(word, at=1_700_000_001))
    assert (await check_trace(lines, machine=machine)).notes.approvals[0] == word
    code, said = by_node(path)
    assert code == 0, said
    path.write_text("".join(lines).replace("looked at", "looked on"), encoding="utf-8")
    assert by_node(path)[0] == 1
    foreign = approved(word, replace(word, of="0x" + "22" * 32))
    with pytest.raises(BadTrace, match="An approval names the result 0x22"):
        await check_trace(foreign)
    assert by_node(path)[0] == 1


def _another_agent_for_the_last(bodies: Entries) -> None:
    last = bodies["ranking"]["standings"][-1]["item"]
    next(row for row in bodies["challenge"]["submissions"] if row["submitter"] == last)["agentId"] = "999"


def _rule_about_nothing(bodies: Entries) -> None:
    told = {"kind": "original", "of": "0x" + "11" * 32, "at": 1, "judge": None, "stage": None, "note": "", "by": ""}
    bodies["rulings"].append({**told, "account": best(bodies)})


def _another_compiler(bodies: Entries) -> None:
    bodies["execution"]["machine"]["compiler"] = "another"


UNPROVABLE: dict[str, tuple[Change, str, str]] = {
    "the agent of somebody unpaid": (
        _another_agent_for_the_last,
        "that the chain holds this challenge",
        "that the chain holds",
    ),
    "a ruling without effect": (_rule_about_nothing, "a person made the recorded rulings", "a person made the"),
    "the machine": (_another_compiler, "", "running the submissions"),
    "the software": (setting("header|software", lambda _: "another program"), "", "not checked here"),
}
"""Changed without a trace in the rest: what our verifier says about it, and what the other one says."""


@pytest.mark.xdist_group("verifier")
@pytest.mark.parametrize("lie", UNPROVABLE)
async def test_what_neither_can_prove_is_accepted_by_both(
    lie: str, demo_trace: list[str], machine: Machine, tmp_path: Path
) -> None:
    """What nothing else in a trace follows from is accepted by both, and both say that it is not proven."""
    change, ours, theirs = UNPROVABLE[lie]
    lines = forged(demo_trace, change)
    path = tmp_path / "other.json"
    path.write_text("".join(lines), encoding="utf-8")
    checked = await check_trace(lines, machine=machine)
    assert ours in " ".join(checked.not_proven)
    assert bool(checked.unchecked) is (lie == "the machine")
    code, words = by_node(path)
    assert (code, theirs in words) == (0, True), words


@pytest.mark.xdist_group("verifier")
async def test_a_trace_of_another_compiler_says_first_that_nothing_was_run(
    demo_trace: list[str], machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace that names another compiler holds, and every report begins with that execution was not checked."""
    lines = forged(demo_trace, _another_compiler)
    checked = await check_trace(lines, machine=machine)
    runs = sum('"key":"executed/' in line for line in lines)
    warning = f"execution was not checked: {runs} of {runs} runs are taken as recorded"
    assert (checked.is_execution_checked, checked.execution_warning) == (False, warning)
    print_verified(checked)
    assert capsys.readouterr().out.splitlines()[0].startswith(f"ok, but {warning}")
    assert verified_document(checked)["executionChecked"] is False
    code, words = node_on(tmp_path / "other.json", lines)
    assert (code, "execution was not checked" in words.splitlines()[0]) == (0, True)
    honest = await check_trace(demo_trace, machine=machine)
    assert (honest.is_execution_checked, honest.execution_warning) == (True, "")
    assert (await check_trace(large_lines(4))).is_execution_checked is None


def node_on(path: Path, lines: list[str]) -> tuple[int, str]:
    path.write_text("".join(lines), encoding="utf-8")
    return by_node(path)


async def _held_by_both(name: str, lines: list[str], path: Path) -> None:
    """The round as it is holds in the other program; with a verdict turned around in neither."""
    code, words = node_on(path, lines)
    assert (code, words.startswith("holds")) == (0, True), (name, words)
    another_winner = forged(lines, setting("comparison/0000000|winner", turned))
    code, words = node_on(path, another_winner)
    assert (code, words.startswith("wrong")) == (1, True), (name, words)
    with pytest.raises(BadTrace):
        await check_trace(another_winner)


@pytest.mark.xdist_group("verifier")
async def test_rounds_of_models_and_executed_ones_hold_in_both(local_chain: LocalChain, tmp_path: Path) -> None:
    """Answers of a model that nobody signed, and submissions that were run."""
    async with SigningEndpoint().running() as endpoint:
        _, unsigned = await signed_round(local_chain, tmp_path / "model", endpoint, "")
    await _held_by_both("model", unsigned, tmp_path / "trace.json")
    _, executed = await public_round(local_chain, tmp_path / "executed")
    await _held_by_both("executed", executed, tmp_path / "trace.json")


@pytest.mark.xdist_group("verifier")
@pytest.mark.parametrize("how", ["near", "aci"])
async def test_signed_rounds_hold_in_both_and_forged_answers_are_named(
    how: str, local_chain: LocalChain, tmp_path: Path
) -> None:
    """Answers that an enclave signed; what our own verifier names (pipeline/test_attestation.py) the other names, too."""
    async with SigningEndpoint().running() as endpoint:
        _, lines = await signed_round(local_chain, tmp_path / how, endpoint, how)
    path = tmp_path / "trace.json"
    await _held_by_both(how, lines, path)
    changed = {lie: forged(lines, change) for lie, change in FORGED_ANSWERS.items()}
    code, words = node_on(path, changed.pop("quote"))
    assert (code, "quotes of enclaves" in words) == (0, True), words
    for lie, words in node_refusals(changed, tmp_path).items():
        assert words.startswith("wrong"), (lie, words)


@pytest.mark.xdist_group("verifier")
async def test_the_browser_names_the_same_forgeries(demo_trace: list[str], tmp_path: Path) -> None:
    """`/verify` runs the same program: of every trace, honest, forged, damaged or unprovable, it says what Node says."""
    chrome = chromium()
    if chrome is None:
        pytest.skip("There is no Chromium here: as root, apt-get install chromium")
    changes = FORGERIES | {lie: change for lie, (change, _, _) in UNPROVABLE.items()}
    traces = {"honest": demo_trace, **{lie: forged(demo_trace, change) for lie, change in changes.items()}}
    traces["large"] = large_lines(101)
    texts = {lie: "".join(lines) for lie, lines in traces.items()}
    texts |= {"cut": texts["honest"][:-40], "a byte": texts["honest"].replace('"confidence":0.', '"confidence":1.', 1)}
    paths = [tmp_path / f"{number}.json" for number in range(len(texts))]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    _, words = by_node(paths[0], *map(str, paths[1:]))
    said = re.findall(r"^(?:(?:holds|wrong) +(.*)|.*?(\d+\.json))$", words, re.MULTILINE)
    async with running_service(tmp_path) as service, launched(chrome) as browser:
        page = await browser.new_page()
        page.set_default_timeout(120_000)
        await page.goto(f"{service.url}/verify")
        await page.set_input_files("#file", paths)
        await page.get_by_role("button", name="Check").click()
        await expect(page.locator("#verify-result .verdict-line")).to_have_text(
            "Not all of these traces hold.", timeout=120_000
        )
        told = await page.locator("#verify-result .told li").all_text_contents()
        await page.set_input_files("#file", paths[0])
        await page.get_by_role("button", name="Check").click()
        await expect(page.locator("#verify-result .verdict-line")).to_have_text("All checks passed.")
        unknown = await page.locator("#verify-result .quiet li").all_text_contents()
    of, expected = "", []
    for reason, name in said:
        of = name or of
        expected += [f"{of}: {reason}"] if reason else []
    assert told == expected
    assert {line.partition(": ")[0] for line in told} == {path.name for path in paths}
    assert {"that a refused archive had to be", "that unsigned models said it"} <= set(unknown)
