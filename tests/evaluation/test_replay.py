"""A trace is checked by walking it again: honest ones hold, forged ones are named."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.forged_trace import Entries, forged
from tests.support.large_round import no_listener, trace_entries
from tests.support.replay import traced
from tests.support.rounds import closed_round, opened, run

from clara_eval.app import plan_of
from clara_eval.challenges.replay import OFFLINE, check_trace
from clara_eval.challenges.venue import CHALLENGE, round_of
from clara_eval.config.eval_config import EvalConfig
from clara_eval.core.errors import BadTrace
from clara_eval.core.model import Submission
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.demo.round import data_uri, entry, post_round
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain
from clara_eval.evaluation.result import PLAN
from clara_eval.evaluation.run import evaluate_round
from clara_eval.evaluation.sources import RECEIVED, SubmissionResult, TraceSources
from clara_eval.evaluation.trace import TraceWriter, read_entries, render


async def test_a_trace_has_one_casing_and_only_numbers_that_a_double_holds(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Every key of ours is camelCase; names of features are data; no integer is above 2^53."""
    wrong: list[str] = []

    def look(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                named_by_poster = path.startswith("features/") and path.endswith(("measured", "claimed", ".features"))
                wrong.extend([f"{path}.{key}"] if "_" in key and not named_by_poster else [])
                look(item, f"{path}.{key}")
        elif isinstance(value, list):
            for item in value:
                look(item, path)
        elif isinstance(value, int) and abs(value) > 2**53:
            wrong.append(path)

    for line in read_entries(await traced(local_chain, tmp_path)):
        look(line.body, line.key)
    assert wrong == []


async def test_an_honest_trace_holds_offline_and_on_chain(local_chain: LocalChain, tmp_path: Path) -> None:
    """A posted round's trace holds by itself, and the chain has its digest."""
    lines = await traced(local_chain, tmp_path)
    offline = await check_trace(lines)
    assert offline.posted is None
    async with opened(local_chain, tmp_path) as app:
        checked = await check_trace(lines, app.chain)
    assert checked.posted is not None
    assert checked.digest == offline.digest == json.loads("".join(lines))["digest"]


def _swap_winner(bodies: Entries) -> None:
    bodies["winners"][0], bodies["winners"][1] = bodies["winners"][1], bodies["winners"][0]


def _raise_elo(bodies: Entries) -> None:
    bodies["ranking"]["standings"][3]["elo"] += 200


def _turn_a_game(bodies: Entries) -> None:
    bodies["comparison/0000000"]["winner"] = "tie"


def _better_feature(bodies: Entries) -> None:
    key = next(k for k in bodies if k.startswith("features/"))
    bodies[key]["features"]["max_complexity"] = 0


def _other_config(bodies: Entries) -> None:
    bodies["metadata"]["evalConfig"] = bodies["metadata"]["evalConfig"].replace("lower", "higher")


def _drop_a_game(bodies: Entries) -> None:
    del bodies["comparison/0000005"]


def _hide_a_rejection(bodies: Entries) -> None:
    bodies["rejected"].pop()


def _other_calldata(bodies: Entries) -> None:
    bodies["calldata"] = bodies["calldata"][:-2] + "01"


def _other_header(bodies: Entries) -> None:
    bodies["header"]["challenge"] = "0x" + "1" * 40


def _other_rules(bodies: Entries) -> None:
    bodies["header"]["rules"] = 0


def _misshapen_solution(bodies: Entries) -> None:
    bodies[next(k for k in bodies if k.startswith("solution/"))] = None


def _endless_agent(bodies: Entries) -> None:
    for submission in bodies["challenge"]["submissions"]:
        submission["agentId"] = str(2**300)


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        (_endless_agent, "evidence"),
        (_other_header, "header"),
        (_misshapen_solution, "evidence"),
        (_swap_winner, "winners"),
        (_raise_elo, "ranking"),
        (_turn_a_game, "comparison/0000000"),
        (_better_feature, "features/"),
        (_other_config, "metadata"),
        (_drop_a_game, "comparison/0000006"),
        (_hide_a_rejection, "rejected"),
        (_other_calldata, "calldata"),
    ],
)
async def test_a_forged_entry_is_named_although_its_hashes_are_right(
    local_chain: LocalChain, tmp_path: Path, change: Callable[[Entries], None], entry: str
) -> None:
    """Whoever rewrites a result and all hashes is caught by the evidence."""
    lines = forged(await traced(local_chain, tmp_path), change)
    with pytest.raises(BadTrace) as caught:
        await check_trace(lines)
    assert entry in caught.value.entry


async def test_a_trace_of_other_rules_is_not_called_forged(local_chain: LocalChain, tmp_path: Path) -> None:
    """It is refused with the version that can check it, and says that only the hashes were looked at."""
    lines = forged(await traced(local_chain, tmp_path), _other_rules)
    with pytest.raises(BadTrace, match=r"'clara-eval [\d.]+' under rules 0.*nothing else was checked"):
        await check_trace(lines)


def _other_submission(bodies: Entries) -> None:
    bodies["challenge"]["submissions"][0]["submittedAt"] += 1


async def test_other_facts_than_the_chains_are_refused(local_chain: LocalChain, tmp_path: Path) -> None:
    """A trace that is sound in itself but tells another story than the chain is refused with the chain at hand."""
    lines = forged(await traced(local_chain, tmp_path), _other_submission)
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(BadTrace, match="other facts"):
            await check_trace(lines, app.chain)


class Blind(TraceSources):
    """Believes whatever the evidence says, as a forger's own program would."""

    async def read(self, submission: Submission, config: EvalConfig, part: str) -> SubmissionResult:
        received = RECEIVED.read(self.entries[f"solution/{submission.submitter}"][part])
        return SubmissionResult.of(submission, received, config)


async def rewalked(lines: list[str], change: Callable[[Entries], None]) -> list[str]:
    """A trace whose evidence is replaced and everything after it computed anew: sound in itself."""
    bodies: dict[str, Any] = {entry.key: entry.body for entry in read_entries(lines)}
    change(bodies)
    challenge, plan = CHALLENGE.read(bodies["challenge"]), PLAN.read(bodies["plan"])
    given = round_of(challenge, base64.b64decode(bodies["metadata"]["content"]))
    result = await evaluate_round(given, plan, Blind(bodies), no_listener)
    writer = TraceWriter()
    changed = [writer.line(key, body) for key, body in trace_entries(challenge, plan, result)]
    return "".join(render(changed, writer.digest)).splitlines(keepends=True)


def _best(bodies: Entries) -> Any:
    return bodies[f"solution/{bodies['placed'][0]['account']}"]["received"]


def _lose_the_best(bodies: Entries) -> None:
    _best(bodies).update(content=None, mediaType="", immutable=False, code="not_found", reason="Nothing is there.")


def _call_the_best_malformed(bodies: Entries) -> None:
    _best(bodies).update(content=None, mediaType="", immutable=False, code="bad_data_uri", reason="Malformed.")


def _call_the_best_too_large(bodies: Entries) -> None:
    _best(bodies).update(content=None, mediaType="", immutable=False, code="too_large", reason="Too large.")


def _spoil_the_best(bodies: Entries) -> None:
    _best(bodies)["content"] = base64.b64encode(entry("unfinished").encode() + b"# more").decode()


def _other_media_type(bodies: Entries) -> None:
    _best(bodies)["mediaType"] = "text/x-rust"


def _other_problem(bodies: Entries) -> None:
    metadata = json.loads(base64.b64decode(bodies["metadata"]["content"]))
    told = json.dumps({**metadata, "title": "Something else"}).encode()
    bodies["metadata"]["content"] = base64.b64encode(told).decode()


@pytest.mark.parametrize(
    ("change", "entry_name"),
    [
        (_lose_the_best, "solution/"),
        (_call_the_best_malformed, "solution/"),
        (_call_the_best_too_large, "solution/"),
        (_spoil_the_best, "solution/"),
        (_other_media_type, "solution/"),
        (_other_problem, "metadata"),
    ],
)
async def test_what_a_data_uri_holds_cannot_be_replaced(
    local_chain: LocalChain, tmp_path: Path, change: Callable[[Entries], None], entry_name: str
) -> None:
    """An evaluator that posts a trace over other content than the chain holds is caught, though all else is sound."""
    address = await post_round(local_chain)
    names = ("deque_window", "ring_buffer", "sliding_log", "unfinished")
    handed = [Handed(local_chain.agents[n], data_uri(entry(name).encode()), None) for n, name in enumerate(names)]
    await local_chain.submit_all(address, handed)
    await local_chain.move_time(HOUR + 1)
    async with opened(local_chain, tmp_path) as app:
        await run(app, address, dry_run=True)
        lines = (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)
    await check_trace(lines)
    with pytest.raises(BadTrace) as caught:
        await check_trace(await rewalked(lines, change))
    assert entry_name in caught.value.entry


async def test_a_check_says_what_it_leaves_open(local_chain: LocalChain, tmp_path: Path) -> None:
    """Offline nothing is compared with the chain, and that is said; a plan with fewer games is not proven needed."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        await run(app, address, plan=replace(plan_of(app.settings), max_games=30))
        lines = (await write_trace(app, address)).read_text().splitlines(keepends=True)
        offline = (await check_trace(lines)).not_proven
        online = (await check_trace(lines, app.chain)).not_proven
    assert offline[0] == OFFLINE
    assert OFFLINE not in online
    for points in (offline, online):
        assert any("only 30 comparisons" in point for point in points)
