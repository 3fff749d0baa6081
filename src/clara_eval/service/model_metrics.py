"""Count what models are asked and answer, in metrics and in spans."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from clara_eval.app import App
from clara_eval.core.version import __version__
from clara_eval.judge.port import PaidAnswer
from clara_eval.service.metrics import Metrics
from clara_eval.service.telemetry import Telemetry


def watch_models(app: App, metrics: Metrics) -> Callable[[], Awaitable[None]]:
    """Count every call and answer of the app; the function returned sends the last spans."""
    app.store.answer_listeners.append(partial(_count_answer, metrics))
    app.models.watch = partial(_count_call, metrics)
    if not app.settings.otlp_url:
        return _nothing
    telemetry = Telemetry(app.settings.otlp_url, __version__, app.chain_id)
    metrics.evaluation_listeners.append(telemetry.evaluated)

    def called(llm: str, purpose: str, result: str, seconds: float) -> None:
        _count_call(metrics, llm, purpose, result, seconds)
        telemetry.called(llm, purpose, result, seconds)

    app.models.watch = called
    return partial(asyncio.to_thread, telemetry.close)


async def _nothing() -> None: ...


def _count_answer(metrics: Metrics, paid: PaidAnswer) -> None:
    metrics.llm_calls.labels(paid.llm, paid.purpose, paid.answer.stop).inc()
    metrics.llm_tokens.labels(paid.llm, "input").inc(paid.answer.input_tokens)
    metrics.llm_tokens.labels(paid.llm, "output").inc(paid.answer.output_tokens)
    if paid.cost_micro_usd is not None:
        metrics.llm_cost.labels(paid.llm).inc(paid.cost_micro_usd / 1_000_000)


def _count_call(metrics: Metrics, llm: str, purpose: str, result: str, seconds: float) -> None:
    """Answers are counted when they are saved, in batches too; a call without an answer only here."""
    metrics.llm_seconds.labels(llm).observe(seconds)
    if result in {"rate_limited", "unanswered", "failed", "refused"}:
        metrics.llm_calls.labels(llm, purpose, result).inc()
