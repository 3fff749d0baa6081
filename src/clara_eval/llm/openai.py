"""Any OpenAI-compatible endpoint, through the official SDK on its aiohttp transport.

A `Prompt` goes out with `temperature=0`, a fixed `seed` and the strict JSON-schema response format. An endpoint that
refuses one of these is asked again without it, once, and that is remembered for the endpoint: without the response
format the schema stands in the system text instead. The SDK's own retries are off. The SDK's `post` takes the body as
it is and gives the response as it came: the typed method walks through the schema on every call and builds objects of
every answer, which costs more than everything else we do for a call.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from clara_eval.attestation import INTERFACES, NotAttested, Quotes, Signed, key_name
from clara_eval.attestation.quotes import INSTALL
from clara_eval.errors import ClaraError, ConfigError, Temporary
from clara_eval.extras import require
from clara_eval.judge.completion import TOKEN_LIMITS, read_completion, with_schema
from clara_eval.judge.outages import Unanswered, Unsigned
from clara_eval.judge.port import Answer, Prompt
from clara_eval.judge.provider import JudgeName, Provider
from clara_eval.llm.failures import Endpoint, explain, explain_status, said, said_in
from clara_eval.llm.registry import parse_jury, required_key
from clara_eval.money.prices import public_price
from clara_eval.settings import Settings

NO_KEY = "no-key"
"""Sent to endpoints of one's own that ask for none; the SDK insists on some text."""
SEED = 20_270_101
"""Any fixed number: the same request asks for the same sample, where the provider honours it."""
PROOF_TRIES = 3
PROOF_PAUSE_SECONDS = 0.3
"""A signature may be a moment later than its answer."""
_SIGNS = {
    "response_format": ("response_format", "json_schema", "structured output", "grammar"),
    "temperature": ("temperature",),
    "seed": ("seed",),
}
"""The words by which an endpoint names what it refuses."""


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
        from openai import BadRequestError, OpenAIError, UnprocessableEntityError

        for _ in range(len(_SIGNS) + 2):
            refused_before = frozenset(self._refused), self._token_limit
            try:
                answered = await self._ask(prompt)
            except (BadRequestError, UnprocessableEntityError) as bad:
                if self._gives_way(said(bad).lower(), refused_before):
                    continue
                raise explain(bad, self._endpoint) from None
            except OpenAIError as bad:
                raise explain(bad, self._endpoint) from None
            return answered
        raise Temporary(f"{self._name} refuses every form of the request.")

    async def _ask(self, prompt: Prompt) -> Answer:
        from httpx2 import Response

        response = await self._client.post("/chat/completions", cast_to=Response, body=self._request(prompt))
        return self._answer(response.content, prompt)

    async def close(self) -> None:
        await self._client.close()

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        plain = "response_format" in self._refused
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": with_schema(prompt) if plain else prompt.system},
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
            self._token_limit = TOKEN_LIMITS[1 - TOKEN_LIMITS.index(self._token_limit)]
            return True
        return False

    def _answer(self, content: bytes, prompt: Prompt) -> Answer:
        try:
            self._raise_hidden_error(content)
            return read_completion(content, prompt, self._model)
        except ValueError:
            # It came with a 200, so it may be charged.
            raise Unanswered(f"{self._name} answered with something that is not a chat completion.") from None

    def _raise_hidden_error(self, content: bytes) -> None:
        """Some gateways answer 200 with an error inside."""
        if b'"error"' not in content:
            return
        body = json.loads(content)
        if isinstance(body, dict) and not body.get("choices") and isinstance(body.get("error"), dict):
            raise self._hidden_error(body["error"])

    def _hidden_error(self, detail: dict[str, Any]) -> ClaraError:
        code = detail.get("code")
        return explain_status(code if isinstance(code, int) else 500, said_in(detail), {}, self._endpoint)


class SigningOpenAi(OpenAiLlm):
    """The same at an endpoint that signs: exact bytes are kept, the signature is fetched right after the answer.

    Nothing is checked here but that there is one; `Attested` does it for every run.
    """

    def __init__(self, model: str, *, api_key: str, base_url: str, interface: str, call_seconds: float = 120.0) -> None:
        super().__init__(model, api_key=api_key, base_url=base_url, call_seconds=call_seconds)
        self._name = f"{self._name}#{interface}"
        self._endpoint = replace(self._endpoint, judge=self._name)
        self.interface, self.model = interface, model

    async def _ask(self, prompt: Prompt) -> Answer:
        from httpx2 import Response

        request = self._request(prompt)
        if self.interface == "aci":
            request["provider"] = {"aci_verified": True}
        sent = json.dumps(request, ensure_ascii=False).encode()
        # Compressed bytes would not be the signed ones.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        response = await self._client.post(
            "/chat/completions", cast_to=Response, content=sent, options={"headers": headers}
        )
        answer = self._answer(response.content, prompt)
        place, params = self._proof_place(response.content, response.headers.get("x-receipt-id"))
        proof = await self._document(place, params, "signature")
        try:
            key = key_name(self.interface, proof)
        except NotAttested as bad:
            raise Unsigned(f"{self._name}: the answer's signature cannot be used: {bad}.") from None
        request_text, response_text = (base64.b64encode(part).decode() for part in (sent, response.content))
        return replace(answer, signed=Signed(self.interface, key, request_text, response_text, proof))

    def _proof_place(self, content: bytes, receipt: str | None) -> tuple[str, dict[str, str]]:
        """Where the signature of this answer is; the ids are the endpoint's words."""
        if self.interface == "aci":
            if not receipt:
                raise Unsigned(f"{self._name}: the answer came without a receipt.")
            return f"/aci/receipts/{quote(receipt, safe='')}", {}
        name = json.loads(content).get("id")
        if not isinstance(name, str) or not name:
            raise Unsigned(f"{self._name}: the answer came without an id, so its signature cannot be found.")
        return f"/signature/{quote(name, safe='')}", {"model": self.model, "signing_algo": "ecdsa"}

    async def report(self, key: str, nonce: str) -> str:
        """The attestation report of a signing key."""
        if self.interface == "aci":
            return await self._document("/aci/attestation", {"nonce": nonce}, "attestation")
        params = {"model": self.model, "nonce": nonce, "signing_algo": "ecdsa", "signing_address": key}
        return await self._document("/attestation/report", params, "attestation")

    async def _document(self, place: str, params: dict[str, str], what: str) -> str:
        """A document of the endpoint; that it does not give one is its outage, whatever the status."""
        from httpx2 import Response
        from openai import OpenAIError

        for attempt in range(PROOF_TRIES):
            await asyncio.sleep(attempt * PROOF_PAUSE_SECONDS)
            try:
                response = await self._client.get(place, cast_to=Response, options={"params": params})
                return response.content.decode()
            except UnicodeDecodeError:
                raise Unsigned(f"{self._name}: its {what} is not text.") from None
            except OpenAIError as bad:
                reason = explain(bad, self._endpoint).message
        raise Unsigned(f"{self._name} gave no {what}: {reason}")


@lru_cache(maxsize=64)
def _response_format(purpose: str, schema_json: str) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": purpose, "strict": True, "schema": json.loads(schema_json)}}


def _build(judge: JudgeName, settings: Settings) -> OpenAiLlm:
    require("openai", judge.text)
    if judge.attestation and judge.base_url:
        if not Quotes.can_check():
            raise ConfigError(f"{judge.text} is attested, and dcap-qvl is not installed.", remedy=INSTALL)
        return SigningOpenAi(
            judge.model, api_key=_key(settings, judge), base_url=judge.base_url, interface=judge.attestation
        )
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
    signs=INTERFACES,
)
