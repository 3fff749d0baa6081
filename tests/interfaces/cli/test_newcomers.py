"""What newcomers stumbled over with the command line, each as a case that must stay mended."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from tests.support.agents import RULES_CONFIG, agent_environment
from tests.support.api_service import POSTED, REVIEWED, running_service
from tests.support.large_round import large_challenge, large_lines, lines_of_round
from tests.support.rounds import closed_round
from tests.support.statuses import request_review
from typer.testing import CliRunner

from clara_eval.actions.amounts import show_moment
from clara_eval.actions.perform import Action, Plan, perform, transaction
from clara_eval.app import open_caller
from clara_eval.challenges.replay import check_trace
from clara_eval.config.eval_config import build_metadata, collect_problems, config_hash
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, BadTrace, ConfigError
from clara_eval.core.untrusted import fence
from clara_eval.devnet.local_chain import DAY, LocalChain, PostedTerms
from clara_eval.documents.actions import StandingRow
from clara_eval.documents.results import EvalStatus, Token
from clara_eval.documents.store_keys import status_key
from clara_eval.interfaces import words
from clara_eval.interfaces.cli import app
from clara_eval.interfaces.cli.leaderboard_table import LeaderboardTable, print_leaderboard
from clara_eval.interfaces.cli.output import NAMES
from clara_eval.interfaces.cli.screen import console
from clara_eval.interfaces.cli.verify import print_verified
from clara_eval.interfaces.python import rank
from clara_eval.store.sqlite import SqliteStore

ADDRESS = "0x" + "ab" * 20
USDC = Token(address="0x" + "22" * 20, symbol="USDC", decimals=6, isKnown=True)
DOUBT = (
    "By this judge, $0.00 (0 %) of the prize is expected at wrong addresses; 1 verdict decides who is paid "
    "(rules: no calibration needed)."
)


def call(*arguments: str, **environ: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env=environ)


def problems(features: list[object], **more: object) -> dict[str, str]:
    """Path and words of every problem of a config with these features."""
    document = {"version": 1, "criteria": "Fewer lines are better than many, all else equal.", "features": features}
    found = collect_problems(json.dumps({**document, **more}))
    return {one.path: f"{one.reason} {one.remedy}" for one in found}


def test_a_feature_after_a_bad_one_keeps_its_number() -> None:
    """The path of a problem is the place where the poster wrote it."""
    found = problems([{"name": "Bad Name"}, {"name": "lines"}], judge="rules")
    assert '"better"' in found["$.features[1]"]
    assert "$.features[0]" not in found


def test_a_feature_of_a_harness_says_that_there_is_none() -> None:
    """`tests_passed` without a harness is not a feature without a type."""
    assert problems([{"name": "tests_passed"}])["$.features[0]"].startswith("tests_passed needs a harness")


def test_a_misspelt_plain_name_gets_the_near_one() -> None:
    """A plain name that is almost one of the catalogue's is told, and one that is far from all is not."""
    assert 'Did you mean "max_complexity"?' in problems(["max_complexty"])["$.features[0]"]
    assert "$.features[0]" not in problems(["novelty_of_the_idea"])


def test_a_harness_without_functions_is_told_in_words() -> None:
    """Nothing is listed as known where nothing is."""
    harness = {"language": "python", "source": "x = 1\n"}
    told = problems(["metric_height"], harness=harness)["$.features[0]"]
    assert told == "The harness defines no metric_height. It defines no test_ or metric_ function at all."


def test_a_run_without_any_test_has_not_passed(tmp_path: Path) -> None:
    """A harness that measures nothing is an error of `harness run`, as it is of `harness check`."""
    (tmp_path / "harness.js").write_text("export const nothing = 1;")
    (tmp_path / "draft.js").write_text("export const double = (x) => 2 * x;")
    done = call("harness", "run", str(tmp_path / "draft.js"), "--harness", str(tmp_path / "harness.js"))
    assert isinstance(done.exception, BadInput)
    assert "measures nothing" in done.exception.message


def test_a_hidden_harness_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    """The document holds the secret and its salt."""
    (tmp_path / "harness.js").write_text("export const test_x = () => {};")
    assert call("harness", "hash", str(tmp_path / "harness.js"), "--out", str(tmp_path / "it.json")).exit_code == 0
    assert (tmp_path / "it.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("command", ["config features", "settings"])
def test_a_closed_pipe_is_not_a_refusal(command: str, tmp_path: Path) -> None:
    """`clara-eval … | true` ends with 0: 1 would mean that the answer is no."""
    line = f"{shlex.quote(sys.executable)} -m clara_eval {command} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLARA_DATABASE_URL", "sqlite:///cli.db")
    return "cli.db"


async def waiting(database: str) -> None:
    store = await SqliteStore.open(database)
    await request_review(store, 31337, ADDRESS, "0x" + "5d" * 32, ["The prize is large."], 5)
    status = EvalStatus(status="review", progress=90, reason="Nothing is posted unless you approve it.")
    await store.put(31337, status_key(ADDRESS), status.model_dump_json())
    await store.close()


def test_an_approval_shows_at_once_in_the_status(stored: str) -> None:
    """The digest is a required option, `review show` ends with the whole command, and the status stops to wait."""
    asyncio.run(waiting(stored))
    assert call("review", "approve", ADDRESS).exit_code == 2
    shown = call("review", "show", ADDRESS).stdout
    command = next(line for line in shown.splitlines() if line.startswith("Next")).split()[2:]
    assert command == ["review", "approve", ADDRESS, "--digest", "0x" + "5d" * 32]
    assert call(*command).exit_code == 0
    told = json.loads(call("status", ADDRESS, "--json").stdout)
    assert (told["status"], told["progress"]) == ("publishing", 91)
    assert "approved" in told["reason"]


def test_an_announced_result_is_not_called_posting() -> None:
    """While objections are taken, every interface says so and until when."""
    found = EvalStatus(status="publishing", progress=91, objectionsUntil=1_800_000_000)
    assert words.status_meaning(found) == "The result is announced. Objections are taken until 2027-01-15 08:00:00 UTC."


async def test_status_and_trace_ask_the_service_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With CLARA_API_URL and no store of their own they show what the service shows."""
    monkeypatch.chdir(tmp_path)
    async with running_service(tmp_path / "service") as service:
        environ = {"CLARA_API_URL": service.url, "CLARA_DATABASE_URL": "sqlite:///none.db"}
        status = await asyncio.to_thread(call, "status", POSTED, "--json", **environ)
        trace = await asyncio.to_thread(call, "trace", POSTED, "--out", "trace.json", **environ)
        hidden = await asyncio.to_thread(call, "trace", REVIEWED, **environ)
        _, _, content = await service.get(f"/api/v1/challenges/{POSTED}/eval-trace")
    assert json.loads(status.stdout)["status"] == "complete"
    assert (trace.exit_code, (tmp_path / "trace.json").read_bytes()) == (0, content)
    assert hidden.exit_code == 1
    assert not (tmp_path / "none.db").exists()


async def test_a_challenge_is_shown_with_its_features_and_as_closed(local_chain: LocalChain, tmp_path: Path) -> None:
    """No escaped JSON, and after the deadline the word is not `open`."""
    uri = build_metadata(title="Sort", problem_statement="Sort it.", skills=(), config_text=RULES_CONFIG)
    terms = PostedTerms(challenge_uri=uri, eval_config_hash=config_hash(RULES_CONFIG.encode()), payout_bps=(10000,))
    address = await local_chain.post_challenge(terms)
    environ = agent_environment(local_chain, None, tmp_path / "none.db")
    first = (await asyncio.to_thread(call, "challenge", "show", address, **environ)).stdout
    await local_chain.move_time(DAY + 1)
    later = (await asyncio.to_thread(call, "challenge", "show", address, **environ)).stdout
    assert "max_complexity               integer 1–20, lower is better, weight 1, measured" in first
    assert "{" not in first
    assert "for one winner: 100 %" in first
    assert "status     open; scored by" in first
    assert "status     closed, not scored yet; scored by" in later


async def test_unsigned_transactions_have_checksummed_addresses(local_chain: LocalChain, tmp_path: Path) -> None:
    """Common signers refuse an address in lower case."""
    to = to_checksum_address(local_chain.deployment.factory)

    async def plan(_caller: object, _agent: int | None) -> Plan:
        sent = (transaction(local_chain.deployment.factory, b"", "Nothing"),)
        return Plan(action="challenge_claim", sender=None, transactions=sent, question="", summary="")

    settings = Settings.from_env(agent_environment(local_chain, None, tmp_path / "none.db"))
    async with open_caller(settings) as caller:
        found = words.add_next_step(await perform(caller, Action("claim/x", plan), confirmed="unasked"), NAMES)
    assert [one.to for one in found.transactions] == [to]


async def test_the_address_in_a_forged_trace_is_an_address() -> None:
    """A consistent trace whose challenge is a terminal's control sequence is refused, and prints nothing of it raw."""
    challenge = large_challenge(4)
    wrong = tuple(replace(one, solution_hash="0x" + "1" * 64) for one in challenge.submissions)
    named = replace(challenge, submissions=wrong, address=Address("\x1b]0;title\x07\x1b[2J[green]"))
    with pytest.raises(BadTrace, match="is not an address") as refused:
        await check_trace(lines_of_round(named))
    assert "\x1b" not in str(refused.value)


async def test_verify_leads_with_who_won_what(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer first, then what was checked and only what this trace leaves open; the rest on demand."""
    checked = await check_trace(large_lines(4))
    print_verified(checked)
    lines = capsys.readouterr().out.splitlines()
    winners = [one.account for one in checked.winners.entries]
    assert lines[0] == f"ok       every entry holds: {checked.challenge.address}"
    assert [line.split()[1] for line in lines[1 : 1 + len(winners)]] == winners
    assert lines[1 + len(winners)].startswith("checked  4 submissions")
    assert "add --rpc URL" in " ".join(lines)
    open_points = [line for line in lines if line.startswith("unproven")]
    assert len(open_points) == len(checked.not_proven) == 2
    assert not any(word in " ".join(lines) for word in ("ipfs", "hidden", "unreachable", "can change"))
    print_verified(checked, details=True)
    assert f"entries  {checked.entries}" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["a", "fifteen-letters"])
def test_check_refuses_the_admin_key_that_serve_refuses(key: str, stored: str) -> None:
    """What `serve` does not start with is no ready service (bug 1)."""
    done = call("check", CLARA_ADMIN_API_KEY=key)
    assert isinstance(done.exception, ConfigError)
    assert "CLARA_ADMIN_API_KEY=(hidden) is not usable: it is shorter than 16" in done.exception.message
    assert not Path(stored).exists()


def test_check_tells_a_name_that_is_no_setting(stored: str) -> None:
    """A misspelt setting is ignored, and the check says so, to people and to programs (bug 1)."""
    assert stored
    said = call("check", CLARA_JUDGE="openai:x", CLARA_RPC_URL="http://127.0.0.1:1").stdout
    assert "warning CLARA_JUDGE is not a setting. Did you mean CLARA_JUDGES?" in said
    found = json.loads(call("check", "--json", CLARA_JUDGE="openai:x", CLARA_RPC_URL="http://127.0.0.1:1").stdout)
    assert (found["ok"], len(found["warnings"])) == (False, 1)


def test_an_entry_that_is_not_ranked_is_not_called_paid() -> None:
    """With every ranked entry paid and a third one rejected, the draft speaks of those that are ranked (bug 9)."""
    ranking = rank([("0xa", "0xb", "left")], top=2)
    assert ranking.margin.sentence == "All ranked entries are paid."


def test_a_copy_has_one_word_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of `evaluate`, `review show`, `leaderboard` and `score` has the code, not "rejected" (bug 10)."""
    row = StandingRow(
        rank=3, address=ADDRESS, agentId="7", score=0, status="rejected", code="copy", prize=None,
        reason=fence("Identical to an earlier one.", "Clara"),
    )  # fmt: skip
    print_leaderboard(console(stderr=False), LeaderboardTable([row], USDC))
    said = capsys.readouterr().out
    assert "0xabab…abab  copy\n" in said
    assert "rejected" not in said


def test_the_page_on_installing_needs_no_tag() -> None:
    """A clone has no tags that a reader could check out (bug 23)."""
    assert "git checkout" not in (Path(__file__).parents[3] / "docs" / "install.md").read_text(encoding="utf-8")


async def test_a_review_names_its_deadline_without_a_service(local_chain: LocalChain, tmp_path: Path) -> None:
    """After `evaluate` by hand `review show` has the moment, by the chain's clock, and leads with the doubt (bug 26)."""
    environ = agent_environment(local_chain, None, tmp_path / "store.db")
    environ |= {"CLARA_EVALUATOR_KEY": local_chain.evaluator.key, "CLARA_REVIEW_ABOVE_USD": "50"}
    address = await closed_round(local_chain)
    waits = await asyncio.to_thread(call, "evaluate", address, **environ)
    assert waits.exit_code == 1
    assert " ".join(waits.stdout.split()).startswith(DOUBT)
    lines = (await asyncio.to_thread(call, "review", "show", address, **environ)).stdout.splitlines()
    assert lines[1] == f"doubt     {DOUBT}"
    shown = json.loads((await asyncio.to_thread(call, "challenge", "show", address, "--json", **environ)).stdout)
    assert lines[3].endswith(f"; decide before {show_moment(shown['scoringDeadline'])}")
