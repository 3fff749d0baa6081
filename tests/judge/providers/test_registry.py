"""Judges' names: every documented form is read, everything else is refused with its reason."""

from __future__ import annotations

import pytest

from clara_eval.core.errors import ConfigError
from clara_eval.judge.costs.budgets import FREE
from clara_eval.judge.provider import JudgeName, parse_jury, price_card


def test_every_form() -> None:
    """The documented forms are read, in order."""
    text = (
        "rules, anthropic:claude-x ,openai:gpt-x,openai:org/m:free@https://host/v1/,local:smollm2,anthropic:m@http://h"
    )
    jury = parse_jury(text)
    assert jury == (
        JudgeName("rules", "rules", "rules"),
        JudgeName("anthropic:claude-x", "anthropic", "claude-x"),
        JudgeName("openai:gpt-x", "openai", "gpt-x"),
        JudgeName("openai:org/m:free@https://host/v1", "openai", "org/m:free", "https://host/v1"),
        JudgeName("local:smollm2", "local", "smollm2"),
        JudgeName("anthropic:m@http://h", "anthropic", "m", "http://h"),
    )
    assert [price_card(judge, {}) == FREE for judge in jury] == [True, False, False, False, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        "claude",
        "anthropic:",
        "gemini:pro",
        "local:llama",
        "rules:strict",
        "batches:m",
        "registry:m",
        "test_wire:m",
        "../openai:m",
        "openai:m@ftp://host/v1",
        "openai:m@",
        "openai:m@http://host:99999/v1",
        "openai:m@https://user:pass@host/v1",
        "openai:m@https://host/v1?key=abc",
        "rules,rules",
        "openai:m@https://host/v1,openai:m@https://host/v1/",
    ],
)
def test_refusals(text: str) -> None:
    """A name that is no judge, an address that would make a secret public, and a repetition are refused."""
    with pytest.raises(ConfigError) as caught:
        parse_jury(text)
    assert "CLARA_JUDGES" in caught.value.message
    assert caught.value.remedy
    assert "pass" not in caught.value.message.replace("password", "")
