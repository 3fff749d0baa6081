"""The chat completion as every compatible endpoint speaks it: what a question looks like as bytes, and its answer.

Pure, and used on both sides: by who asks, and by who checks later that recorded bytes are this question and this
answer. ValueError where the bytes are something else.
"""

from __future__ import annotations

import json
from typing import Any

from clara_eval.judge.port import Answer, Prompt, Stop

_STOPS: dict[str | None, Stop] = {"length": "max_tokens", "content_filter": "refusal"}
TOKEN_LIMITS = ("max_completion_tokens", "max_tokens")


def with_schema(prompt: Prompt) -> str:
    """The system text for an endpoint that refuses the response format."""
    return f"{prompt.system}\n\nAnswer with one JSON object that fits this JSON Schema:\n{prompt.schema_json}"


def read_completion(content: bytes, prompt: Prompt, model: str) -> Answer:
    """What the model said; `model` is named where the endpoint does not name one."""
    try:
        body = json.loads(content)
        choice = body["choices"][0]
        message = choice["message"]
        refusal, text = message.get("refusal"), message.get("content")
        stop = "refusal" if refusal else _STOPS.get(choice.get("finish_reason"), "end")
        said = refusal or text or ""
        return Answer(str(said), str(body.get("model") or model), stop, *_tokens(body.get("usage"), prompt, said))
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as bad:
        raise ValueError("It is not a chat completion.") from bad


def asks(content: bytes, prompt: Prompt, model: str) -> bool:
    """Whether these bytes put exactly this prompt to this model."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return False
    if not isinstance(body, dict) or body.get("model") != model:
        return False
    limits = [body[name] for name in TOKEN_LIMITS if name in body]
    systems = (prompt.system, with_schema(prompt))
    asked = [[{"role": "system", "content": s}, {"role": "user", "content": prompt.user}] for s in systems]
    return limits == [prompt.max_tokens] and body.get("messages") in asked


def _tokens(usage: dict[str, Any] | None, prompt: Prompt, text: str) -> tuple[int, int, int]:
    """Input, output and cached tokens; an endpoint that counts nothing is counted by size, never as free."""
    counted = usage or {}
    sent, came = counted.get("prompt_tokens"), counted.get("completion_tokens")
    details = counted.get("prompt_tokens_details") or {}
    return (
        (len(prompt.system) + len(prompt.user)) // 3 + 1 if sent is None else int(sent),
        len(text) // 3 + 1 if came is None else int(came),
        int(details.get("cached_tokens") or 0),
    )
