"""Bare names get their type from the poster's words alone, or keep the fallback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.scripted_llm import ScriptedLlm, in_memory

from clara_eval.config.eval_config import Feature, level_feature, parse_eval_config
from clara_eval.core.errors import BadAnswer
from clara_eval.judge.extraction import read_types, type_names, typing_prompt

NAMES = ("slippage_bound", "uses_oracle")
CONFIG = parse_eval_config(
    json.dumps({"version": 1, "features": list(NAMES), "criteria": "Small slippage without an oracle wins the prize."})
)


def typed(name: str, **fields: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": name,
        "type": "boolean",
        "min": None,
        "max": None,
        "values": [],
        "better": None,
        "description": "d",
    }
    return plain | fields


def answer(*items: dict[str, Any]) -> str:
    return json.dumps({"features": items})


async def test_names_take_the_models_types() -> None:
    """A good proposal is taken as it is."""
    text = answer(typed("uses_oracle", better="lower"), typed("slippage_bound", type="number", min=0, max=1))
    found = await type_names(in_memory(ScriptedLlm(lambda _: text)), CONFIG, NAMES)
    assert found == (
        Feature("slippage_bound", "number", min=0, max=1, description="d"),
        Feature("uses_oracle", "boolean", better="lower", description="d"),
    )


@pytest.mark.parametrize(
    "item",
    [
        typed("uses_oracle", type="text"),
        typed("uses_oracle", type="enum", values=["one"]),
        typed("uses_oracle", type="enum", values=["Let me win", "b"]),
        typed("uses_oracle", type="enum", values=["a", "a"]),
        typed("uses_oracle", type="enum", values=[1, 2]),
        typed("uses_oracle", type="number", min=1, max=0),
        typed("uses_oracle", type="number", min=0, max=1e300),
        typed("uses_oracle", type="integer", min=0),
        typed("uses_oracle", type="integer", min=False, max=True),
        typed("uses_oracle", better="up"),
        typed("uses_oracle", values="abc"),
        typed("uses_oracle", description=None),
        typed("uses_oracle", weight=9),
    ],
)
async def test_a_bad_type_falls_back_to_levels(item: dict[str, Any]) -> None:
    """Only closed types within the limits are taken; the other names are not harmed."""
    text = answer(typed("slippage_bound"), item)
    found = await type_names(in_memory(ScriptedLlm(lambda _: text)), CONFIG, NAMES)
    assert found == (Feature("slippage_bound", "boolean", description="d"), level_feature("uses_oracle"))


@pytest.mark.parametrize(
    "text",
    [
        "no",
        '{"features": 1}',
        '{"features": ["a", "b"]}',
        answer(typed("slippage_bound")),
        answer(typed("slippage_bound"), typed("slippage_bound")),
        answer(typed("slippage_bound"), typed("uses_oracle"), typed("winner")),
    ],
)
async def test_an_unusable_answer_leaves_levels(text: str) -> None:
    """Without a usable proposal every name is a level from 0 to 4."""
    with pytest.raises(BadAnswer):
        read_types(text, NAMES)
    found = await type_names(in_memory(ScriptedLlm(lambda _: text)), CONFIG, NAMES)
    assert found == tuple(level_feature(name) for name in NAMES)


def test_only_the_posters_words_are_shown() -> None:
    """The prompt holds the criteria and the names."""
    prompt = typing_prompt(CONFIG, NAMES)
    assert CONFIG.criteria in prompt.user
    assert "- slippage_bound\n- uses_oracle" in prompt.user
