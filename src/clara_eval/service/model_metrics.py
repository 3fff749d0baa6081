"""Count what models are asked and answer, in metrics and in OpenTelemetry spans (extra `telemetry`).

Invariant: no prompt, answer or submission is in a span.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from clara_eval.app import App
from clara_eval.core.extras import require
from clara_eval.core.version import __version__
from clara_eval.judge.port import PaidAnswer
from clara_eval.service.metrics import Metrics

_FAILED = frozenset({"rate_limited", "unanswered", "failed", "refused", "bug", "reverted", "temporary", "settings"})
"""Results of calls and outcomes of evaluations that are errors."""


class Telemetry:
    """A tracer of its own: nothing global is touched."""

    def __init__(self, url: str, version: str, chain_id: int) -> None:
        require("telemetry", "CLARA_OTLP_URL")
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        facts: dict[str, str | int] = {
            "service.name": "clara-eval",
            "service.version": version,
            "clara.chain_id": chain_id,
        }
        self._provider = TracerProvider(resource=Resource(facts))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=10)))
        self._tracer = self._provider.get_tracer("clara_eval", version)

    def called(self, llm: str, purpose: str, result: str, seconds: float) -> None:
        provider, _, model = llm.partition("@")[0].partition(":")
        facts = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}
        self._ended(f"chat {model}", seconds, result, {**facts, "clara.purpose": purpose})

    def evaluated(self, challenge: str, outcome: str, seconds: float) -> None:
        self._ended("evaluate", seconds, outcome, {"clara.challenge": challenge}, event=True)

    def close(self) -> None:
        self._provider.shutdown()

    def _ended(self, name: str, seconds: float, result: str, facts: dict[str, str], *, event: bool = False) -> None:
        from opentelemetry.trace import Status, StatusCode

        end = time.time_ns()
        facts = {**facts, "clara.result": result}
        span = self._tracer.start_span(name, attributes=facts, start_time=end - int(seconds * 1e9))
        if event:
            label = {"gen_ai.evaluation.name": "round", "gen_ai.evaluation.score.label": result}
            span.add_event("gen_ai.evaluation.result", label)
        if result in _FAILED:
            span.set_status(Status(StatusCode.ERROR, result))
        span.end(end)


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
