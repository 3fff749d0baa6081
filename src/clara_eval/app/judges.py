"""The jury of the settings: its plan, a check of its models, and models for calibration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clara_eval.challenges.model_pool import ModelPool
from clara_eval.config.settings import Settings
from clara_eval.core.errors import Temporary
from clara_eval.core.hashing import plain_json
from clara_eval.core.model import micro_usd
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge.costs.budgets import FREE, RunBudget, caps_of, no_price
from clara_eval.judge.port import Prompt
from clara_eval.judge.provider import build_llm, models_of, parse_jury, price_cards, provider_of, token_limits
from clara_eval.judge.reading import object_schema
from clara_eval.judge.retrying_llm import CONTROL
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.store.open import opened_store
from clara_eval.store.sql_store import SqlStore

CHECK = Prompt("schema", "This only checks the connection.", CONTROL, plain_json(object_schema(ok={})), 16, "")
CHECK_SECONDS = 30.0


def plan_of(settings: Settings, *, schedule: str = "auto", max_games: int | None = None) -> EvaluationPlan:
    return EvaluationPlan(
        tuple(judge.text for judge in parse_jury(settings.judges)),
        schedule,
        max_games,
        elo="literal" if settings.elo == "literal" else None,
        jury="in-turn" if settings.jury == "in-turn" else None,
    )


async def check_judges(settings: Settings) -> int:
    """Ask every model of the jury for a few tokens, and return how many there are."""
    jury = parse_jury(settings.judges)
    for name, card in price_cards(settings, jury).items():
        if card is None and caps_of(settings).tightest is not None:
            raise no_price(name)
    models = models_of(jury)
    for judge in models:
        llm = build_llm(judge, settings)
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                if not provider_of(judge).models:  # fixed models run in this process
                    await llm.complete(CHECK)
        except TimeoutError:
            raise Temporary(f"{judge.text} did not answer within {CHECK_SECONDS:.0f} s.") from None
        finally:
            await llm.close()
    return len(models)


@asynccontextmanager
async def open_jury(
    settings: Settings, judges: str = ""
) -> AsyncIterator[tuple[dict[str, StructuredLlm | None], SqlStore]]:
    """Open the judges of the jury, None for rules, and the store that keeps their answers."""
    jury = parse_jury(judges or settings.judges)
    async with opened_store(settings.database_url) as store:
        pool = ModelPool(settings.model_copy(update={"judges_as_set": ",".join(judge.text for judge in jury)}), store)
        free = all(card == FREE for card in price_cards(settings, jury).values())
        budget = RunBudget(None if free else micro_usd(settings.budget_per_challenge_usd))
        opened: dict[str, StructuredLlm | None] = {judge.text: None for judge in jury}
        for judge in models_of(jury):
            line = pool.line(judge.text, "calibration", budget, 3600.0)
            opened[judge.text] = StructuredLlm(line, token_limits(settings, jury))
        try:
            yield opened, store
        finally:
            await pool.close()
