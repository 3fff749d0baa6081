"""From a judge's name to the model behind it.

A name of `CLARA_JUDGES` and the settings come in, an `Llm` goes out. Nothing is connected yet. A form that is unknown,
a key that is missing, or a package that is not installed is a `ConfigError` that says which.
"""

from __future__ import annotations

from pydantic import SecretStr

from clara_eval.errors import ConfigError
from clara_eval.judge.jury import FORMS, JudgeName, parse_judge, parse_jury
from clara_eval.judge.port import Llm
from clara_eval.settings import Settings

NO_KEY = "no-key"
"""Sent to endpoints of one's own that ask for none; the SDK insists on some text."""


def build_llm(name: str | JudgeName, settings: Settings) -> Llm:
    """The model of this name; `rules` has none."""
    judge = parse_judge(name) if isinstance(name, str) else name
    if judge.provider == "anthropic":
        from clara_eval.llm.anthropic import AnthropicLlm

        return AnthropicLlm(judge.model, api_key=_key(settings.anthropic_api_key, "ANTHROPIC_API_KEY", judge))
    if judge.provider == "openai":
        from clara_eval.llm.openai import OpenAiLlm

        key = _openai_key(settings, judge)
        return OpenAiLlm(judge.model, api_key=key, base_url=judge.base_url)
    if judge.provider == "local":
        from clara_eval.llm.local import LocalLlm

        return LocalLlm()
    raise ConfigError(f"{judge.text} judges without a model.", remedy=f"A model is one of: {FORMS}.")


def _openai_key(settings: Settings, judge: JudgeName) -> str:
    """OpenAI's key goes to OpenAI, or to the one foreign address where OpenAI is not asked; never to a second party."""
    if judge.base_url is None:
        return _key(settings.openai_api_key, "OPENAI_API_KEY", judge)
    own = settings.keys_by_endpoint.get(judge.base_url)
    if own is not None:
        return own.get_secret_value()
    asked = {other.base_url for other in parse_jury(settings.judges) if other.provider == "openai"}
    if settings.openai_api_key is None or asked - {judge.base_url}:
        return NO_KEY
    return _key(settings.openai_api_key, "OPENAI_API_KEY", judge)


def _key(secret: SecretStr | None, variable: str, judge: JudgeName) -> str:
    if secret is None or not secret.get_secret_value().strip():
        raise ConfigError(f"{judge.text} needs a key, and {variable} is not set.", remedy=f"Set {variable}.")
    return secret.get_secret_value().strip()
