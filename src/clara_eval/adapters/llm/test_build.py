"""From names to models: keys are asked for where they are needed, and named when they are missing."""

from __future__ import annotations

import pytest

from clara_eval.adapters.llm.build import build_llm
from clara_eval.errors import ConfigError
from clara_eval.judge.jury import parse_judge
from clara_eval.settings import Settings

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-secret", "OPENAI_API_KEY": "sk-secret"}


@pytest.mark.parametrize(
    ("name", "variable"), [("anthropic:claude-x", "ANTHROPIC_API_KEY"), ("openai:gpt-x", "OPENAI_API_KEY")]
)
async def test_a_missing_key_is_named(name: str, variable: str) -> None:
    """Without its key a model is not built, and the error names the variable; with it, the name stays the same."""
    with pytest.raises(ConfigError, match=variable):
        build_llm(name, Settings.from_env({}))
    assert build_llm(name, Settings.from_env(KEYS)).name == name


async def test_an_endpoint_of_ones_own_needs_no_key() -> None:
    """An address of one's own works without a key; rules have no model."""
    name = "openai:qwen@http://127.0.0.1:1/v1"
    assert build_llm(name, Settings.from_env({})).name == name
    with pytest.raises(ConfigError, match="without a model"):
        build_llm(parse_judge("rules"), Settings.from_env({}))
