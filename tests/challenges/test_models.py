"""Rounds judged by models: the order of arrival does not matter, nothing is paid twice, outages are no verdicts."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.forged_trace import forged
from tests.support.rounds import opened
from tests.support.scripted_llm import (
    ScriptedLlm,
    Task,
    answer_of,
    honest_reader,
    shown_vectors,
)

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import App
from clara_eval.chain.model import Challenge
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.replay import check_trace
from clara_eval.challenges.status import read_status
from clara_eval.config.eval_config import EvalConfig, config_hash
from clara_eval.core.address import Address
from clara_eval.core.errors import BadTrace, Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.demo.round import data_uri, entry
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain, PostedTerms
from clara_eval.evaluation.plan import EvaluationPlan
from clara_eval.judge.attestation import KeyReport
from clara_eval.judge.cached_llm import CachedLlm, FallbackLlm
from clara_eval.judge.costs.prices import FREE
from clara_eval.judge.costs.run_budget import RunBudget
from clara_eval.judge.port import Answer, Asker, Llm, Prompt
from clara_eval.judge.retry import RetryPolicy

CONFIG = {
    "version": 1,
    "features": ["code_correctness", "novelty", "max_complexity", "reader_friendliness"],
    "criteria": "The best rate limiter is correct for every input, simple to follow, and goes beyond the usual ways.",
    "language": "python",
}
BOASTERS = ("deque(", "monotonic")
NAMES = ("deque_window", "ring_buffer", "sliding_log", "token_bucket", "list_filter")


async def model_round(chain: LocalChain, config: dict[str, Any] | None = None) -> Address:
    """A closed round whose config needs a model: bare names, one of them in no catalogue."""
    text = json.dumps(config or CONFIG)
    described = json.dumps({"title": "t", "problemStatement": "p", "evalConfig": text})
    metadata = data_uri(described.encode(), "application/json")
    terms = PostedTerms(challenge_uri=metadata, eval_config_hash=config_hash(text.encode()), open_seconds=HOUR)
    address = await chain.post_challenge(replace(terms, prize_pool=500_000_000))
    handed = []
    for number, name in enumerate(NAMES):
        content = entry(name).encode()
        handed.append(Handed(chain.agents[number], data_uri(content), keccak_hex(content)))
    await chain.submit_all(address, handed)
    await chain.move_time(HOUR + 1)
    return address


def script(prompt: Prompt) -> str:
    """Types names, reads honestly, and judges by a hash of what it is shown: any fixed opinion will do."""
    if prompt.purpose == "schema":
        typed = {"name": "reader_friendliness", "type": "integer", "min": 0, "max": 4, "values": [], "better": "higher"}
        return json.dumps({"features": [{**typed, "description": "How friendly it is to its readers."}]})
    if prompt.purpose == "features":
        return honest_reader(prompt)
    winner = ("A", "B", "tie")[int(keccak_hex(prompt.user.encode())[2:6], 16) % 3]
    return json.dumps({"winner": winner, "confidence": 0.7, "reason": "by the facts"})


@dataclass
class Shuffled:
    """A model whose answers arrive in an order of their own."""

    inner: Llm
    rng: random.Random
    name: str = "scripted:model"

    async def complete(self, prompt: Prompt) -> Answer:
        await asyncio.sleep(self.rng.random() / 100)
        return await self.inner.complete(prompt)


@dataclass
class Askers:
    lines: dict[str, CachedLlm]
    estimate_usd: float | None = None

    def asker(self, name: str) -> Asker:
        return self.lines[name]

    def reader(self, names: Sequence[str]) -> Asker:
        lines = [self.lines[name] for name in names]
        return lines[0] if len(lines) == 1 else FallbackLlm(lines)

    async def key_report(self, judge: str, key: str) -> KeyReport:
        raise AssertionError(f"{judge} signs nothing, so it has no key {key}")

    def meter(self) -> tuple[int, float]:
        return sum(line.answered for line in self.lines.values()), 0.0


@dataclass
class ScriptedModels:
    """Opens given models behind the real calling layer and the real store."""

    app: App
    llms: dict[str, Llm]
    patience: RetryPolicy = field(default_factory=lambda: RetryPolicy(tries=2, first_pause_seconds=0.01, most_probes=1))

    def affordable(self, _challenge: Challenge, _config: EvalConfig, plan: EvaluationPlan) -> EvaluationPlan:
        return plan

    @asynccontextmanager
    async def open_run(
        self, challenge: Challenge, config: EvalConfig, plan: EvaluationPlan, seconds: float
    ) -> AsyncIterator[Askers]:
        yield Askers(
            {
                name: CachedLlm(
                    self.llms[name],
                    self.app.store,
                    run=challenge.run,
                    budget=RunBudget(None),
                    card=FREE,
                    policy=self.patience,
                )
                for name in plan.models
            }
        )


async def judged(app: App, address: Address, llms: dict[str, Llm], *, dry_run: bool = True) -> Evaluation:
    ports = replace(app.ports, models=ScriptedModels(app, llms))
    request = EvaluationRequest(plan=EvaluationPlan(tuple(llms)), dry_run=dry_run)
    return await evaluate(replace(app, ports=ports), address, request)


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


async def test_a_second_walk_asks_for_nothing(local_chain: LocalChain, tmp_path: Path) -> None:
    """Walking again pays for nothing, and every distinct request was paid for once."""
    address = await model_round(local_chain)
    llm = ScriptedLlm(script)
    async with opened(local_chain, tmp_path) as app:
        first = await judged(app, address, {"scripted:model": llm})
        calls = len(llm.seen)
        second = await judged(app, address, {"scripted:model": llm})
        paid = [answer.request async for answer in app.store.answers_of(first.challenge.run)]
    assert len(llm.seen) == calls == len(paid) == len(set(paid))
    assert second.digest == first.digest


async def test_a_model_trace_is_walked_again_without_the_model(local_chain: LocalChain, tmp_path: Path) -> None:
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
    assert "disagreement" in {flag.code for flag in done.result.ranking.flags}
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


@dataclass
class Dropping:
    """A provider that loses some games, always the same ones."""

    name: str = "scripted:model"

    async def complete(self, prompt: Prompt) -> Answer:
        if prompt.purpose == "comparison" and int(keccak_hex(prompt.user.encode())[2:6], 16) % 9 == 0:
            raise Temporary("The line was cut.")
        return await ScriptedLlm(script).complete(prompt)


async def test_a_finished_walk_keeps_its_unanswered_games(local_chain: LocalChain, tmp_path: Path) -> None:
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


def in_fours(prompt: Prompt) -> str:
    """The same model, that also puts four in order: by a hash of each vector, so that its order is one of its own."""
    if "SOLUTION D FEATURES" not in prompt.user:
        return script(prompt)
    shown = [line for line in prompt.user.splitlines() if line.startswith("{")]
    order = sorted(range(4), key=lambda place: keccak_hex(shown[place].encode()))
    return json.dumps({"order": ["ABCD"[place] for place in order], "reason": "by the facts"})


async def test_a_round_of_orders_of_four_is_replayed_bit_for_bit(local_chain: LocalChain, tmp_path: Path) -> None:
    """The schedule fours asks for orders and pairs; its trace alone gives the same questions, ranking and digest, and a
    forged order is found.
    """
    address = await model_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        ports = replace(app.ports, models=ScriptedModels(app, {"scripted:model": ScriptedLlm(in_fours)}))
        plan = EvaluationPlan(("scripted:model",), schedule="fours", max_games=11)
        done = await evaluate(replace(app, ports=ports), address, EvaluationRequest(plan=plan, dry_run=True))
        lines = (await write_trace(app, address)).read_text(encoding="utf-8").splitlines(keepends=True)
    assert done.result.schedule == "fours"
    assert done.result.ranking is not None
    assert done.result.ranking.ordered_by == "elo"
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
