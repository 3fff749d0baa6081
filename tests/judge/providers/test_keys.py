"""From names to models: keys are asked for where they are needed, and named when they are missing."""

from __future__ import annotations

import pytest
from tests.support.fake_endpoint import FakeEndpoint

from clara_eval.config.settings import Settings
from clara_eval.core.errors import ConfigError
from clara_eval.judge.port import Prompt
from clara_eval.judge.provider import build_llm, parse_judge

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-secret", "OPENAI_API_KEY": "sk-secret"}


@pytest.mark.parametrize(
    ("name", "variable"), [("anthropic:claude-x", "ANTHROPIC_API_KEY"), ("openai:gpt-x", "OPENAI_API_KEY")]
)
async def test_a_missing_key_is_named(name: str, variable: str) -> None:
    """Without its key a model is not built, and the error names the variable; with it, the name stays the same."""
    with pytest.raises(ConfigError, match=variable):
        build_llm(name, Settings.from_env({}))
    assert build_llm(name, Settings.from_env(KEYS)).name == name


OTHER = "https://two.example/v1"
SCHEMA = '{"type":"object","properties":{"winner":{"type":"string","enum":["A"]}},"required":["winner"]}'
PROMPT = Prompt("comparison", "Judge.", "A or B?", SCHEMA, 50, "0x00")


@pytest.mark.parametrize(
    ("judges", "keys", "sent"),
    [
        ("openai:m@HERE", "", "sk-secret"),
        ("openai:gpt,openai:m@HERE", "", "no-key"),
        (f"openai:m@HERE,openai:m@{OTHER}", "", "no-key"),
        ("openai:gpt,openai:m@HERE", f"{OTHER}=theirs, HERE/=own=1", "own=1"),
        ("openai:m@HERE", "HERE=own", "own"),
    ],
)
async def test_a_key_goes_to_nobody_it_was_not_made_for(judges: str, keys: str, sent: str) -> None:
    """OpenAI's key reaches a foreign address only where that is the only one asked; an address may have its own."""
    async with FakeEndpoint().running() as endpoint:
        environ = {"CLARA_JUDGES": judges, "CLARA_ENDPOINT_KEYS": keys}
        here = {name: text.replace("HERE", endpoint.url) for name, text in environ.items()}
        llm = build_llm(f"openai:m@{endpoint.url}", Settings.from_env({**KEYS, **here}))
        await llm.complete(PROMPT)
        await llm.close()
    headers = {name.lower(): value for name, value in endpoint.seen[0].headers.items()}
    assert headers["authorization"] == f"Bearer {sent}"


async def test_endpoint_keys_in_another_form_are_refused_without_showing_them() -> None:
    """The setting is named, its text is not."""
    settings = Settings.from_env({"CLARA_JUDGES": f"openai:m@{OTHER}", "CLARA_ENDPOINT_KEYS": "sk-very-secret"})
    with pytest.raises(ConfigError, match="CLARA_ENDPOINT_KEYS") as refused:
        build_llm(f"openai:m@{OTHER}", settings)
    assert "very" not in str(refused.value)


async def test_a_model_answers_under_its_judges_name() -> None:
    """Requests are hashed with the model's name and looked for with the judge's: a slash makes no difference."""
    for name in ("openai:m@http://127.0.0.1:1/v1/", "openai:m@http://127.0.0.1:1/v1"):
        assert build_llm(name, Settings.from_env({})).name == parse_judge(name).text == "openai:m@http://127.0.0.1:1/v1"


async def test_an_endpoint_of_ones_own_needs_no_key() -> None:
    """An address of one's own works without a key; rules have no model."""
    name = "openai:qwen@http://127.0.0.1:1/v1"
    assert build_llm(name, Settings.from_env({})).name == name
    with pytest.raises(ConfigError, match="without a model"):
        build_llm(parse_judge("rules"), Settings.from_env({}))


@pytest.mark.parametrize("form", ["anthropic:claude-x@HERE", "anthropic:claude-x@HERE/v1", "ANTHROPIC_BASE_URL"])
async def test_claude_is_asked_at_a_gateway(form: str) -> None:
    """An address in the judge's name or in ANTHROPIC_BASE_URL gets the requests, under the name of CLARA_JUDGES."""
    async with FakeEndpoint().running() as endpoint:
        name = form.replace("HERE", endpoint.root) if "HERE" in form else "anthropic:claude-x"
        environ = {"CLARA_JUDGES": name} | ({} if "HERE" in form else {form: endpoint.root})
        llm = build_llm(name, Settings.from_env({**KEYS, **environ}))
        answer = await llm.complete(PROMPT)
        await llm.close()
    assert (llm.name, endpoint.seen[0].path, answer.stop) == (name, "/v1/messages", "end")
    assert endpoint.seen[0].headers["authorization"] == "Bearer sk-ant-secret"
