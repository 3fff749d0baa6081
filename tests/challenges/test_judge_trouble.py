"""A judge's bad minute over real HTTP: the round waits, nothing useless is kept, and the healed judge decides."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.fake_endpoint import FakeEndpoint, Fault, Seen
from tests.support.model_rounds import CONFIG, model_round, script
from tests.support.rounds import opened
from tests.support.thinking import prompt_of
from tests.support.verifiers import node_refusals

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import App
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.replay import check_trace
from clara_eval.challenges.status import Attempts, save_attempts
from clara_eval.core.address import Address
from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.judge.costs.budgets import LEAST_WASTE
from clara_eval.judge.retrying_llm import CONTROL, RetryPolicy

CLAIMED = {**CONFIG, "features": ["code_correctness", "novelty", "reader_friendliness"]}
ENDS = {
    "filter before the model": Fault("status", 400, message="content_filter: the prompt was flagged"),
    "refusal": Fault("refusal", text="I cannot help with that."),
    "too large": Fault("status", 413, message="request entity too large"),
    "cut": Fault("max_tokens", text='{"winner"'),
}


def words(seen: Seen) -> str:
    prompt = prompt_of(seen)
    if prompt.user == CONTROL:
        return json.dumps(dict.fromkeys(seen.schema["required"]))
    return script(prompt)


@dataclass
class Bench:
    app: App
    address: Address
    endpoint: FakeEndpoint

    async def judged(self) -> Evaluation:
        return await evaluate(self.app, self.address, EvaluationRequest(dry_run=True))


@asynccontextmanager
async def bench(chain: LocalChain, place: Path, say: Callable[[Seen], str] = words) -> AsyncIterator[Bench]:
    """A round of five entries, judged by an endpoint with a price."""
    address = await model_round(chain, CLAIMED)
    async with FakeEndpoint(words=say).running() as endpoint:
        judge = f"openai:m@{endpoint.url}"
        async with opened(chain, place, judges_as_set=judge, prices=f"{judge}=1/10") as app:
            app.models.patience = RetryPolicy(tries=2, first_pause_seconds=0.01, most_probes=1)
            yield Bench(app, address, endpoint)


async def holds(table: Bench, done: Evaluation) -> None:
    """Both verifiers accept the trace."""
    path = await write_trace(table.app, table.address)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert (await check_trace(lines)).digest == done.digest
    assert node_refusals({"trace": lines}, path.parent) == {"trace": ""}


@pytest.mark.parametrize("stage", ["features", "comparison"])
@pytest.mark.parametrize("end", ENDS)
async def test_what_every_question_meets_is_waited_for(
    local_chain: LocalChain, tmp_path: Path, end: str, stage: str
) -> None:
    """A judge that ends every question of a stage without an answer ends no round: once it is well, all are judged."""
    async with bench(local_chain, tmp_path) as table:
        table.endpoint.script = lambda seen: ENDS[end] if prompt_of(seen).purpose == stage else None
        with pytest.raises(Temporary):
            await table.judged()
        table.endpoint.script = None
        done = await table.judged()
        await holds(table, done)
    assert all(comparison.winner is not None for comparison in done.result.comparisons)
    assert not {"unevaluable", "unread", "undecided", "unjudged"} & {flag.code for flag in done.result.flags}


@pytest.mark.parametrize("stage", ["features", "comparison"])
async def test_questions_that_are_refused_while_others_are_not_are_asked_again(
    local_chain: LocalChain, tmp_path: Path, stage: str
) -> None:
    """A filter that takes a question about nothing, and none of the round's own, is the judge's trouble as well."""
    async with bench(local_chain, tmp_path) as table:
        table.endpoint.script = lambda seen: (
            ENDS["refusal"] if prompt_of(seen).purpose == stage and prompt_of(seen).user != CONTROL else None
        )
        with pytest.raises(Temporary, match=r"No submission could be read|comparisons have no verdict"):
            await table.judged()
        table.endpoint.script = None
        done = await table.judged()
        await holds(table, done)
    assert all(comparison.winner is not None for comparison in done.result.comparisons)


async def test_json_among_words_is_read_and_asked_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """An endpoint that wraps its JSON in words and a fence judges a round, without one request sent twice."""
    wrapped = lambda seen: f"Sure, here it is:\n```\n{words(seen)}\n```\nI hope this helps."  # noqa: E731
    async with bench(local_chain, tmp_path, wrapped) as table:
        done = await table.judged()
        await holds(table, done)
    assert max(table.endpoint.paid_by_text.values()) == 1
    assert all(comparison.winner is not None for comparison in done.result.comparisons)


async def test_waste_stops_at_a_multiple_of_the_estimate(local_chain: LocalChain, tmp_path: Path) -> None:
    """An endpoint whose answers are never usable is paid up to a bound over all attempts, and the reason says why."""
    async with bench(local_chain, tmp_path, lambda _seen: "No idea. " * 20_000) as table:
        reason, attempts = "", 0
        while "Answers that cannot be used cost" not in reason and attempts < 6:
            with pytest.raises(Temporary) as ended:
                await table.judged()
            reason, attempts = str(ended.value), attempts + 1
        asked = len(table.endpoint.seen)
        with pytest.raises(Temporary, match="Answers that cannot be used cost"):
            await table.judged()
        assert len(table.endpoint.seen) == asked, "nothing more is paid"
        lost = await table.app.store.unsure_of(f"{table.app.chain_id}:{table.address}")
    assert "CLARA_JUDGES" in reason
    assert lost <= 4 * LEAST_WASTE
    assert max(Counter(seen.text for seen in table.endpoint.seen).values()) < 6


async def test_other_judges_take_over_a_stuck_round(local_chain: LocalChain, tmp_path: Path) -> None:
    """After a failed attempt the judges that are set now are asked; a round that did not fail keeps its own."""
    async with bench(local_chain, tmp_path) as table:
        table.endpoint.script = lambda _seen: Fault("status", 500)
        with pytest.raises(Temporary):
            await table.judged()
        asked = len(table.endpoint.seen)
        await save_attempts(table.app.store, table.app.chain_id, table.address, Attempts(2, failures=1))
    async with FakeEndpoint(words=words).running() as healthy:
        judge = f"openai:m@{healthy.url}"
        async with opened(local_chain, tmp_path, judges_as_set=judge, prices=f"{judge}=1/10") as app:
            again = Bench(app, table.address, healthy)
            done = await again.judged()
            await holds(again, done)
    assert len(table.endpoint.seen) == asked
    assert {comparison.judge for comparison in done.result.comparisons} == {judge}


async def test_a_judge_without_a_price_is_told_before_anything_is_read(local_chain: LocalChain, tmp_path: Path) -> None:
    """With a budget, a model whose price is unknown is asked nothing, and the reason has the setting."""
    async with bench(local_chain, tmp_path) as table:
        table.app.models.settings = table.app.settings.model_copy(update={"prices": ""})
        with pytest.raises(ConfigError, match="no known price"):
            await table.judged()
    assert not table.endpoint.seen
