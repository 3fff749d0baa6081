"""A review that a person can do: everything on one sheet, the digest named, and rulings that the round is walked by."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.forged_trace import forged
from tests.support.model_rounds import ScriptedModels, model_round, script
from tests.support.rounds import opened
from tests.support.scripted_llm import ScriptedLlm
from tests.support.statuses import read_status

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.actions.review import Decree, approve, review_sheet, rule
from clara_eval.app import App, open_app
from clara_eval.chain.sender import SendOutcome, SendTimeouts
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.replay import check_trace
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, BadTrace, ConfigError
from clara_eval.devnet.demo.lifecycle import local_settings, write_trace
from clara_eval.devnet.demo.round import post_round, submit_round
from clara_eval.devnet.local_chain import HOUR, USDC, LocalChain
from clara_eval.evaluation.round import EvaluationPlan, Ruling, ruled_plan
from clara_eval.judge.port import Prompt


async def waiting_round(chain: LocalChain) -> Address:
    address = await post_round(chain, pool=1000 * USDC)
    await submit_round(chain, address)
    await chain.move_time(HOUR + 1)
    return address


async def traced(app: App, address: Address) -> list[str]:
    return (await write_trace(app, address)).read_text().splitlines(keepends=True)


async def ruled(app: App, done: Evaluation, decree: Decree) -> Evaluation:
    """The result after a ruling about this one; its trace holds."""
    await rule(app.store, app.chain_id, done.challenge.address, decree, digest=done.digest)
    status = await read_status(app.store, app.chain_id, done.challenge.address) or {}
    assert status["status"] == "pending"
    again = await evaluate(app, done.challenge.address)
    assert (await check_trace(await traced(app, done.challenge.address))).digest == again.digest
    return again


async def test_a_ruling_is_followed_and_stands_in_the_trace(local_chain: LocalChain, tmp_path: Path) -> None:
    """The excluded entry is out and a copy made original is in; both rulings stand in the trace, and the new result
    waits for its own approval, by its own digest.
    """
    address = await waiting_round(local_chain)
    async with open_app(
        local_settings(local_chain, tmp_path / "s.db", tmp_path), pace=SendTimeouts(poll_seconds=0.02)
    ) as app:
        first = await evaluate(app, address)
        assert first.receipt is None
        best = first.result.placed[0].account
        copy = next(r.submission.submitter for r in first.result.rejected if r.code == "copy")
        second = await ruled(
            app, first, Decree("original", copy, note="shown to be older", by="Grace\u202e \x1b[2J" + "e" * 99)
        )
        assert copy in {place.account for place in second.result.placed[:1]}
        assert best in {r.submission.submitter for r in second.result.rejected if r.code == "copy"}
        third = await ruled(app, second, Decree("exclude", copy, note="written by the poster"))
        assert (copy, "excluded") in {(r.submission.submitter, r.code) for r in third.result.rejected}
        assert copy not in {winner.account for winner in third.winners.entries}
        assert [(r.kind, r.of) for r in third.result.rulings] == [
            ("original", first.digest),
            ("exclude", second.digest),
        ]
        # A name is one line without what hides or turns text, and not long.
        assert [r.by for r in third.result.rulings] == ["Grace [2J" + "e" * 70 + "…", ""]
        for old in (first.digest, second.digest):
            with pytest.raises(BadInput, match="changed since you looked"):
                await approve(app.store, app.chain_id, address, note="", digest=old)
        lines = await traced(app, address)
        assert (await check_trace(lines)).notes.approvals == []
        with pytest.raises(BadTrace):
            await check_trace(forged(lines, lambda bodies: bodies["rulings"].pop()))
        await approve(app.store, app.chain_id, address, note="looked", digest=third.digest, by="Ada")
        done = await evaluate(app, address)
        assert done.receipt is not None
        assert (done.receipt.outcome, done.digest) == (SendOutcome.CONFIRMED, third.digest)
        checked = await check_trace(await traced(app, address))
        (approval,) = checked.notes.approvals
        assert (checked.digest, approval.of, approval.by) == (third.digest, third.digest, "Ada")
        assert approval.note == "looked"
        assert any("approvals are not signed" in point for point in checked.not_proven)
        with pytest.raises(BadInput):
            await rule(app.store, app.chain_id, address, Decree("exclude", best), digest=done.digest)


async def test_the_sheet_holds_what_a_decision_needs(local_chain: LocalChain, tmp_path: Path) -> None:
    """The ranking with everybody, the doubts, the facts side by side and the games at the pay line, and the digest."""
    address = await waiting_round(local_chain)
    async with open_app(
        local_settings(local_chain, tmp_path / "s.db", tmp_path), pace=SendTimeouts(poll_seconds=0.02)
    ) as app:
        waiting = await evaluate(app, address)
        sheet = await review_sheet(app.store, app.chain_id, address)
        for digest in (None, ""):
            with pytest.raises(BadInput, match="digest"):
                await approve(app.store, app.chain_id, address, note="", digest=digest)
        for decree in (Decree("exclude", app.evaluator), Decree("exclude"), Decree("judge", judge="rules")):
            with pytest.raises(BadInput):
                await rule(app.store, app.chain_id, address, decree, digest=waiting.digest)
        nobody = Decree("judge", judge="nobody:knows", stage="comparing")
        with pytest.raises(ConfigError):
            await rule(app.store, app.chain_id, address, nobody, digest=waiting.digest)
    assert (sheet.traceDigest, sheet.state) == (waiting.digest, "waiting")
    assert [row.address for row in sheet.ranking] == [place.account for place in waiting.result.placed]
    assert (sheet.winnerCount, sheet.prizePool) == (3, str(1000 * USDC))
    assert "1,000.00" in sheet.reasons[0]
    near = [place.account for place in waiting.result.placed[:5]]
    assert all(list(values) == near for values in sheet.facts.values())
    assert {(game.first, game.second) for game in sheet.games} >= {(near[2], near[3]), (near[3], near[2])}


def test_another_judge_for_one_stage_leaves_the_other() -> None:
    """A judge asked for the games does not read as well, and one who reads does not judge."""
    plan = EvaluationPlan(("openai:a", "rules"))
    games = ruled_plan(plan, [Ruling("judge", "0x", 1, judge="openai:b", stage="comparing")])
    assert (games.judges, games.readers, set(games.models)) == (("openai:b",), ("openai:a",), {"openai:a", "openai:b"})
    reads = ruled_plan(plan, [Ruling("judge", "0x", 1, judge="openai:b", stage="reading")])
    assert (reads.judges, reads.readers) == (("openai:a", "rules"), ("openai:b",))


OTHER = "openai:other@http://127.0.0.1:1/v1"


def contrary(prompt: Prompt) -> str:
    """Reads like everybody and sees every pair the other way round."""
    said = json.loads(script(prompt))
    if "winner" in said:
        said["winner"] = {"A": "B", "B": "A", "tie": "A"}[said["winner"]]
    return json.dumps(said)


async def test_another_judge_is_asked_for_the_stage_that_a_person_names(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """After `rule --judge` the other judge plays all games, and reads only once it is asked to; the trace tells, holds,
    and a trace without the ruling does not.
    """
    address = await model_round(local_chain)
    asked, other = ScriptedLlm(script), ScriptedLlm(contrary, name=OTHER)
    async with opened(local_chain, tmp_path, review_above_usd=1.0) as app:
        models = ScriptedModels(app, {"scripted:model": asked, OTHER: other})
        scripted = replace(app, models=models)
        plan = EvaluationRequest(plan=EvaluationPlan(("scripted:model",)))
        first = await evaluate(scripted, address, plan)
        assert first.receipt is None
        assert other.seen == []
        decree = Decree("judge", judge=OTHER, stage="comparing", note="the first one is doubtful")
        second = await ruled(scripted, first, decree)
        assert {game.judge for game in second.result.comparisons} == {OTHER}
        assert {prompt.purpose for prompt in other.seen} == {"comparison"}
        assert [p.account for p in second.result.placed] != [p.account for p in first.result.placed]
        third = await ruled(scripted, second, Decree("judge", judge=OTHER, stage="reading"))
        assert {prompt.purpose for prompt in other.seen} == {"comparison", "features", "schema"}
        assert [(r.kind, r.judge, r.stage) for r in third.result.rulings] == [
            ("judge", OTHER, "comparing"),
            ("judge", OTHER, "reading"),
        ]
        with pytest.raises(BadTrace):
            await check_trace(forged(await traced(app, address), lambda bodies: bodies["rulings"].clear()))
        assert third.receipt is None
