"""Tell before money is escrowed that a config needs a model which its evaluator lacks."""

from __future__ import annotations

from clara_eval.challenges.stored_results import ApiRecords, StoreRecords
from clara_eval.config.eval_config import EvalConfig, compile_schema
from clara_eval.config.settings import Settings
from clara_eval.core.errors import Temporary
from clara_eval.judge.costs.quote import needs_model
from clara_eval.judge.extraction import asked_features
from clara_eval.judge.providers.registry import models_of, parse_jury


def has_model(judges: str) -> bool:
    """Whether one of these judges is a language model."""
    return bool(models_of(parse_jury(judges)))


def missing_model(config: EvalConfig, judges: str, *, who: str = "CLARA_JUDGES") -> str | None:
    return None if has_model(judges) else _sentence(config, f"{who} names none")


async def missing_model_of(service: StoreRecords | ApiRecords, settings: Settings, config: EvalConfig) -> str | None:
    """Ask the service that will evaluate, else look at these settings."""
    if settings.api_url is None:
        return missing_model(config, settings.judges)
    try:
        is_there = await service.has_model()
    except Temporary as away:
        return f"Whether the service has a model for this config is not known. {away}" if needs_model(config) else None
    return _sentence(config, f"the service at {settings.api_url} has none") if is_there is False else None


def _sentence(config: EvalConfig, lack: str) -> str | None:
    if not needs_model(config):
        return None
    names = ", ".join(feature.name for feature in asked_features(compile_schema(config)[0])) or "the comparison"
    return (
        f"This config needs a language model ({names}), and {lack}: it could not be evaluated, and after the scoring "
        "deadline everybody would share the prize equally. Use features with source measured and a direction, or an "
        "evaluator with a model."
    )
