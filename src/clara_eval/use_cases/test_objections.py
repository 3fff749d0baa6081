"""Objections before the post: announced, signed, done again, in the trace; and never the end of a round."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from clara_eval.app import App, open_app
from clara_eval.challenge.model import Address
from clara_eval.demo.lifecycle import local_settings
from clara_eval.demo.round import post_round, submit_round
from clara_eval.devnet.local_chain import HOUR, LocalChain
from clara_eval.engine.due import Action, Memory, due
from clara_eval.engine.endings import ending_of_result
from clara_eval.errors import BadInput, BadTrace, NotFound, NotYet
from clara_eval.pipeline.replay import check_trace
from clara_eval.pipeline.status import read_status
from clara_eval.testing.forged_trace import forged
from clara_eval.testing.step_worker import KILLED, PACE, StepWorkers
from clara_eval.trace.archive import stream_trace
from clara_eval.trace.document import trace_lines
from clara_eval.use_cases.evaluate import evaluate
from clara_eval.use_cases.objections import object_to_draft, read_draft, sign_objection
from clara_eval.use_cases.review import approve

WINDOW = 6 * HOUR
VERIFIER = Path(__file__).parents[3] / "verifier" / "verify.mjs"
CHAIN = 31337


async def closed_round(chain: LocalChain) -> Address:
    address = await post_round(chain)
    await submit_round(chain, address)
    await chain.move_time(HOUR + 1)
    return address


def settings_of(chain: LocalChain, place: Path, **changes: Any) -> Any:
    return local_settings(chain, place / "store.db", place).model_copy(update={"objection_window": WINDOW, **changes})


def key_of(chain: LocalChain, address: str) -> SecretStr:
    return SecretStr(next(one.key for one in chain.agents if one.address.lower() == address))


async def signed(
    app: App, chain: LocalChain, address: Address, who: str, about: str, reason: str = "It is mine."
) -> str:
    draft = await read_draft(app.store, app.chain_id, address)
    return sign_objection(key_of(chain, who), CHAIN, address, draft.digest, about, reason)


async def lines_of(app: App, address: Address) -> list[str]:
    return trace_lines("".join([part async for part in stream_trace(app.store, app.chain_id, address)]).encode())


async def test_a_result_is_announced_and_posted_when_nobody_objects(local_chain: LocalChain, tmp_path: Path) -> None:
    """Until the window is over nothing is posted, however often it is asked for; then it is, without a change."""
    address = await closed_round(local_chain)
    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        first = await evaluate(app, address)
        again = await evaluate(app, address)
        assert first.draft is not None
        assert (first.receipt, again.draft, again.digest) == (None, first.draft, first.digest)
        assert first.draft.until - first.draft.announced_at == WINDOW
        ending = ending_of_result(first, now=1000.0)
        assert (ending.outcome, ending.retry_at is not None and ending.retry_at > 1000 + WINDOW - 60) == (
            "announced",
            True,
        )
        status = await read_status(app.store, app.chain_id, address) or {}
        assert (status["status"], status["objectionsUntil"]) == ("publishing", first.draft.until)
        await local_chain.move_time(WINDOW + 1)
        posted = await evaluate(app, address)
        assert posted.receipt is not None
        assert posted.digest == first.digest
        status = await read_status(app.store, app.chain_id, address) or {}
        assert (status["status"], status["objectionsUntil"]) == ("complete", None)
        with pytest.raises(NotYet, match="were taken until"):
            await object_to_draft(app, address, "copy", "Late.", "0x00")


async def test_an_objection_waits_for_a_person_and_is_in_the_trace(local_chain: LocalChain, tmp_path: Path) -> None:
    """Signed by the submitter or refused, one each; a person looks; draft and objection are in the trace, checked."""
    address = await closed_round(local_chain)
    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        with pytest.raises(NotFound, match="announced"):
            await object_to_draft(app, address, "rejected", "Early.", "0x00")
        draft = (await evaluate(app, address)).draft
        assert draft is not None
        refused = next(place.address for place in draft.places if place.status == "rejected")
        best, second = draft.places[0].address, draft.places[1].address
        good = await signed(app, local_chain, address, refused, "rejected")
        for about, signature, problem in (
            ("rejected", "0x1234", "not signed"),
            ("rejected", good.replace(good[10:20], "0123456789"), "not signed"),
            ("rejected", await signed(app, local_chain, address, best, "rejected"), "no rejection"),
            (f"game:{best}", await signed(app, local_chain, address, best, f"game:{best}"), "not another submitter"),
            ("everything", good, "is about"),
        ):
            with pytest.raises(BadInput, match=problem):
                await object_to_draft(app, address, about, "It is mine.", signature)
        kept = await object_to_draft(app, address, "rejected", "It is mine.", good)
        assert kept == await object_to_draft(app, address, "rejected", "It is mine.", good), "said twice is said once"
        other = await signed(app, local_chain, address, refused, "copy")
        with pytest.raises(BadInput, match="objected already"):
            await object_to_draft(app, address, "copy", "It is mine.", other)
        await local_chain.move_time(WINDOW + 1)
        waiting = await evaluate(app, address)
        assert waiting.review is not None
        assert any(refused in reason for reason in waiting.review.reasons)
        assert waiting.digest != draft.digest
        await approve(app.store, app.chain_id, address, note="Looked at it.", digest=waiting.digest)
        posted = await evaluate(app, address)
        assert posted.receipt is not None
        assert posted.digest == waiting.digest
        lines = await lines_of(app, address)
        checked = await check_trace(lines, app.chain)
    assert checked.walk.disputed is not None
    assert (checked.walk.disputed.of, checked.walk.disputed.raised) == (draft.digest, (kept,))
    assert checked.walk.disputed.places == draft.places

    def lie(bodies: dict[str, Any]) -> None:
        bodies["objections"]["raised"][0]["submitter"] = second

    with pytest.raises(BadTrace, match="not signed by that submitter"):
        await check_trace(forged(lines, lie))


async def test_another_judge_does_a_disputed_game_again(local_chain: LocalChain, tmp_path: Path) -> None:
    """With a judge for objections no person is needed: its ruling is in the trace, and the result is posted."""
    address = await closed_round(local_chain)
    async with open_app(settings_of(local_chain, tmp_path, objection_judge="rules"), pace=PACE) as app:
        draft = (await evaluate(app, address)).draft
        assert draft is not None
        best, second = draft.places[0].address, draft.places[1].address
        about = f"game:{best}"
        await object_to_draft(
            app, address, about, "It is mine.", await signed(app, local_chain, address, second, about)
        )
        await local_chain.move_time(WINDOW + 1)
        posted = await evaluate(app, address)
        assert posted.receipt is not None
        lines = await lines_of(app, address)
        checked = await check_trace(lines, app.chain)
    (tmp_path / "trace.json").write_text("".join(lines))
    ran = await asyncio.create_subprocess_exec(
        "node", VERIFIER, tmp_path / "trace.json", stdout=asyncio.subprocess.PIPE
    )
    words, _ = await asyncio.wait_for(ran.communicate(), 60)
    assert (ran.returncode, words[:5]) == (0, b"holds"), "the independent verifier takes it, too"
    assert [(one.kind, one.stage, one.judge, one.of) for one in checked.walk.rulings] == [
        ("judge", "comparing", "rules", draft.digest)
    ]


async def test_no_objection_keeps_a_result_from_being_posted(local_chain: LocalChain, tmp_path: Path) -> None:
    """A loser objects and nobody looks: shortly before the deadline it is posted all the same."""
    address = await closed_round(local_chain)
    async with open_app(settings_of(local_chain, tmp_path, objection_window=30 * 86_400), pace=PACE) as app:
        first = await evaluate(app, address)
        assert first.draft is not None
        size = first.challenge.scoring_deadline - first.challenge.deadline
        assert first.draft.until == first.challenge.scoring_deadline - size // 4, "never into the last quarter"
        refused = next(place.address for place in first.draft.places if place.status == "rejected")
        signature = await signed(app, local_chain, address, refused, "copy")
        await object_to_draft(app, address, "copy", "It is mine.", signature)
        await local_chain.move_time(first.draft.until - first.draft.announced_at + 1)
        waiting = await evaluate(app, address)
        ending = ending_of_result(waiting, now=1000.0)
        assert (ending.outcome, ending.retry_at is not None) == ("review", True)
        memory = Memory("review", ending.retry_at)
        for wall, action in ((1000.0, Action.NONE), (float(ending.retry_at or 0), Action.EVALUATE)):
            found = due(
                waiting.challenge, memory, evaluator=app.evaluator, chain_now=first.draft.until, wall_now=wall,
                can_sign=True,
            )  # fmt: skip
            assert found.action is action
        await local_chain.move_time(int(0.15 * size) + 10)
        posted = await evaluate(app, address)
    assert posted.receipt is not None


async def test_killed_at_each_step_of_an_objection_nothing_is_lost(local_chain: LocalChain, tmp_path: Path) -> None:
    """Processes die while announcing, keeping the objection and closing the window: one objection, one post."""
    address = await closed_round(local_chain)
    settings = settings_of(local_chain, tmp_path, objection_judge="rules")
    environ = _environ(local_chain, tmp_path)
    async with StepWorkers(environ) as workers:
        for point in ("before:put:1@:draft", "after:put:1@:draft"):
            assert await workers.run("evaluate", address, kill=point) == KILLED, workers.told
        assert await workers.run("evaluate", address) == 0, workers.told
        async with open_app(settings, pace=PACE) as app:
            draft = await read_draft(app.store, app.chain_id, address)
            about = f"game:{draft.places[0].address}"
            signature = await signed(app, local_chain, address, draft.places[1].address, about)
        objecting = ("object", address, about, "It is mine.", signature)
        for point in ("before:add_entry:1@objection/", "after:add_entry:1@objection/"):
            assert await workers.run(*objecting, kill=point) == KILLED, workers.told
        assert await workers.run(*objecting) == 0, workers.told
        await local_chain.move_time(WINDOW + 1)
        for point in ("before:forget_entry:1", "after:forget_entry:2", "before:add_entry:1@disputed",
                      "after:add_entry:1@disputed", "after:broadcast:1"):  # fmt: skip
            assert await workers.run("evaluate", address, kill=point) == KILLED, (point, workers.told)
        assert await workers.run("evaluate", address) == 0, workers.told
    async with open_app(settings, pace=PACE) as app:
        lines = await lines_of(app, address)
        checked = await check_trace(lines, app.chain)
    assert checked.walk.disputed is not None
    assert [one.signature for one in checked.walk.disputed.raised] == [signature]
    assert checked.walk.disputed.of == draft.digest
    logs = await local_chain.challenge(address).events.ScoresPosted.get_logs(from_block=0)
    assert len(logs) == 1


def _environ(chain: LocalChain, place: Path) -> dict[str, str]:
    return {
        "CLARA_NETWORK": "local",
        "CLARA_RPC_URL": chain.rpc_url,
        "CLARA_CHALLENGE_FACTORY": chain.deployment.factory,
        "CLARA_FROM_BLOCK": str(chain.deployment.from_block),
        "CLARA_EVALUATOR_KEY": chain.evaluator.key,
        "CLARA_USDC": chain.deployment.token,
        "CLARA_DATABASE_URL": f"sqlite:///{place}/store.db",
        "CLARA_OBJECTION_WINDOW": str(WINDOW),
        "CLARA_OBJECTION_JUDGE": "rules",
    }
