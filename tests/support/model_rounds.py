"""Set-up shared by tests: what test_models.py and others use."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.support.scripted_llm import (
    ScriptedLlm,
    honest_reader,
)

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import App
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.model_pool import ModelPool, PaidRound, RunModels
from clara_eval.config.eval_config import EvalConfig, config_hash
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.round import data_uri, entry
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain, PostedTerms
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge.attestation import KeyReport
from clara_eval.judge.costs.budgets import FREE, RunBudget
from clara_eval.judge.port import Answer, Llm, Prompt
from clara_eval.judge.retrying_llm import RetryingLlm, RetryPolicy
from clara_eval.judge.structured_llm import CachedLlm

CONFIG = {
    "version": 1,
    "features": ["code_correctness", "novelty", "max_complexity", "reader_friendliness"],
    "criteria": "The best rate limiter is correct for every input, simple to follow, and goes beyond the usual ways.",
    "language": "python",
}


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


async def no_report(judge: str, key: str, _run: str) -> KeyReport:
    raise AssertionError(f"{judge} signs nothing, so it has no key {key}")


class ScriptedModels(ModelPool):
    """Opens given models behind the real calling layer and the real store."""

    def __init__(self, app: App, llms: dict[str, Llm]) -> None:
        super().__init__(app.settings, app.store)
        self.llms = llms
        self.patience = RetryPolicy(tries=2, first_pause_seconds=0.01, most_probes=1)

    def affordable(self, _challenge: PaidRound, _config: EvalConfig, plan: EvaluationPlan) -> EvaluationPlan:
        return plan

    @asynccontextmanager
    async def open_run(
        self, challenge: PaidRound, config: EvalConfig, plan: EvaluationPlan, seconds: float
    ) -> AsyncIterator[RunModels]:
        budget = RunBudget(None)
        lines = {
            name: CachedLlm(RetryingLlm(self.llms[name], budget, FREE, self.patience), self.store, challenge.run)
            for name in plan.models
        }
        yield RunModels(lines, budget, challenge.run, no_report, None)


async def judged(
    app: App, address: Address, llms: dict[str, Llm], *, dry_run: bool = True, in_turn: bool = False
) -> Evaluation:
    plan = EvaluationPlan(tuple(llms), jury="in-turn" if in_turn else None)
    request = EvaluationRequest(plan=plan, dry_run=dry_run)
    return await evaluate(replace(app, models=ScriptedModels(app, llms)), address, request)


@dataclass
class Dropping:
    """A provider that loses some games, always the same ones."""

    name: str = "scripted:model"

    async def complete(self, prompt: Prompt) -> Answer:
        if prompt.purpose == "comparison" and int(keccak_hex(prompt.user.encode())[2:6], 16) % 9 == 0:
            raise Temporary("The line was cut.")
        return await ScriptedLlm(script).complete(prompt)


def in_fours(prompt: Prompt) -> str:
    """The same model, that also puts four in order: by a hash of each vector, so that its order is one of its own."""
    if "SOLUTION D FEATURES" not in prompt.user:
        return script(prompt)
    shown = [line for line in prompt.user.splitlines() if line.startswith("{")]
    order = sorted(range(4), key=lambda place: keccak_hex(shown[place].encode()))
    return json.dumps({"order": ["ABCD"[place] for place in order], "reason": "by the facts"})
