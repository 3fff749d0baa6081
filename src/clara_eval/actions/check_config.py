"""Check an eval config: every problem, what it compiles to, and what an evaluation costs."""

from __future__ import annotations

from typing_extensions import TypedDict

from clara_eval.actions.model_needed import missing_model
from clara_eval.actions.quote import quote_posting
from clara_eval.config.eval_config import (
    collect_problems,
    compile_schema,
    config_hash,
    parse_eval_config,
)
from clara_eval.config.settings import Settings
from clara_eval.judge.costs.quote import needs_model

USUAL_ENTRIES = 20


class ConfigResult(TypedDict, total=False):
    """Only `ok` and `problems` if the config is not usable."""

    ok: bool
    problems: list[dict[str, object]]
    hash: str
    canonicalHash: str
    features: list[dict[str, object]]
    untyped: list[str]
    needsModel: bool
    warnings: list[str]
    quoteUsd: float | None
    """For twenty entries; null where a judge has no known price."""


def check_config(content: bytes, settings: Settings) -> ConfigResult:
    problems = collect_problems(content)
    found = ConfigResult(
        ok=all(problem.severity != "error" for problem in problems), problems=[one.to_json() for one in problems]
    )
    if not found["ok"]:
        return found
    config = parse_eval_config(content)
    schema, untyped = compile_schema(config)
    quote = quote_posting(settings, config, USUAL_ENTRIES)
    lacking = missing_model(config, settings.judges)
    return ConfigResult(
        **found,
        hash=config_hash(content),
        canonicalHash=config_hash(config.canonical),
        features=[{**feature.to_json(), "judged": feature in schema.judged} for feature in schema.features],
        untyped=list(untyped),
        needsModel=needs_model(config),
        warnings=[lacking] if lacking else [],
        quoteUsd=None if quote is None else quote / 1_000_000,
    )
