"""Set-up shared by tests: what test_thinking.py and others use."""

from __future__ import annotations

import json

from tests.support.fake_endpoint import Seen

from clara_eval.judge.port import Prompt, Purpose


def prompt_of(seen: Seen) -> Prompt:
    """The prompt behind a request of either provider."""
    asked = seen.schema["properties"]
    purpose: Purpose = (
        "comparison" if "winner" in asked or "order" in asked else "features" if "check" in asked else "schema"
    )
    texts = {message["role"]: message["content"] for message in seen.body["messages"]}
    system = texts.get("system") or seen.body["system"][0]["text"]
    return Prompt(purpose, system, texts["user"], json.dumps(seen.schema), 0, "")
