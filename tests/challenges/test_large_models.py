"""A large round of models: what a walk holds does not follow what the models said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.evidence import peak
from tests.support.large_round import large_challenge, no_listener, round_of_large, trace_entries
from tests.support.scripted_llm import honest_reader

from clara_eval.challenges.replay import check_trace
from clara_eval.core.hashing import keccak_hex
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.evaluation.run import evaluate_round
from clara_eval.evaluation.sources import LiveSources
from clara_eval.evaluation.trace import Journal, KeptAnswers
from clara_eval.harness import Machine
from clara_eval.judge import structured_llm
from clara_eval.judge.attestation import KeyReport
from clara_eval.judge.costs.budgets import FREE, RunBudget
from clara_eval.judge.port import Answer, Asker, PaidAnswer, Prompt, Signed
from clara_eval.judge.retrying_llm import RetryingLlm
from clara_eval.judge.structured_llm import CachedLlm
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.sqlite import SqliteStore
from clara_eval.store.trace_archive import drafted
from clara_eval.submissions.model import Fetched, read_data_uri

CHALLENGE = large_challenge(24, by_models=True)
PLAN = EvaluationPlan(("scripted:talker",), "both")
LONG = "because of what the facts say about it, " * 1600


@dataclass
class Talker:
    """Reads honestly, judges by a hash of what it is shown, and mostly says why in more letters than are read."""

    name: str = "scripted:talker"
    calls: int = 0

    async def complete(self, prompt: Prompt) -> Answer:
        self.calls += 1
        if prompt.purpose == "features":
            return Answer(honest_reader(prompt), "talker", "end", 1, 1)
        drawn = int(keccak_hex(prompt.user.encode())[2:6], 16)
        winner, why = "AB"[drawn % 2], LONG if drawn % 10 else "so it is"
        said = json.dumps({"winner": winner, "confidence": 0.7, "reason": f"{winner} {self.calls} {why}"})
        return Answer(said, "talker", "end", 1, 1)


class Inline:
    """Everything is in its URI."""

    async def fetch(self, uri: str) -> Fetched:
        return read_data_uri(uri, len(uri))


@dataclass
class OneModel:
    line: Asker

    def reader(self, _names: Sequence[str]) -> Asker:
        return self.line

    async def key_report(self, judge: str, key: str) -> KeyReport:
        raise AssertionError(f"{judge} signs nothing, so it has no key {key}")


async def walked(store: SqlStore, llm: Talker) -> EvaluationResult:
    """One walk as the service makes it, on the journal and the answers of this store."""
    line = CachedLlm(RetryingLlm(llm, RunBudget(None), FREE), store, CHALLENGE.run)
    sources = LiveSources(Journal(store, CHALLENGE.run), Inline(), OneModel(line), Machine(), gives_up=True)
    return await evaluate_round(round_of_large(CHALLENGE), PLAN, sources, no_listener)


async def test_a_round_of_models_holds_a_fraction_of_what_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first walk, one from the journal alone, the trace and its verification: none holds the answers at once."""
    monkeypatch.setattr(structured_llm, "READ_AT_ONCE", 20)
    store, llm, path = await SqliteStore.open(tmp_path / "store.db"), Talker(), tmp_path / "trace.json"
    await walked(store, Talker("scripted:warm"))  # what is loaded once counts for nobody
    with peak() as asking:
        first = await walked(store, llm)
    asked = llm.calls
    with peak() as going_on:
        again = await walked(store, llm)
    with (
        peak() as writing,
        path.open("w", encoding="utf-8", newline="\n") as file,
        drafted(trace_entries(CHALLENGE, PLAN, again)) as draft,
    ):
        file.writelines(draft.pieces())
    with drafted(trace_entries(CHALLENGE, PLAN, first)) as before:
        assert before.digest == draft.digest
    del first, again
    with peak() as checking, path.open(encoding="utf-8", newline="\n") as lines:
        checked = await check_trace(lines)
    await store.close()
    size = path.stat().st_size
    assert llm.calls == asked > 300
    assert size > 15_000_000
    assert checked.digest == draft.digest
    assert [(one.judge, one.answers, one.signed) for one in checked.judges] == [("scripted:talker", asked, 0)]
    measured = {"asking": asking, "going on": going_on, "writing": writing, "checking": checking}
    under_way = 3 * 64 * len(LONG)  # so many questions at once, each answer as it came and as it is written
    assert asking[0] < under_way < size, (measured, size)
    assert max(going_on[0], checking[0]) < size / 4, (measured, size)
    assert writing[0] < size / 12, (measured, size)


def test_a_kept_answer_is_read_back_as_it_was_said() -> None:
    """Whatever stands in it, a signature and half a surrogate pair too; a request asked twice has its first answer."""
    signed = Signed("near", "0xkey", "e30=", "e30=", '{"proof":"\u2028"}')
    said = [
        PaidAnswer(f"0x{number:064x}", "run", "openai:x", "comparison", answer, cost)
        for number, (answer, cost) in enumerate(
            [
                (Answer('{"a":"\\ud800 ü\n"}', "m", "end", 1, 2, 3, 4), None),
                (Answer("", "m", "refusal", 0, 0), 0),
                (Answer("x", "m", "max_tokens", 2**53 - 1, 0, signed=signed), 2**40),
            ]
        )
    ]
    kept = KeptAnswers()
    for paid in [*said, PaidAnswer(said[0].request, "", "", "", said[1].answer, None)]:
        kept.keep(paid)
    assert dict(kept) == {paid.request: paid for paid in reversed(said)}
    assert list(kept) == [paid.request for paid in said]
