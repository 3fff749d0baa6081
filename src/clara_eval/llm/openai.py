"""Any OpenAI-compatible endpoint, through the official SDK on its aiohttp transport.

A `Prompt` goes out with `temperature=0`, a fixed `seed` and the strict JSON-schema response format. An endpoint that
refuses one of these is asked again without it, once, and that is remembered for the endpoint: without the response
format the schema stands in the system text instead. The SDK's own retries are off. The SDK's `post` takes the body as
it is and gives the response as it came: the typed method walks through the schema on every call and builds objects of
every answer, which costs more than everything else we do for a call.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from clara_eval.errors import ClaraError, Temporary
from clara_eval.judge.outages import Unanswered
from clara_eval.judge.port import Answer, Prompt, Stop
from clara_eval.judge.provider import JudgeName, Provider
from clara_eval.llm.failures import Endpoint, explain, explain_status, said, said_in
from clara_eval.llm.registry import parse_jury, required_key
from clara_eval.money.prices import public_price
from clara_eval.settings import Settings

NO_KEY = "no-key"
"""Sent to endpoints of one's own that ask for none; the SDK insists on some text."""
SEED = 20_270_101
"""Any fixed number: the same request asks for the same sample, where the provider honours it."""
_SIGNS = {
    "response_format": ("response_format", "json_schema", "structured output", "grammar"),
    "temperature": ("temperature",),
    "seed": ("seed",),
}
"""The words by which an endpoint names what it refuses."""
_TOKEN_LIMITS = ("max_completion_tokens", "max_tokens")
_STOPS: dict[str | None, Stop] = {"length": "max_tokens", "content_filter": "refusal"}


class OpenAiLlm:
    """One model at one endpoint. Opens connections on first use; `close` ends them."""

    def __init__(self, model: str, *, api_key: str, base_url: str | None = None, call_seconds: float = 120.0) -> None:
        from openai import AsyncOpenAI, DefaultAioHttpClient

        self._model = model
        self._name = f"openai:{model}" + (f"@{base_url}" if base_url else "")
        self._endpoint = Endpoint(self._name, "OPENAI_API_KEY", api_key)
        self._client = AsyncOpenAI(
            api_key=api_key,
            base_url=base_url or "https://api.openai.com/v1",
            max_retries=0,
            timeout=call_seconds,
            http_client=DefaultAioHttpClient(),
        )
        self._refused: set[str] = set()
        # Old compatible servers ignore the newer name, which would lift the limit; OpenAI's new models refuse the old.
        self._token_limit = "max_tokens" if base_url else "max_completion_tokens"

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, prompt: Prompt) -> Answer:
        from httpx2 import Response
        from openai import BadRequestError, OpenAIError, UnprocessableEntityError

        for _ in range(len(_SIGNS) + 2):
            refused_before = frozenset(self._refused), self._token_limit
            try:
                response = await self._client.post("/chat/completions", cast_to=Response, body=self._request(prompt))
            except (BadRequestError, UnprocessableEntityError) as bad:
                if self._gives_way(said(bad).lower(), refused_before):
                    continue
                raise explain(bad, self._endpoint) from None
            except OpenAIError as bad:
                raise explain(bad, self._endpoint) from None
            return self._answer(response.content, prompt)
        raise Temporary(f"{self._name} refuses every form of the request.")

    async def close(self) -> None:
        await self._client.close()

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        plain = "response_format" in self._refused
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": _with_schema(prompt) if plain else prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            self._token_limit: prompt.max_tokens,
        }
        if not plain:
            request["response_format"] = _response_format(prompt.purpose, prompt.schema_json)
        if "temperature" not in self._refused:
            request["temperature"] = 0
        if "seed" not in self._refused:
            request["seed"] = SEED
        return request

    def _gives_way(self, text: str, before: tuple[frozenset[str], str]) -> bool:
        """Drop what the endpoint names in its refusal; True if the next request differs from the refused one."""
        if before != (frozenset(self._refused), self._token_limit):
            return True
        for option, signs in _SIGNS.items():
            if option not in self._refused and any(sign in text for sign in signs):
                self._refused.add(option)
                return True
        if self._token_limit in text and "token_limit" not in self._refused:
            self._refused.add("token_limit")
            self._token_limit = _TOKEN_LIMITS[1 - _TOKEN_LIMITS.index(self._token_limit)]
            return True
        return False

    def _answer(self, content: bytes, prompt: Prompt) -> Answer:
        try:
            body = json.loads(content)
            if not body.get("choices") and isinstance(body.get("error"), dict):
                raise self._hidden_error(body["error"])
            choice = body["choices"][0]
            message = choice["message"]
            refusal, text = message.get("refusal"), message.get("content")
            stop = "refusal" if refusal else _STOPS.get(choice.get("finish_reason"), "end")
            said_text = refusal or text or ""
            model = str(body.get("model") or self._model)
            return Answer(str(said_text), model, stop, *_tokens(body.get("usage"), prompt, said_text))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError):
            # It came with a 200, so it may be charged.
            raise Unanswered(f"{self._name} answered with something that is not a chat completion.") from None

    def _hidden_error(self, detail: dict[str, Any]) -> ClaraError:
        """Some gateways answer 200 with an error inside."""
        code = detail.get("code")
        return explain_status(code if isinstance(code, int) else 500, said_in(detail), {}, self._endpoint)


@lru_cache(maxsize=64)
def _response_format(purpose: str, schema_json: str) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": purpose, "strict": True, "schema": json.loads(schema_json)}}


def _with_schema(prompt: Prompt) -> str:
    return f"{prompt.system}\n\nAnswer with one JSON object that fits this JSON Schema:\n{prompt.schema_json}"


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


def _build(judge: JudgeName, settings: Settings) -> OpenAiLlm:
    return OpenAiLlm(judge.model, api_key=_key(settings, judge), base_url=judge.base_url)


def _key(settings: Settings, judge: JudgeName) -> str:
    """OpenAI's key goes to OpenAI, or to the one foreign address where OpenAI is not asked; never to a second party."""
    if judge.base_url is None:
        return required_key(settings.openai_api_key, "OPENAI_API_KEY", judge)
    own = settings.keys_by_endpoint.get(judge.base_url)
    if own is not None:
        return own.get_secret_value()
    asked = {other.base_url for other in parse_jury(settings.judges) if other.provider == judge.provider}
    if settings.openai_api_key is None or asked - {judge.base_url}:
        return NO_KEY
    return required_key(settings.openai_api_key, "OPENAI_API_KEY", judge)


PROVIDER = Provider(
    name="openai",
    form="openai:MODEL, openai:MODEL@https://host/v1",
    build=_build,
    price=lambda judge, at: public_price(judge.model, provider="openai", address=judge.base_url, at=at),
    takes_address=True,
)
