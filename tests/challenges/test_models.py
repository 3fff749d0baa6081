"""Rounds judged by models: the order of arrival does not matter, nothing is paid twice, outages are no verdicts."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.forged_trace import forged
from tests.support.model_rounds import CONFIG, Dropping, ScriptedModels, in_fours, judged, model_round, script
from tests.support.rounds import opened
from tests.support.scripted_llm import (
    ScriptedLlm,
    Task,
    answer_of,
    shown_vectors,
)
from tests.support.statuses import read_status

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.challenges.replay import check_trace
from clara_eval.core.errors import BadTrace, Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge.port import Answer, Llm, Prompt

BOASTERS = ("deque(", "monotonic")


@dataclass
class Shuffled:
    """A model whose answers arrive in an order of their own."""

    inner: Llm
    rng: random.Random
    name: str = "scripted:model"

    async def complete(self, prompt: Prompt) -> Answer:
        await asyncio.sleep(self.rng.random() / 100)
        return await self.inner.complete(prompt)


@pytest.mark.specification("1", "Deterministic: same inputs, same scores")
async def test_the_order_of_arrival_does_not_matter(local_chain: LocalChain, tmp_path: Path) -> None:
    """The same answers in any order give the same ranking and the same trace digest, bit for bit."""
    address = await model_round(local_chain)
    seen = []
    for seed in range(3):
        async with opened(local_chain, tmp_path / str(seed)) as app:
            shuffled = Shuffled(ScriptedLlm(script), random.Random(seed))
            seen.append(await judged(app, address, {"scripted:model": shuffled}))
    assert len({done.digest for done in seen}) == 1
    assert len({done.result.ranking.standings for done in seen if done.result.ranking}) == 1


async def test_a_second_run_asks_for_nothing(local_chain: LocalChain, tmp_path: Path) -> None:
    """Walking again pays for nothing, and every distinct request was paid for once."""
    address = await model_round(local_chain)
    llm = ScriptedLlm(script)
    async with opened(local_chain, tmp_path) as app:
        first = await judged(app, address, {"scripted:model": llm})
        calls = len(llm.seen)
        second = await judged(app, address, {"scripted:model": llm})
        paid = [request for request, _, _ in await app.store.calls_of(first.challenge.run)]
    assert len(llm.seen) == calls == len(paid) == len(set(paid))
    assert second.digest == first.digest


async def test_a_model_trace_is_replayed_without_the_model(local_chain: LocalChain, tmp_path: Path) -> None:
    """Prompts, their hashes, readings and verdicts of a model round are recomputed from the trace alone."""
    address = await model_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await judged(app, address, {"scripted:model": ScriptedLlm(script)})
        path = await write_trace(app, address)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    checked = await check_trace(lines)
    assert checked.digest == done.digest
    assert done.result.typed_by_model == ("reader_friendliness",)
    assert len(checked.result.comparisons) == 20


async def test_a_feature_with_the_name_of_an_estimate_is_checked_exactly(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Only the ranking's own estimates may differ in their last digits, not a fact that is named like one."""
    margin = {"name": "margin", "type": "integer", "min": 0, "max": 1000, "better": "higher", "source": "llm"}
    address = await model_round(local_chain, {**CONFIG, "features": ["max_complexity", margin]})
    async with opened(local_chain, tmp_path) as app:
        await judged(app, address, {"scripted:model": ScriptedLlm(script)})
        lines = (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)

    def nudge(bodies: dict[str, Any]) -> None:
        key = next(k for k in bodies if k.startswith("features/"))
        bodies[key]["features"]["margin"] += 0.01

    await check_trace(lines)
    with pytest.raises(BadTrace, match="features/"):
        await check_trace(forged(lines, nudge))


@pytest.mark.specification("10.1", "Multi-model ensemble?")
async def test_every_vote_of_a_jury_is_recorded(local_chain: LocalChain, tmp_path: Path) -> None:
    """Two judges see each pair in both orders, and the trace and the public keys hold each vote."""
    address = await model_round(local_chain)
    llms: dict[str, Llm] = {name: ScriptedLlm(script, name=name) for name in ("scripted:one", "scripted:two")}
    async with opened(local_chain, tmp_path) as app:
        done = await judged(app, address, llms)
        keys = await app.store.keys(31337, f"challenges:{address}:pairwise:")
        pair = json.loads(await app.store.get(31337, keys[0]) or "")
    assert len(done.result.comparisons) == 40
    assert [vote["judge"] for vote in pair["votes"]] == ["scripted:one", "scripted:two"]
    assert done.result.ranking is not None
    assert {report.judge for report in done.result.ranking.consistency.judges} == set(llms)


def contrary(prompt: Prompt) -> str:
    """Always of the other opinion than `script`."""
    said = script(prompt)
    if prompt.purpose != "comparison":
        return said
    verdict = json.loads(said)
    return json.dumps({**verdict, "winner": {"A": "B", "B": "A", "tie": "tie"}[verdict["winner"]]})


async def test_a_jury_that_disagrees_comes_to_an_end(local_chain: LocalChain, tmp_path: Path) -> None:
    """Two judges of opposite opinions: every vote counts, a split is shown as a tie, and the disagreement is told."""
    address = await model_round(local_chain)
    opposed = {"scripted:one": ScriptedLlm(script, name="scripted:one")}
    llms: dict[str, Llm] = {**opposed, "scripted:two": ScriptedLlm(contrary, name="scripted:two")}
    async with opened(local_chain, tmp_path) as app:
        done = await judged(app, address, llms)
        shown = [json.loads(text) for _, text in await app.store.items(31337, f"challenges:{address}:pairwise:")]
        lines = (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)
    assert {document["winner"] for document in shown} == {"tie"}
    assert "The judges disagree." in {document["reason"] for document in shown}
    assert done.result.ranking is not None
    assert "disagreement" in {flag.code for flag in done.result.flags}
    assert (await check_trace(lines)).digest == done.digest


def refusing(share: int) -> Callable[[Prompt], str | Answer]:
    def answer(prompt: Prompt) -> str | Answer:
        number = int(keccak_hex(prompt.user[:400].encode())[2:6], 16)
        if prompt.purpose == "comparison" and number % 100 < share:
            return answer_of("I would rather not.", stop="refusal")
        return script(prompt)

    return answer


async def test_a_refused_game_is_nobodys_loss(local_chain: LocalChain, tmp_path: Path) -> None:
    """Games the judge refuses are undecided with their reason, and the round is complete without them."""
    address = await model_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await judged(app, address, {"scripted:model": ScriptedLlm(refusing(50))})
    undecided = [c for c in done.result.comparisons if c.winner is None]
    assert 0 < len(undecided) < 20
    assert all("refused" in c.reason for c in undecided)
    assert done.result.ranking is not None
    assert done.result.ranking.results == 20 - len(undecided)
    assert "undecided" in {flag.code for flag in done.result.flags}


@dataclass
class Down:
    """A provider that never answers."""

    name: str = "scripted:model"

    async def complete(self, prompt: Prompt) -> Answer:
        raise Temporary("The provider is down.")


async def test_an_outage_is_no_verdict_about_anybody(local_chain: LocalChain, tmp_path: Path) -> None:
    """With the model down the walk stops as temporary, and going on later ends well."""
    address = await model_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(Temporary):
            await judged(app, address, {"scripted:model": Down()})
        status = await read_status(app.store, 31337, address)
        assert status is not None
        assert status["status"] == "pending"
        done = await judged(app, address, {"scripted:model": ScriptedLlm(script)})
    assert done.result.ranking is not None
    assert done.result.ranking.results == 20


async def test_a_finished_run_keeps_its_unanswered_games(local_chain: LocalChain, tmp_path: Path) -> None:
    """A game nobody answered stays undecided on every later walk, also when the model could answer it then."""
    address = await model_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        first = await judged(app, address, {"scripted:model": Dropping()})
        well = ScriptedLlm(script)
        second = await judged(app, address, {"scripted:model": well})
        lines = (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)
    assert 0 < len(first.result.unanswered) < 10
    assert well.seen == []
    assert second.digest == first.digest == (await check_trace(lines)).digest


async def test_the_next_model_reads_where_the_first_is_down(local_chain: LocalChain, tmp_path: Path) -> None:
    """A jury whose first model is out of reach still reads everything, under the name of who really answered."""
    address = await model_round(local_chain)
    llms: dict[str, Llm] = {
        "scripted:down": Down("scripted:down"),
        "scripted:up": ScriptedLlm(script, name="scripted:up"),
    }
    async with opened(local_chain, tmp_path) as app:
        done = await judged(app, address, llms)
        path = await write_trace(app, address)
    assert {paid.llm for paid in done.result.answers.values()} == {"scripted:up"}
    checked = await check_trace(path.read_text(encoding="utf-8").splitlines(keepends=True))
    assert checked.digest == done.digest


def boasting(prompt: Prompt) -> str:
    """Two of five have the best value, the others a poor one; who claims more wins."""
    if prompt.purpose != "features":
        first, second = (int(str(vector["code_correctness"])) for vector in shown_vectors(prompt))
        winner = "tie" if first == second else "A" if first > second else "B"
        return json.dumps({"winner": winner, "confidence": 0.9, "reason": "by the facts"})
    task = Task.of(prompt)
    best = any(word in task.data for word in BOASTERS)
    return json.dumps(task.answer(lambda name, kind: (4 if best else 1) if name == "code_correctness" else 2))


async def test_who_is_paid_for_claims_that_the_field_cannot_tell_apart_is_told(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Two of five claim the best of the only scale: neither is flagged, the round says so, and only the doubt waits."""
    address = await model_round(local_chain, CONFIG | {"features": ["code_correctness"]})
    async with opened(local_chain, tmp_path) as app:
        done = await judged(app, address, {"scripted:model": ScriptedLlm(boasting)}, dry_run=False)
        status = await read_status(app.store, 31337, address)
    told = [flag for flag in done.result.flags if flag.code == "paid_for_claims"]
    assert [(flag.severity, flag.account, flag.evidence["entries"]) for flag in told] == [("warn", None, 2)]
    assert {flag.severity for facts in done.result.features.values() for flag in facts.flags} == {"info"}
    assert done.review is not None
    assert all("is expected at wrong addresses" in reason for reason in done.review.reasons)
    assert (status["status"] if status else None) == "review"


async def test_a_round_of_orders_of_four_is_replayed_bit_for_bit(local_chain: LocalChain, tmp_path: Path) -> None:
    """The schedule fours asks for orders and pairs; its trace alone gives the same questions, ranking and digest, and a
    forged order is found.
    """
    address = await model_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        scripted = replace(app, models=ScriptedModels(app, {"scripted:model": ScriptedLlm(in_fours)}))
        plan = EvaluationPlan(("scripted:model",), schedule="fours", max_games=11)
        done = await evaluate(scripted, address, EvaluationRequest(plan=plan, dry_run=True))
        lines = (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)
    assert done.result.schedule == "fours"
    assert done.result.ranking is not None
    assert done.result.ranking.ordered_by == "elo without repeats"
    assert 4 in {len(comparison.group) for comparison in done.result.comparisons}
    assert len({comparison.requests for comparison in done.result.comparisons}) <= 11
    checked = await check_trace(lines)
    assert checked.digest == done.digest

    def turn(bodies: dict[str, Any]) -> None:
        key = next(k for k, v in bodies.items() if k.startswith("answer/") and '"order"' in v["answer"]["text"])
        text = json.loads(bodies[key]["answer"]["text"])
        bodies[key]["answer"]["text"] = json.dumps({**text, "order": text["order"][::-1]})

    with pytest.raises(BadTrace):
        await check_trace(forged(lines, turn))
