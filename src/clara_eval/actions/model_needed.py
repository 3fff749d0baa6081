"""Whether a config needs a language model, and whether who would evaluate it has one: said before money is escrowed.

A config comes in; a sentence goes out where its challenge could not be evaluated: the features a model has to read, who
has none, and what to do. None means that nothing is wrong, or that nobody could be asked.
"""

from __future__ import annotations

from typing import Protocol

from clara_eval.config.eval_config import EvalConfig, compile_schema
from clara_eval.config.settings import Settings
from clara_eval.core.errors import Temporary
from clara_eval.judge.expected_calls import needs_model
from clara_eval.judge.extraction import asked_features
from clara_eval.judge.providers.registry import models_of, parse_jury


class Service(Protocol):
    async def has_model(self) -> bool | None: ...


def has_model(settings: Settings) -> bool:
    """Whether these settings name a language model as a judge."""
    return bool(models_of(parse_jury(settings.judges)))


def missing_model(config: EvalConfig, judges: str, *, who: str = "CLARA_JUDGES") -> str | None:
    """What to say where a config needs a model and these judges are none."""
    return None if models_of(parse_jury(judges)) else _sentence(config, f"{who} names none")


async def missing_model_of(service: Service, settings: Settings, config: EvalConfig) -> str | None:
    """The same for who will evaluate: the service that the settings name, else these settings themselves."""
    if settings.api_url is None:
        return missing_model(config, settings.judges)
    try:
        has_model = await service.has_model()
    except Temporary as away:
        return f"Whether the service has a model for this config is not known. {away}" if needs_model(config) else None
    return _sentence(config, f"the service at {settings.api_url} has none") if has_model is False else None


def _sentence(config: EvalConfig, lack: str) -> str | None:
    if not needs_model(config):
        return None
    names = ", ".join(feature.name for feature in asked_features(compile_schema(config)[0])) or "the comparison"
    return (
        f"This config needs a language model ({names}), and {lack}: it could not be evaluated, and after the scoring "
        "deadline everybody would share the prize equally. Use features with source measured and a direction, or an "
        "evaluator with a model."
    )
