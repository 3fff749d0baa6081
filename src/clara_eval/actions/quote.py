"""Check an eval config, estimate its cost, and check that its evaluator has a model for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import comb

from typing_extensions import TypedDict

from clara_eval.challenges.stored_results import ApiRecords, StoreRecords
from clara_eval.config.eval_config import EvalConfig, collect_problems, compile_schema, config_hash, parse_eval_config
from clara_eval.config.eval_config.reading import is_hard_to_read
from clara_eval.config.settings import Settings
from clara_eval.core.errors import Temporary
from clara_eval.judge.costs.budgets import caps_of
from clara_eval.judge.costs.quote import GAS_MICRO_USD, Jury, Quote, Size, needs_model, to_json
from clara_eval.judge.costs.quote import quote as quote_calls
from clara_eval.judge.extraction import asked_features
from clara_eval.judge.provider import (
    JudgeName,
    models_of,
    parse_jury,
    price_cards,
    provider_of,
    thinking_models,
    token_limits,
)
from clara_eval.ranking import choose_schedule

__all__ = ["GAS_MICRO_USD", "Quote", "Size"]
JURY_NOTE = (
    "A second judge often adds little: one judge asked in both orders tells about as much for the same price. The "
    "ranking measures how alike they err. With CLARA_JURY=in-turn, further judges are asked only near the paid places."
)
IN_TURN_NOTE = (
    "The judges are asked in turn. The first compares all entries. Each further one is asked only if a paid place is "
    "not clear, then about as often as shown."
)
USUAL_ENTRIES = 20  # entries assumed for the quote when the poster names no number


def has_model(judges: str) -> bool:
    return bool(models_of(parse_jury(judges)))


def missing_model(config: EvalConfig, judges: str, lack: str = "CLARA_JUDGES names none") -> list[str]:
    """Return a warning if the config needs a model that its evaluator lacks; else nothing."""
    if has_model(judges) or not needs_model(config):
        return []
    names = ", ".join(feature.name for feature in asked_features(compile_schema(config)[0])) or "the comparison"
    warning = (
        f"This config needs a language model ({names}), and {lack}: it could not be evaluated, and after the scoring "
        "deadline everybody would share the prize equally. Use features with source measured and a direction, or an "
        "evaluator with a model."
    )
    return [warning]


async def missing_model_of(service: StoreRecords | ApiRecords, settings: Settings, config: EvalConfig) -> list[str]:
    """Return the warning for the service that will evaluate, else for these settings."""
    if settings.api_url is None:
        return missing_model(config, settings.judges)
    try:
        service_has_model = await service.has_model()
    except Temporary as away:
        unknown = f"Whether the service has a model for this config is not known. {away}"
        return [unknown] if needs_model(config) else []
    lack = f"the service at {settings.api_url} has none"
    return missing_model(config, "rules", lack) if service_has_model is False else []


def quote_posting(settings: Settings, config: EvalConfig, entries: int) -> int | None:
    """Estimate all pairs in both orders and the post in micro-USD; None if a model or price is missing."""
    jury = parse_jury(settings.judges)
    if needs_model(config) and not models_of(jury):
        return None
    return _quote(config, settings, Size(entries, entries * (entries - 1)), jury).total_micro_usd


@dataclass(frozen=True, slots=True)
class ScheduleQuote:
    schedule: str
    quote: Quote
    notes: list[str]
    warnings: list[str]

    @property
    def document(self) -> dict[str, object]:
        return {"schedule": self.schedule, **to_json(self.quote), "notes": self.notes, "warnings": self.warnings}


def quote_config(config: EvalConfig, settings: Settings, *, judges: str, size: Size, schedule: str) -> ScheduleQuote:
    """Quote an evaluation by stage; schedule `auto` is the one that it would choose within its cap."""
    jury = parse_jury(judges or settings.judges)
    all_looks = _quote(config, settings, replace(size, looks=2 * comb(size.submissions, 2)), jury)
    cap = caps_of(settings).per_challenge
    literal = settings.elo == "literal"
    judge = "rules" if config.judge == "rules" or not models_of(jury) else "model"
    choose = partial(choose_schedule, [str(number) for number in range(size.submissions)], (judge,), literal=literal)
    affordable, wanted = all_looks.affordable_looks(cap), choose(max_comparisons=None, name=schedule).usual_questions
    chosen = choose(max_comparisons=affordable, name=schedule)
    in_turn = settings.jury == "in-turn" and not literal and len(models_of(jury)) > 1
    further = choose(max_comparisons=affordable, name="adaptive").usual_questions if in_turn else None
    size = replace(size, looks=chosen.usual_questions, further_looks=further)
    found = _quote(config, settings, size, jury)
    notes = [IN_TURN_NOTE if in_turn else JURY_NOTE] if len(jury) > 1 else []
    if hard := [feature.name for feature in config.features if is_hard_to_read(feature)]:
        notes.append(f"Small models often misread {', '.join(hard)}: measure it if you can.")
    named = f"CLARA_BUDGET_PER_CHALLENGE_USD (${settings.budget_per_challenge_usd:,.2f})"
    if cap is not None and (found.models_micro_usd or 0) > cap:
        notes.append(f"{named} does not pay for {size.submissions:,} entries: the round would be deferred.")
    elif size.looks < wanted:
        notes.append(f"{named} pays for {size.looks:,} of about {wanted:,} comparisons.")
    return ScheduleQuote(chosen.name, found, notes, missing_model(config, judges or settings.judges))


def _quote(config: EvalConfig, settings: Settings, size: Size, jury: Sequence[JudgeName]) -> Quote:
    models, cards = models_of(jury), price_cards(settings, jury)
    batching = {judge.text for judge in models if provider_of(judge).answer_in_batches is not None}
    priced = {judge.text: cards[judge.text] for judge in models}
    limits = token_limits(settings, jury)
    return quote_calls(config, size, Jury(priced, batching, thinking_models(jury), limits))


class ConfigResult(TypedDict, total=False):
    """The check of a config; only `ok` and `problems` if it is not usable."""

    ok: bool
    problems: list[dict[str, object]]
    hash: str
    canonicalHash: str
    features: list[dict[str, object]]
    untyped: list[str]
    needsModel: bool
    warnings: list[str]
    quoteUsd: float | None  # for 20 entries; null if a judge has no known price


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
    return ConfigResult(
        **found,
        hash=config_hash(content),
        canonicalHash=config_hash(config.canonical),
        features=[{**feature.to_json(), "judged": feature in schema.judged} for feature in schema.features],
        untyped=list(untyped),
        needsModel=needs_model(config),
        warnings=missing_model(config, settings.judges),
        quoteUsd=None if quote is None else quote / 1_000_000,
    )


async def check_config_for(service: StoreRecords | ApiRecords, content: bytes, settings: Settings) -> ConfigResult:
    """Check a config, with the warnings of the service that will evaluate it, but not its prices."""
    found = check_config(content, settings)
    if found["ok"] and settings.api_url is not None:
        found["warnings"] = await missing_model_of(service, settings, parse_eval_config(content))
        found["quoteUsd"] = None if found["needsModel"] else found["quoteUsd"]
    return found
