"""Rounds judged by models that think before they answer: the right winners, every token counted, no entry thrown out."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_endpoint import Seen
from tests.support.forged_trace import forged
from tests.support.model_rounds import CONFIG, NAMES, model_round, script
from tests.support.model_rounds import judged as judged_by_old_plan
from tests.support.rounds import opened
from tests.support.scripted_llm import ScriptedLlm, answer_of, shown_vectors, verdict_text
from tests.support.thinking import prompt_of
from tests.support.thinking_endpoint import ThinkingEndpoint
from tests.support.verifiers import node_refusals

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.replay import Checked, check_trace
from clara_eval.config.eval_config import parse_eval_config
from clara_eval.core.address import Address
from clara_eval.core.errors import BadTrace, Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.demo.round import entry
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge.costs.budgets import PriceCard
from clara_eval.judge.port import Answer, Prompt
from clara_eval.judge.providers.anthropic import AnthropicLlm
from clara_eval.judge.reading import TokenLimits
from clara_eval.judge.retrying_llm import CONTROL

CLAIMED = {**CONFIG, "features": ["code_correctness", "novelty", "reader_friendliness"]}
VERIFIER = Path(__file__).parents[2] / "verifier" / "verify.mjs"
CARD = PriceCard(1_000_000, 10_000_000, 1_000_000, 1_000_000)
CAP = 25_000_000
CLAUDE = "anthropic:claude-opus-5"


def words(seen: Seen) -> str:
    """Reads honestly, and judges by a number that each vector has for itself: who is better than whom is one order."""
    prompt = prompt_of(seen)
    if prompt.user == CONTROL:
        return "{}"
    if prompt.purpose != "comparison":
        return script(prompt)
    first, second = (keccak_hex(json.dumps(vector, sort_keys=True).encode()) for vector in shown_vectors(prompt))
    return verdict_text("A" if first > second else "B", 0.8)


def always(tokens: int) -> Callable[[Seen], int]:
    return lambda _seen: tokens


def about(marker: str, tokens: int) -> Callable[[Seen], int]:
    """Thinks long about one entry, and a little about everything else."""
    return lambda seen: tokens if marker in seen.text else 200


@dataclass(frozen=True)
class Judged:
    done: Evaluation
    checked: Checked
    settled: int
    quoted: int | None
    most: int
    plan: EvaluationPlan
    endpoint: ThinkingEndpoint
    lines: list[str]

    @property
    def places(self) -> list[Address]:
        return [place.account for place in self.done.result.placed]

    @property
    def limits(self) -> set[int]:
        return {seen.body.get("max_completion_tokens") or seen.body["max_tokens"] for seen in self.endpoint.seen}


async def judged(
    chain: LocalChain, place: Path, address: Address, endpoint: ThinkingEndpoint, model: str = "m", **changes: Any
) -> Judged:
    """One dry run of a round as the service makes it, checked by both verifiers, with what it cost."""
    place.mkdir()  # noqa: ASYNC240 - a folder of the test
    async with endpoint.running():
        is_claude = model.startswith("anthropic:")
        judge = model if is_claude else f"openai:{model}@{endpoint.url}"
        settings = {"judges_as_set": judge, "prices": f"{judge}=1/10", **changes}
        async with opened(chain, place, **settings) as app:
            if is_claude:
                app.models._llms[judge] = AnthropicLlm(model.partition(":")[2], api_key="k", base_url=endpoint.root)
            done = await evaluate(app, address, EvaluationRequest(dry_run=True))
            path = await write_trace(app, address)
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            checked = await check_trace(lines)
            (line, *more) = await app.store.spends()
            config = parse_eval_config(done.result.given.metadata.config_bytes)
            quoted = app.models.run_quote(done.challenge, config, checked.plan)
    assert checked.digest == done.digest
    assert "holds" in await by_node(path)
    assert line.settled_micro_usd is not None
    settled = line.settled_micro_usd + sum(other.settled_micro_usd or 0 for other in more)
    return Judged(
        done, checked, settled, quoted.models_micro_usd, quoted.most_micro_usd or 0, checked.plan, endpoint, lines
    )


async def by_node(path: Path) -> str:
    """What the independent verifier says."""
    node = await asyncio.create_subprocess_exec("node", VERIFIER, path, stdout=PIPE)
    said, _ = await node.communicate()
    return said.decode()


def billed(endpoint: ThinkingEndpoint) -> int:
    """What the provider charges for all that it answered."""
    return sum(CARD.price(*tokens) for tokens in endpoint.charged)


SHAPES = {
    "openai": ("gpt-6-luna", ("temperature", "max_tokens")),
    "anthropic": (CLAUDE, ()),
    "unknown": ("some-model", ()),
}
MANNERS = {
    "inside, all": (always(900), True),
    "inside, all, beyond the first limit": (always(5_500), True),
    "inside, one entry": (about("forget_idle", 9_000), True),
    "outside, all": (always(2_000), False),
    "outside, one entry": (about("forget_idle", 9_000), False),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_models_that_think_find_the_same_winners(local_chain: LocalChain, tmp_path: Path, shape: str) -> None:
    """Whether a limit counts thinking or not, for all or for one entry: the places of a model that does not think."""
    assert "forget_idle" in entry(NAMES[0])
    address = await model_round(local_chain, CLAIMED)
    model, refuses = SHAPES[shape]
    plain = await judged(local_chain, tmp_path / "plain", address, ThinkingEndpoint(always(0), words=words), "m")
    assert plain.plan.tokens == TokenLimits(0, 16_384)
    for number, (think, inside) in enumerate(MANNERS.values()):
        endpoint = ThinkingEndpoint(think, words=words, inside=inside, refuses=refuses, where="field")
        found = await judged(local_chain, tmp_path / str(number), address, endpoint, model)
        assert found.places == plain.places
        assert found.done.result.rejected == ()
        assert not {"unread", "unevaluable"} & {flag.code for flag in found.done.result.flags}
        assert found.settled == billed(endpoint) <= found.most
        assert found.settled <= CAP
        assert max(found.limits) <= 16_384
        if shape != "unknown" and number == 0:
            assert found.settled <= (found.quoted or 0)
            assert len({*found.limits}) <= 3, "room for thinking from the first request on: nothing was cut"


@pytest.mark.parametrize("model", ["gpt-6-luna", CLAUDE, "some-model"])
async def test_an_entry_that_is_thought_about_without_end_holds_nobody(
    local_chain: LocalChain, tmp_path: Path, model: str
) -> None:
    """It is not read, which counts as ours and not as its fault; the others keep their order, and the cost is bounded."""
    address = await model_round(local_chain, CLAIMED)
    plain = await judged(local_chain, tmp_path / "plain", address, ThinkingEndpoint(always(0), words=words))
    endpoint = ThinkingEndpoint(about("forget_idle", 10**6), words=words, where="tags")
    found = await judged(local_chain, tmp_path / "bomb", address, endpoint, model)
    bomb = local_chain.agents[0].address
    assert [(r.submission.submitter, r.is_outage) for r in found.done.result.rejected] == [(bomb, True)]
    assert "CLARA_ANSWER_TOKENS" in found.done.result.rejected[0].reason
    assert found.places == [*(account for account in plain.places if account != bomb), bomb]
    assert found.settled == billed(endpoint) <= CAP
    asked = [seen for seen in endpoint.seen if "forget_idle" in seen.text]
    assert len(asked) <= 5, "one view at each limit, and no other attempt"
    assert {flag.severity for flag in found.done.result.flags if flag.code == "unread"} == {"review"}


async def test_a_model_that_never_ends_its_thinking_ranks_nobody(local_chain: LocalChain, tmp_path: Path) -> None:
    """All answers cut at the bound are an outage with its remedy; the next attempt pays for nothing."""
    address = await model_round(local_chain, CLAIMED)
    endpoint = ThinkingEndpoint(always(10**6), words=words)
    async with endpoint.running():
        judge = f"openai:gpt-6-luna@{endpoint.url}"
        async with opened(local_chain, tmp_path, judges_as_set=judge, prices=f"{judge}=1/10") as app:
            for _ in range(2):
                with pytest.raises(Temporary, match="CLARA_ANSWER_TOKENS"):
                    await evaluate(app, address, EvaluationRequest(dry_run=True))
                paid = endpoint.paid
            assert endpoint.paid == paid == len(endpoint.charged)
            lines = await app.store.spends()
    assert sum(line.settled_micro_usd or 0 for line in lines) == billed(endpoint) <= CAP


async def test_a_small_cap_bounds_what_thinking_may_cost(local_chain: LocalChain, tmp_path: Path) -> None:
    """A cap lowers the bound of an answer and the number of games before anything is asked, and is never passed."""
    address = await model_round(local_chain, CLAIMED)
    endpoint = ThinkingEndpoint(about("forget_idle", 10**6), words=words)
    found = await judged(local_chain, tmp_path / "r", address, endpoint, "gpt-6-luna", budget_per_challenge_usd=1.0)
    assert found.plan.tokens == TokenLimits(4_096, 8_192)
    assert found.settled == billed(endpoint) <= 1_000_000


async def test_a_small_context_is_asked_for_the_bare_answer(local_chain: LocalChain, tmp_path: Path) -> None:
    """An endpoint whose context has no place for thinking refuses the room, and is asked without it: nobody is lost."""
    address = await model_round(local_chain, CLAIMED)
    endpoint = ThinkingEndpoint(always(0), words=words, context=4_000)
    found = await judged(local_chain, tmp_path / "r", address, endpoint, "qwen3-8b")
    assert found.done.result.rejected == ()
    assert {400, 4_496} <= found.limits
    assert found.settled == billed(endpoint)


def _without_limits(bodies: dict[str, Any]) -> None:
    del bodies["plan"]["tokens"]


def _other_bound(bodies: dict[str, Any]) -> None:
    bodies["plan"]["tokens"]["most"] = 5_000


def _other_growth(bodies: dict[str, Any]) -> None:
    bodies["plan"]["tokens"]["growth"] = 2


def _only_the_last_request(bodies: dict[str, Any]) -> None:
    bodies["comparison/0000000"]["requests"] = bodies["comparison/0000000"]["requests"][-1:]


def _whole_where_it_was_cut(bodies: dict[str, Any]) -> None:
    one, other = (bodies[f"answer/{request}"]["answer"] for request in bodies["comparison/0000000"]["requests"])
    one.update({"text": other["text"], "stop": "end"})


async def test_a_trace_with_cut_answers_cannot_be_bent(local_chain: LocalChain, tmp_path: Path) -> None:
    """The limits, their growth and the cut answers are part of the evidence: both verifiers refuse another story."""
    address = await model_round(local_chain, CLAIMED)
    endpoint = ThinkingEndpoint(always(5_500), words=words)
    found = await judged(local_chain, tmp_path / "r", address, endpoint, "gpt-6-luna")
    changes = (_without_limits, _other_bound, _other_growth, _only_the_last_request, _whole_where_it_was_cut)
    told = {change.__name__: forged(found.lines, change) for change in changes}
    assert len(told) == len(changes)
    for name, refusal in node_refusals(told, tmp_path).items():
        assert refusal.startswith("wrong"), (name, refusal)
        with pytest.raises(BadTrace):
            await check_trace(told[name])


async def test_a_round_planned_before_limits_grew_is_checked_as_it_was(local_chain: LocalChain, tmp_path: Path) -> None:
    """Its plan has no limits and writes none; a cut answer was asked for again with the same limit, and that holds."""
    address = await model_round(local_chain, CLAIMED)

    def cut_once(prompt: Prompt) -> Answer:
        is_first = prompt.purpose == "comparison" and "Asked again" not in prompt.user
        return answer_of("{", "max_tokens") if is_first else answer_of(script(prompt))

    async with opened(local_chain, tmp_path) as app:
        done = await judged_by_old_plan(app, address, {"scripted:model": ScriptedLlm(cut_once)})
        path = await write_trace(app, address)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    checked = await check_trace(lines)
    assert (checked.digest, checked.plan.tokens) == (done.digest, None)
    assert '"tokens"' not in next(line for line in lines if '"plan"' in line)
    assert {len(one.requests) for one in done.result.comparisons} == {2}
    assert "holds" in await by_node(path)
