"""Send OpenTelemetry spans of evaluations and model calls by OTLP over HTTP (extra `telemetry`).

Invariant: no prompt, answer or submission is in a span.
"""

from __future__ import annotations

import time

from clara_eval.core.extras import require

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
