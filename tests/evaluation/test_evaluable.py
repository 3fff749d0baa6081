"""No fact, no ranking, and no round that one submission can stop: judged over real HTTP by an endpoint that refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.fake_endpoint import FakeEndpoint, Fault, Script, Seen, words_by_schema
from tests.support.model_rounds import CONFIG, NAMES, judged, model_round, script
from tests.support.rounds import opened
from tests.support.scripted_llm import Task
from tests.support.statuses import read_status

from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.replay import check_trace
from clara_eval.core.errors import CannotPublish, ConfigError
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.demo.round import entry
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.judge.port import Prompt, Purpose
from clara_eval.judge.providers.openai import OpenAiLlm
from clara_eval.judge.retrying_llm import CONTROL

CLAIMED = {**CONFIG, "features": ["code_correctness", "novelty", "reader_friendliness"]}


def prompt_of(seen: Seen) -> Prompt:
    """The prompt behind a chat completion."""
    asked = seen.schema["properties"]
    purpose: Purpose = "comparison" if "winner" in asked else "features" if "check" in asked else "schema"
    texts = {message["role"]: message["content"] for message in seen.body["messages"]}
    return Prompt(purpose, texts["system"], texts["user"], json.dumps(seen.schema), 0, "")


def words(seen: Seen) -> str:
    prompt = prompt_of(seen)
    return words_by_schema(seen) if prompt.user == CONTROL else script(prompt)


def knows_nothing(seen: Seen) -> str:
    prompt = prompt_of(seen)
    if prompt.purpose != "features":
        return words(seen)
    return json.dumps(Task.of(prompt).answer(lambda _name, _kind: None))


def always_equal(seen: Seen) -> str:
    """Reads every submission alike, and would judge by the side."""
    prompt = prompt_of(seen)
    if prompt.purpose == "comparison":
        return json.dumps({"winner": "A", "confidence": 1, "reason": "the first"})
    if prompt.purpose != "features":
        return words(seen)
    return json.dumps(Task.of(prompt).answer(lambda _name, kind: 2 if kind["type"] in ("integer", "number") else None))


def refusing(marker: str, status: int, message: str = "this request cannot be processed") -> Script:
    """Refuses whatever shows this submission, answers everything else."""

    def fault(seen: Seen) -> Fault | None:
        return Fault("status", status, message=message) if marker in seen.text else None

    return fault


async def judged_by(
    chain: LocalChain, place: Path, config: dict[str, object], say: Callable[[Seen], str], fault: Script | None = None
) -> tuple[Evaluation, FakeEndpoint, list[str]]:
    """A round judged by an endpoint; its trace is checked before it is handed back."""
    address = await model_round(chain, config)
    async with opened(chain, place) as app, FakeEndpoint(words=say, script=fault).running() as endpoint:
        llm = OpenAiLlm("m", api_key="k", base_url=endpoint.url)
        try:
            done = await judged(app, address, {llm.name: llm})
            lines = (await write_trace(app, address)).read_text().splitlines(keepends=True)
            assert (await check_trace(lines)).digest == done.digest
        except CannotPublish:
            status = await read_status(app.store, app.chain_id, address) or {}
            assert status["status"] == "failed"
            raise
        finally:
            await llm.close()
    return done, endpoint, [flag.code for flag in done.result.flags]


@pytest.mark.parametrize("status", [400, 413, 422, 500])
@pytest.mark.parametrize("config", [CLAIMED, CONFIG], ids=["claimed", "measured"])
async def test_a_refused_submission_does_not_stop_the_round(
    local_chain: LocalChain, tmp_path: Path, status: int, config: dict[str, object]
) -> None:
    """What the provider refuses for one submission alone is that submission's own: the others are ranked."""
    assert "forget_idle" in entry(NAMES[0])
    done, endpoint, flags = await judged_by(local_chain, tmp_path, config, words, refusing("forget_idle", status))
    assert endpoint.paid > 0
    refused = local_chain.agents[0].address
    assert "unevaluable" in flags
    ranked = [standing.item for standing in done.result.ranking.standings] if done.result.ranking else []
    if config is CLAIMED:
        assert [(r.submission.submitter, r.code) for r in done.result.rejected] == [(refused, "unevaluable")]
        assert len(ranked) == len(NAMES) - 1
        assert done.result.placed[-1].account == refused
    else:
        assert len(ranked) == len(NAMES)


async def test_a_judge_that_takes_no_request_is_a_setting_and_no_verdict(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Where every request is refused, the control is too: the model is set up wrongly, and nobody is unevaluable."""
    with pytest.raises(ConfigError, match="refuses the request"):
        await judged_by(local_chain, tmp_path, CLAIMED, words, lambda _: Fault("status", 422, message="no such field"))


async def test_a_field_of_unknowns_is_failed(local_chain: LocalChain, tmp_path: Path) -> None:
    """A reader that knows nothing about anybody leaves nothing to rank: no question to a judge, no result."""
    asked: list[str] = []

    def say(seen: Seen) -> str:
        asked.append(prompt_of(seen).purpose)
        return knows_nothing(seen)

    with pytest.raises(CannotPublish, match="gave no facts to compare"):
        await judged_by(local_chain, tmp_path, CLAIMED, say)
    assert "comparison" not in asked


async def test_equal_facts_are_a_tie_that_nobody_is_asked_about(local_chain: LocalChain, tmp_path: Path) -> None:
    """Identical vectors tie without a question, so a judge that prefers a side decides nothing: the earliest wins."""
    done, endpoint, _ = await judged_by(local_chain, tmp_path, CLAIMED, always_equal)
    assert not any("winner" in seen.schema.get("properties", {}) for seen in endpoint.seen)
    assert {(c.winner, c.requests) for c in done.result.comparisons} == {("tie", ())}
    in_time = sorted(done.challenge.submissions, key=lambda s: (s.submitted_at, s.submitter))
    assert [p.account for p in done.result.placed] == [s.submitter for s in in_time]


async def test_what_only_offends_our_taste_is_evaluated(local_chain: LocalChain, tmp_path: Path) -> None:
    """A posted config that our linter would have refused is judged to its end, and the trace tells what was changed."""
    odd = {
        "version": 1,
        "features": ["gasUsage", "Code quality", "可读性"],
        "criteria": "As https://example.com says, for 0x" + "ab" * 20,
        "language": "",
        "rubric": {"anything": 1},
    }
    done, _, _ = await judged_by(local_chain, tmp_path, odd, words)
    assert done.result.schema.names == ("gas_usage", "code_quality", "feature_3")
    told = {(one.path, one.taken) for one in done.result.given.metadata.adapted}
    assert {
        ("$.features[0]", "gas_usage"),
        ("$.features[2]", "feature_3"),
        ("$.language", ""),
        ("$.rubric", ""),
    } <= told
    assert done.result.ranking is not None
