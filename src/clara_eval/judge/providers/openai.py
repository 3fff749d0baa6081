"""Any OpenAI-compatible endpoint; a request with an option that it rejects is repeated without it."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

from clara_eval.config.settings import Settings
from clara_eval.core.errors import Temporary
from clara_eval.core.extras import require
from clara_eval.core.model import SIGNING_INTERFACES
from clara_eval.judge.costs.budgets import public_price
from clara_eval.judge.port import Answer, Prompt, Unanswered, describe_sampling
from clara_eval.judge.provider import EFFORT, JudgeName, Provider, endpoint_key
from clara_eval.judge.providers.wire import TOO_LONG, HttpLlm, ModelReply, error_text
from clara_eval.judge.reading import TOKEN_LIMITS, read_completion, with_schema

OPENAI = "https://api.openai.com/v1"
SEED = 20_270_101  # any fixed number: providers that honour it give equal requests equal answers
_REJECTIONS = {  # words in an error by which an endpoint rejects an option
    "response_format": ("response_format", "json_schema", "structured output", "grammar"),
    "temperature": ("temperature",),
    "seed": ("seed",),
    "reasoning_effort": ("reasoning_effort", "reasoning effort", "reasoning.effort"),
}
_THINKS = re.compile(
    r"(?:^|/)(?:o\d|gpt-(?:[5-9]|oss)|claude-[a-z]+-[5-9]|grok-(?:[4-9]|code)|gemini-(?:2\.5|[3-9])|"
    r"deepseek-(?:r|v[4-9])|qwen-?[3-9]|qwq|glm-(?:4\.[5-9]|[5-9])|kimi-k[2-9]|minimax-m|magistral)|think|reason",
    re.IGNORECASE,
)
"""Families of thinking models. Others start with a limit without thinking, which grows after a cut."""
_ANSWERS_AT_ONCE = re.compile(r"instruct|non-?thinking|-chat\b|-chat-latest", re.IGNORECASE)


class RequestForm(NamedTuple):
    """The part of a request that does not depend on the prompt."""

    model: str
    token_limit: str  # name of the option
    refused: frozenset[str] = frozenset()  # options that the endpoint has rejected
    effort: str = ""  # reasoning effort; empty for a model that does not think
    verified: bool = False  # only upstreams whose enclave the gateway has verified may answer


class OpenAiLlm(HttpLlm):
    """One model at one endpoint."""

    def __init__(self, model: str, *, api_key: str, base_url: str | None = None, interface: str = "") -> None:
        self.model, self.interface = model, interface
        name = f"openai:{model}" + (f"@{base_url}" if base_url else "") + (f"#{interface}" if interface else "")
        headers = {"Accept-Encoding": "identity"} if interface else {}  # the signature is over uncompressed bytes
        super().__init__(name, base_url or OPENAI, api_key, "OPENAI_API_KEY", headers)
        # Old compatible servers ignore the newer name, so there would be no limit; OpenAI's new models reject the old.
        limit, effort = "max_tokens" if base_url else "max_completion_tokens", EFFORT if thinks(model) else ""
        self._form = RequestForm(model, limit, effort=effort, verified=interface == "aci")

    async def complete(self, prompt: Prompt) -> Answer:
        for _ in range(len(_REJECTIONS) + 2):
            form = self._form
            sent = request_body(form, prompt)
            reply = await self.post("/chat/completions", sent)
            if reply.is_ok:
                return await self._read_answer(prompt, sent, reply, describe_sampling(sampling_of(form)))
            error = error_text(reply.content)
            if reply.status not in (400, 422) or TOO_LONG.search(error) or not self._drop_option(error.lower(), form):
                raise self.refusal(reply)
        raise Temporary(f"{self.name} refuses every form of the request.")

    def _drop_option(self, error: str, rejected: RequestForm) -> bool:
        """Drop the option that the error names; return whether the next request will differ."""
        form = self._form
        if rejected != form:
            return True
        for option, words in _REJECTIONS.items():
            if option not in form.refused and any(word in error for word in words):
                self._form = form._replace(refused=form.refused | {option})
                return True
        if form.token_limit in error and "token_limit" not in form.refused:
            other = TOKEN_LIMITS[1 - TOKEN_LIMITS.index(form.token_limit)]
            self._form = form._replace(refused=form.refused | {"token_limit"}, token_limit=other)
            return True
        return False

    async def _read_answer(self, prompt: Prompt, sent: bytes, reply: ModelReply, sampling: str) -> Answer:  # noqa: ARG002 - `SigningOpenAi` needs `sent`
        content = reply.content
        try:
            if b'"error"' in content:  # a gateway may answer 200 with an error inside
                body = json.loads(content)
                if isinstance(body, dict) and not body.get("choices") and isinstance(body.get("error"), dict):
                    code = body["error"].get("code")
                    raise self.refusal(ModelReply(code if isinstance(code, int) else 500, {}, content))
            return read_completion(content, prompt, self.model, sampling)
        except ValueError:
            # Its status was 200, so it may be charged.
            raise Unanswered(f"{self.name} answered with something that is not a chat completion.") from None


def thinks(model: str) -> bool:
    """Return whether this model is known to think before it answers."""
    return _THINKS.search(model) is not None and _ANSWERS_AT_ONCE.search(model) is None


@lru_cache(maxsize=64)
def sampling_of(form: RequestForm) -> dict[str, int]:
    """Return the sampling options that the endpoint accepts; thinking models take no temperature."""
    wanted = {"seed": SEED} if form.effort else {"temperature": 0, "seed": SEED}
    return {name: value for name, value in wanted.items() if name not in form.refused}


def request_body(form: RequestForm, prompt: Prompt) -> bytes:
    prefix = _body_prefix(form, prompt.purpose, prompt.system, prompt.schema_json, prompt.max_tokens)
    return f"{prefix}{json.dumps(prompt.user, ensure_ascii=False)}}}]}}".encode()


@lru_cache(maxsize=64)
def _body_prefix(form: RequestForm, purpose: str, system: str, schema_json: str, most: int) -> str:
    """Return the JSON before the user prompt, which is last; it is constant for a stage."""
    is_plain = "response_format" in form.refused
    request: dict[str, Any] = {"model": form.model, form.token_limit: most}
    if not is_plain:
        answer = {"name": purpose, "strict": True, "schema": json.loads(schema_json)}
        request["response_format"] = {"type": "json_schema", "json_schema": answer}
    if form.effort and "reasoning_effort" not in form.refused:
        request["reasoning_effort"] = form.effort
    request |= sampling_of(form)
    if form.verified:
        request["provider"] = {"aci_verified": True}
    system = with_schema(system, schema_json) if is_plain else system
    request["messages"] = [{"role": "system", "content": system}, {"role": "user", "content": ""}]
    return json.dumps(request, ensure_ascii=False, separators=(",", ":"), allow_nan=False).removesuffix('""}]}')


def _build(judge: JudgeName, settings: Settings) -> OpenAiLlm:
    require("openai", judge.text)
    key = endpoint_key(settings, judge, settings.openai_api_key, "OPENAI_API_KEY")
    if not judge.attestation:
        return OpenAiLlm(judge.model, api_key=key, base_url=judge.base_url)
    from clara_eval.judge.attestation import SigningOpenAi

    require("attestation", judge.text)
    return SigningOpenAi(judge.model, api_key=key, base_url=judge.base_url, interface=judge.attestation)


PROVIDER = Provider(
    name="openai",
    form="openai:MODEL, openai:MODEL@https://host/v1",
    build=_build,
    price=lambda judge, at: public_price(judge.model, "openai", at, judge.base_url),
    takes_address=True,
    signs=SIGNING_INTERFACES,
    thinks=lambda judge: thinks(judge.model),
)
