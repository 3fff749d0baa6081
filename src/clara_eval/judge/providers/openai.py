"""Any OpenAI-compatible endpoint over HTTP; one that refuses an option is asked once more without it."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

from clara_eval.config.settings import Settings
from clara_eval.core.errors import Temporary
from clara_eval.core.extras import require
from clara_eval.core.model import INTERFACES
from clara_eval.judge.costs.budgets import public_price
from clara_eval.judge.port import Answer, Prompt, Unanswered, describe_sampling
from clara_eval.judge.provider import EFFORT, JudgeName, Provider, endpoint_key
from clara_eval.judge.providers.wire import TOO_LONG, HttpLlm, ModelReply, said_by
from clara_eval.judge.reading import TOKEN_LIMITS, read_completion, with_schema

OPENAI = "https://api.openai.com/v1"
SEED = 20_270_101  # any fixed number: equal requests ask for equal samples, if the provider honours it
_SIGNS = {
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
_ANSWERS_AT_ONCE = re.compile(r"instruct|non-?thinking|-chat\b|-chat-latest", re.IGNORECASE)
"""Families that think before they answer. A model that is not known here begins with the bare limit, and it grows."""


class RequestForm(NamedTuple):
    """How an endpoint wants to be asked: everything of a request but the prompt."""

    model: str
    token_limit: str
    refused: frozenset[str] = frozenset()
    effort: str = ""  # how much a model that thinks is to think; empty for one that does not
    verified: bool = False  # only a provider whose enclave the gateway has checked may answer


class OpenAiLlm(HttpLlm):
    """One model at one endpoint."""

    def __init__(self, model: str, *, api_key: str, base_url: str | None = None, interface: str = "") -> None:
        self.model, self.interface = model, interface
        name = f"openai:{model}" + (f"@{base_url}" if base_url else "") + (f"#{interface}" if interface else "")
        headers = {"Accept-Encoding": "identity"} if interface else {}  # compressed bytes would not be the signed ones
        super().__init__(name, base_url or OPENAI, api_key, "OPENAI_API_KEY", headers)
        # Old compatible servers ignore the newer name, which would lift the limit; OpenAI's new models refuse the old.
        limit, effort = "max_tokens" if base_url else "max_completion_tokens", EFFORT if thinks(model) else ""
        self._form = RequestForm(model, limit, effort=effort, verified=interface == "aci")

    async def complete(self, prompt: Prompt) -> Answer:
        for _ in range(len(_SIGNS) + 2):
            form = self._form
            sent = request_body(form, prompt)
            reply = await self.post("/chat/completions", sent)
            if reply.is_ok:
                return await self._answered(prompt, sent, reply, describe_sampling(sampling_of(form)))
            words = said_by(reply.content)
            if reply.status not in (400, 422) or TOO_LONG.search(words) or not self._gives_way(words.lower(), form):
                raise self.refusal(reply)
        raise Temporary(f"{self.name} refuses every form of the request.")

    def _gives_way(self, text: str, before: RequestForm) -> bool:
        """Drop what the refusal names; True if the next request differs from the refused one."""
        form = self._form
        if before != form:
            return True
        for option, signs in _SIGNS.items():
            if option not in form.refused and any(sign in text for sign in signs):
                self._form = form._replace(refused=form.refused | {option})
                return True
        if form.token_limit in text and "token_limit" not in form.refused:
            other = TOKEN_LIMITS[1 - TOKEN_LIMITS.index(form.token_limit)]
            self._form = form._replace(refused=form.refused | {"token_limit"}, token_limit=other)
            return True
        return False

    async def _answered(self, prompt: Prompt, sent: bytes, reply: ModelReply, sampling: str) -> Answer:  # noqa: ARG002 - who signs, signs it
        content = reply.content
        try:
            if b'"error"' in content:  # a gateway may answer 200 with an error inside
                body = json.loads(content)
                if isinstance(body, dict) and not body.get("choices") and isinstance(body.get("error"), dict):
                    code = body["error"].get("code")
                    raise self.refusal(ModelReply(code if isinstance(code, int) else 500, {}, content))
            return read_completion(content, prompt, self.model, sampling)
        except ValueError:
            # It came with a 200, so it may be charged.
            raise Unanswered(f"{self.name} answered with something that is not a chat completion.") from None


def thinks(model: str) -> bool:
    """Return whether models of this name are known to think before they answer."""
    return _THINKS.search(model) is not None and _ANSWERS_AT_ONCE.search(model) is None


def sampling_of(form: RequestForm) -> dict[str, int]:
    """Return what is sent against chance, as far as the endpoint takes it; models that think take no temperature."""
    wanted = {"seed": SEED} if form.effort else {"temperature": 0, "seed": SEED}
    return {name: value for name, value in wanted.items() if name not in form.refused}


def request_body(form: RequestForm, prompt: Prompt) -> bytes:
    begun = _begun(form, prompt.purpose, prompt.system, prompt.schema_json, prompt.max_tokens)
    return f"{begun}{json.dumps(prompt.user, ensure_ascii=False)}}}]}}".encode()


@lru_cache(maxsize=64)
def _begun(form: RequestForm, purpose: str, system: str, schema_json: str, most: int) -> str:
    """Write up to the user's part, which comes last; the rest is constant for a stage."""
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
    signs=INTERFACES,
    thinks=lambda judge: thinks(judge.model),
)
