"""`check` asks every judge for a few tokens, and names what is wrong with it."""

from __future__ import annotations

import pytest
from tests.support.fake_endpoint import FakeEndpoint, Fault

from clara_eval.app import check_judges
from clara_eval.config.settings import Settings
from clara_eval.core.errors import ClaraError, ConfigError


def settings(judge: str, prices: str = "1/2") -> Settings:
    told = {"CLARA_JUDGES": judge, "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    return Settings.from_env(told | ({"CLARA_PRICES": f"{judge}={prices}"} if prices else {}))


@pytest.mark.parametrize("form", ["openai:m@{}/v1", "anthropic:m@{}"])
async def test_a_judge_that_answers_is_asked_once_for_a_few_tokens(form: str) -> None:
    """One request of at most 16 tokens; rules are asked nothing."""
    async with FakeEndpoint().running() as endpoint:
        await check_judges(settings(form.format(endpoint.root)))
        await check_judges(settings("rules", prices=""))
    (seen,) = endpoint.seen
    assert seen.body["max_tokens"] == 16


@pytest.mark.parametrize("form", ["openai:m@{}/v1", "anthropic:m@{}"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("status", 404, message="model: m"), "does not exist"),
        (Fault("status", 401), "does not accept the key"),
        (Fault("status", 500), r"failed \(500\)"),
        (Fault("garbage"), "answered with something"),
    ],
)
async def test_a_judge_that_cannot_judge_is_named(form: str, fault: Fault, said: str) -> None:
    """A misspelt model, a wrong key, a server that fails and one that is no model are told apart."""
    async with FakeEndpoint(script=lambda _: fault).running() as endpoint:
        judge = form.format(endpoint.root)
        with pytest.raises(ClaraError, match=said) as refused:
            await check_judges(settings(judge))
    assert str(refused.value).startswith(judge)


async def test_a_dead_endpoint_and_a_missing_price_are_named() -> None:
    """A port where nobody listens cannot be reached; a price that is missing comes with the setting that names it."""
    dead = "openai:x@http://127.0.0.1:1/v1"
    with pytest.raises(ClaraError, match="cannot be reached"):
        await check_judges(settings(dead))
    with pytest.raises(ConfigError, match="no known price") as refused:
        await check_judges(settings(dead, prices=""))
    assert f'CLARA_PRICES="{dead}"=INPUT/OUTPUT' in refused.value.remedy
