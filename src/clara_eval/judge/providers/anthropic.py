"""Claude by the Messages API: the schema as output format, the system text cached, low effort if it thinks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from clara_eval.config.settings import Settings
from clara_eval.core.extras import require
from clara_eval.judge.costs.prices import public_price
from clara_eval.judge.outages import Unanswered
from clara_eval.judge.port import Answer, Prompt, Stop
from clara_eval.judge.provider import (
    EFFORT,
    LONGEST_CALL_SECONDS,
    BatchRun,
    JudgeName,
    Provider,
)
from clara_eval.judge.providers.failures import Endpoint, explain, said
from clara_eval.judge.providers.registry import required_key

_STOPS: dict[str | None, Stop] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}
_ANSWERS_AT_ONCE = re.compile(r"claude-(?:\d|instant|[a-z]+-[1-4](?:\D|$))")
MISSHAPEN = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""What reading something that is not a message can raise."""


class AnthropicLlm:
    """One Claude model. Opens connections on first use; `close` ends them."""

    def __init__(
        self, model: str, *, api_key: str, base_url: str | None = None, call_seconds: float = LONGEST_CALL_SECONDS
    ) -> None:
        from anthropic import AsyncAnthropic, DefaultAioHttpClient

        self.model = model
        self._effort = EFFORT if thinks(model) else ""
        self._name = f"anthropic:{model}"
        self.endpoint = Endpoint(self._name, "ANTHROPIC_API_KEY", api_key)
        self.client = AsyncAnthropic(
            api_key=api_key,
            base_url=base_url or "https://api.anthropic.com",
            max_retries=0,
            timeout=call_seconds,
            http_client=DefaultAioHttpClient(),
        )

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, prompt: Prompt) -> Answer:
        from anthropic import AnthropicError
        from httpx2 import Response

        params = self.params(prompt)
        try:
            response = await self.client.post("/v1/messages", cast_to=Response, body=params)
        except AnthropicError as bad:
            if (
                getattr(bad, "status_code", None) == 400
                and "effort" in params["output_config"]
                and "effort" in said(bad)
            ):
                self._effort = ""
                return await self.complete(prompt)
            raise explain(bad, self.endpoint) from None
        try:
            return self.answer(json.loads(response.content))
        except MISSHAPEN:
            raise Unanswered(f"{self._name} answered with something that is not a message.") from None

    async def close(self) -> None:
        await self.client.close()

    def params(self, prompt: Prompt) -> dict[str, Any]:
        """Return the request body, for a single call and for an item of a batch."""
        return {
            "model": self.model,
            "max_tokens": prompt.max_tokens,
            "system": [{"type": "text", "text": prompt.system, "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": prompt.user}],
            "output_config": {
                "format": {"type": "json_schema", "schema": _schema(prompt.schema_json)},
                **({"effort": self._effort} if self._effort else {}),
            },
        }

    def answer(self, body: dict[str, Any]) -> Answer:
        """Read a message; its input tokens come in three parts."""
        usage = body["usage"]
        cached, written = (int(usage.get(f"cache_{kind}_input_tokens") or 0) for kind in ("read", "creation"))
        return Answer(
            text="".join(block["text"] for block in body["content"] if block.get("type") == "text"),
            model=str(body["model"]),
            stop=_STOPS.get(body.get("stop_reason"), "end"),
            input_tokens=int(usage["input_tokens"]) + cached + written,
            output_tokens=int(usage["output_tokens"]),
            cached_tokens=cached,
            cache_write_tokens=written,
        )


def thinks(model: str) -> bool:
    """Return whether a Claude of this name thinks by default: those before the fifth generation do not."""
    return _ANSWERS_AT_ONCE.search(model) is None


@lru_cache(maxsize=64)
def _schema(schema_json: str) -> dict[str, Any]:
    from anthropic import transform_schema

    return transform_schema(json.loads(schema_json))


def _build(judge: JudgeName, settings: Settings) -> AnthropicLlm:
    require("anthropic", judge.text)
    return AnthropicLlm(judge.model, api_key=required_key(settings.anthropic_api_key, "ANTHROPIC_API_KEY", judge))


async def _answer_in_batches(run: BatchRun, prompts: Sequence[Prompt], seconds_left: float) -> bool:
    from clara_eval.judge.providers.batches import answer_in_batches

    return await answer_in_batches(run, prompts, seconds_left)


PROVIDER = Provider(
    name="anthropic",
    form="anthropic:MODEL",
    build=_build,
    price=lambda judge, at: public_price(judge.model, provider="anthropic", at=at),
    answer_in_batches=_answer_in_batches,
    thinks=lambda judge: thinks(judge.model),
)
