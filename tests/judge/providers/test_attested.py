"""Signed answers: the right ones count, and every lie about them is an outage with its reason, never a vote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.signing_endpoint import ACI_LIES, KEY_LIES, NEAR_LIES, SigningEndpoint

from clara_eval.challenges.model_pool import ModelPool
from clara_eval.config.settings import Settings
from clara_eval.core.errors import ConfigError
from clara_eval.judge.attestation import SigningOpenAi
from clara_eval.judge.costs.budgets import RunBudget
from clara_eval.judge.port import Answer, Prompt, Unanswered
from clara_eval.judge.provider import build_llm, parse_judge
from clara_eval.store.sqlite import SqliteStore

SCHEMA = json.dumps({"type": "object", "properties": {"winner": {"type": "string", "enum": ["A", "B"]}}})
PROMPT = Prompt("comparison", "You judge.", "A or B? ä", SCHEMA, 100, "0x" + "0" * 64)
RUN = "31337:0xabc"


def settings(url: str, how: str, pccs: str = "") -> Settings:
    told = {"CLARA_JUDGES": f"openai:m@{url}", "CLARA_ATTESTATION": how, "CLARA_PRICES": f"openai:m@{url}=0/0"}
    return Settings.from_env({**told, "CLARA_PCCS_URL": pccs or "http://127.0.0.1:1"})


@asynccontextmanager
async def pool(endpoint: SigningEndpoint, how: str, place: Path) -> AsyncIterator[ModelPool]:
    store = await SqliteStore.open(place / "store.db")
    found = ModelPool(settings(endpoint.url, how, endpoint.root), store, quote_root=endpoint.enclave.root)
    yield found
    await found.close()
    await store.close()


async def asked(bench: ModelPool, prompt: Prompt = PROMPT, run: str = RUN) -> Answer:
    line = bench.line(bench.settings.judges, run, RunBudget(None), 60.0)
    return (await line.ask(prompt)).answer


async def ask_once(bench: ModelPool) -> Answer:
    """One call without the patience of a line."""
    return await bench._judge(bench.settings.judges, RUN).complete(PROMPT)


@pytest.mark.parametrize("how", ["near", "aci"])
async def test_a_signed_answer_counts_and_its_key_is_attested_once(how: str, tmp_path: Path) -> None:
    """Right answers come with bytes, signature and key; a run attests a key once, and another run for itself."""
    async with SigningEndpoint().running() as endpoint, pool(endpoint, how, tmp_path) as bench:
        prompts = [Prompt("comparison", "You judge.", f"{n}", SCHEMA, 100, "0x" + "0" * 64) for n in range(5)]
        answers = await asyncio.gather(*(asked(bench, prompt) for prompt in prompts))
        assert endpoint.reports == 1
        for answer in answers:
            assert answer.signed is not None
            assert answer.signed.interface == how
        kept = await bench.store.entries("attestation", "")
        assert [key.rpartition("/")[2] for key, _ in kept] == [RUN]
        await asked(bench, PROMPT, "31337:0xdef")
        assert endpoint.reports == 2
        again = await bench.store.answers([request for request, _, _ in await bench.store.calls_of(RUN)])
        assert all(paid.answer.signed for paid in again.values())


@pytest.mark.parametrize(
    ("how", "lie"),
    [*(("near", lie) for lie in (*NEAR_LIES, *KEY_LIES)), *(("aci", lie) for lie in (*ACI_LIES, *KEY_LIES))],
)
async def test_every_lie_is_an_outage_with_its_reason(how: str, lie: str, tmp_path: Path) -> None:
    """Whatever is wrong with a signature, its key or its quote: nothing is saved, nothing counts, the reason is said."""
    async with SigningEndpoint(lie=lie).running() as endpoint, pool(endpoint, how, tmp_path) as bench:
        with pytest.raises(Unanswered) as caught:
            await ask_once(bench)
        assert len(caught.value.message.split(": ", 1)[-1]) > 15
        assert await bench.store.calls_of(RUN) == []
        assert await bench.store.entries("attestation", "") == [] or lie not in KEY_LIES
        endpoint.lie = ""
        assert (await ask_once(bench)).signed is not None


async def test_an_endpoint_that_does_not_sign_is_down_as_a_signing_judge(tmp_path: Path) -> None:
    """An ordinary endpoint behind the name of a signing one gives no vote; the money it may cost is counted."""
    async with FakeEndpoint().running() as plain:
        store = await SqliteStore.open(tmp_path / "store.db")
        bench = ModelPool(settings(plain.url, "near"), store)
        with pytest.raises(Unanswered, match="gave no signature"):
            await ask_once(bench)
        await bench.close()
        await store.close()


async def test_a_key_that_is_not_attested_any_more_keeps_its_earlier_attestation(tmp_path: Path) -> None:
    """Answers of an earlier run can be used after the endpoint has forgotten their key; the report names that run."""
    async with SigningEndpoint().running() as endpoint, pool(endpoint, "near", tmp_path) as bench:
        signed = (await asked(bench)).signed
        assert signed is not None
        endpoint.lie = "no report"
        report = await bench.key_report(bench.settings.judges, signed.key, "31337:0xdef")
        assert report.run == RUN


def test_the_setting_becomes_part_of_the_judges_name() -> None:
    """Per endpoint or for all; a judge without an address of its own and other judges stay as they are."""
    names = "rules,openai:gpt-5,openai:a@https://one/v1,openai:b@https://two/v1/"
    told = {"CLARA_JUDGES": names, "CLARA_ATTESTATION": "https://two/v1=aci"}
    assert Settings.from_env(told).judges.split(",")[2:] == ["openai:a@https://one/v1", "openai:b@https://two/v1#aci"]
    everywhere = Settings.from_env({**told, "CLARA_ATTESTATION": "near"}).judges.split(",")
    assert everywhere == ["rules", "openai:gpt-5", "openai:a@https://one/v1#near", "openai:b@https://two/v1#near"]
    assert parse_judge(everywhere[3]).attestation == "near"
    with pytest.raises(ConfigError, match="CLARA_ATTESTATION"):
        Settings.from_env({**told, "CLARA_ATTESTATION": "https://two/v1=sgx"})


@pytest.mark.parametrize("name", ["openai:m#near", "anthropic:m#near", "openai:m@https://h/v1#sgx"])
def test_attestation_is_only_for_endpoints_that_can_sign(name: str) -> None:
    """A name that asks for a signature nobody gives is refused when it is read."""
    with pytest.raises(ConfigError, match=r"attestation|there is no judge"):
        parse_judge(name)


def test_a_signing_judge_is_built_as_one() -> None:
    """What the registry builds for such a name brings signatures, under its full name."""
    built = build_llm("openai:m@https://h/v1#aci", Settings.from_env({}))
    assert isinstance(built, SigningOpenAi)
    assert built.name == "openai:m@https://h/v1#aci"
