"""A whole round judged by a real, small, bad language model: it ends, it can be checked, and its bias is told.

It compares facts but cannot read programs for them: a round that needs its reading ends without a ranking.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hackathon import ENTRIES, hackathon
from tests.support.verifiers import PROGRAM

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import open_app
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.replay import check_trace
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import local_settings, write_trace
from clara_eval.devnet.demo.round import data_uri, entry
from clara_eval.devnet.local_chain import (
    HOUR,
    USDC,
    Handed,
    LocalChain,
    PostedTerms,
)
from clara_eval.evaluation.trace import read_entries

MEASURED = [{"name": "max_complexity", "source": "measured"}, {"name": "tests", "source": "measured"}]
READ = {"name": "is_complete", "type": "boolean", "better": "higher"}
CONFIG = json.dumps(
    {
        "version": 1,
        "features": MEASURED,
        "criteria": "The best rate limiter is complete, simple and tested: low complexity, more tests.",
        "language": "python",
    }
)
NAMES = ("deque_window", "token_bucket", "nested_flags")


async def closed(chain: LocalChain, config: str) -> Address:
    """A round with three entries whose deadline has passed."""
    metadata = build_metadata(title="t", problem_statement="p", skills=(), config_text=config)
    terms = PostedTerms(challenge_uri=metadata, eval_config_hash=config_hash(config.encode()), open_seconds=HOUR)
    address = await chain.post_challenge(replace(terms, prize_pool=500 * USDC, payout_bps=(10_000,)))
    contents = [entry(name).encode() for name in NAMES]
    await chain.submit_all(
        address, [Handed(chain.agents[n], data_uri(c), keccak_hex(c)) for n, c in enumerate(contents)]
    )
    await chain.move_time(HOUR + 1)
    return address


def judged_locally(chain: LocalChain, place: Path) -> Settings:
    return local_settings(chain, place / "store.db", place).model_copy(update={"judges_as_set": "local:smollm2"})


@pytest.mark.local_model
@pytest.mark.timeout(1500)
async def test_a_model_that_cannot_read_programs_ranks_nobody(local_chain: LocalChain, tmp_path: Path) -> None:
    """What it says about programs does not describe them: nothing is invented, and the reason is named."""
    address = await closed(local_chain, json.dumps({**json.loads(CONFIG), "features": [*MEASURED, READ]}))
    async with open_app(judged_locally(local_chain, tmp_path), pace=SendTimeouts(poll_seconds=0.05)) as app:
        with pytest.raises(Temporary, match=r"No submission could be read|not what was asked for"):
            await evaluate(app, address, EvaluationRequest(dry_run=True))


@pytest.mark.local_model
@pytest.mark.timeout(1500)
async def test_a_real_round_with_the_real_local_model(local_chain: LocalChain, tmp_path: Path) -> None:
    """The round runs to its end; answers that follow the side shown up as swap disagreement, not as a ranking."""
    address = await closed(local_chain, CONFIG)
    async with open_app(judged_locally(local_chain, tmp_path), pace=SendTimeouts(poll_seconds=0.05)) as app:
        done = await evaluate(app, address, EvaluationRequest(dry_run=True))
        path = await write_trace(app, address)
    ranking = done.result.ranking
    assert ranking is not None
    assert len(done.result.comparisons) == 6
    decided = [c for c in done.result.comparisons if c.winner is not None]
    assert decided, "the model gave no verdict at all"
    # This model names the same side whatever it is shown: both orders then cancel out instead of making a ranking.
    assert ranking.consistency.swap_consistency is not None
    assert ranking.consistency.swap_consistency < 0.5
    assert ranking.standings[0].elo - ranking.standings[-1].elo < 10
    checked = await check_trace(path.read_text(encoding="utf-8").splitlines(keepends=True))
    assert checked.digest == done.digest


SHORT = json.dumps(
    {
        "version": 1,
        "features": [{"name": "lines", "type": "integer", "source": "measured", "better": "lower"}],
        "criteria": "Fewer lines are better.",
    }
)
MOST_USD = 0.05  # about a hundred questions at this price: the model answers one in five seconds
PRICED = {"CLARA_PRICES": "local:smollm2=1/1", "CLARA_ANSWER_TOKENS": "1024"}
KILLED_AFTER = (2, 12, 40)
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from clara_eval.actions.folder import read_entries
from clara_eval.actions.judge import JudgeRequest, judge_entries
from clara_eval.config.settings import Settings

def watch(status):
    if status.stage and (status.stage.calls or 0) >= int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)

request = JudgeRequest(read_entries("in"), Path("config.json").read_bytes(), "local:smollm2", max_usd=float(sys.argv[2]), title="in")
asyncio.run(judge_entries(request, Settings.from_env(), Path("out"), watch))
"""
"""Judges the folder as the command does, and is killed after so many answers."""


@pytest.mark.local_model
@pytest.mark.timeout(3600)
def test_a_hackathon_judged_by_the_real_model_is_killed_three_times_and_continued(tmp_path: Path) -> None:
    """After each kill `judge` asks only for what is missing; both verifiers hold the trace, and a last run asks nothing."""
    for number, team in enumerate(sorted(hackathon(tmp_path / "in").iterdir())):
        (team / "notes.md").write_text("A line.\n" * (number + 1), encoding="utf-8")
    (tmp_path / "config.json").write_text(SHORT, encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **PRICED}

    def ran(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    for calls in KILLED_AFTER:
        assert ran(sys.executable, "-c", KILLED, str(calls), str(MOST_USD)).returncode == -signal.SIGKILL
    command = (sys.executable, "-m", "clara_eval")
    judge = (
        *command,
        "judge",
        "in",
        "--config",
        "config.json",
        "--judges",
        "local:smollm2",
        "--json",
        "--max-usd",
        str(MOST_USD),
    )
    judged = ran(*judge, "--out", "out")
    assert judged.returncode == 0, judged.stderr
    found = json.loads(judged.stdout)
    assert len(found["rankings"]) == ENTRIES
    entries = read_entries((tmp_path / "out" / "trace.json").read_text(encoding="utf-8").splitlines(keepends=True))
    answers = sum(one.key.startswith("answer/") for one in entries)
    asked = [int(number) for number in re.findall(r"(\d+) calls", judged.stderr)]
    assert 0 < max(asked) <= answers - sum(KILLED_AFTER), "what was answered before a kill is not asked again"
    for verifier in (("node", str(PROGRAM)), (*command, "verify")):
        checked = ran(*verifier, "out/trace.json")
        assert checked.returncode == 0, checked.stdout + checked.stderr
    again = ran(*judge, "--out", "out")
    assert json.loads(again.stdout)["traceDigest"] == found["traceDigest"]
    assert not re.search(r"\d+ calls", again.stderr)
