"""Prometheus metrics, health, alerts and OpenTelemetry spans (extra `telemetry`) of one process.

Invariant: no prompt, answer or submission is in a span. A gauge without a value yet is NaN; a counter that an alert
watches starts at 0.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import partial
from typing import Literal, get_args

import aiohttp
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from clara_eval.app import App
from clara_eval.core.extras import require
from clara_eval.core.version import __version__
from clara_eval.judge.port import PaidAnswer
from clara_eval.store.sql_store import Leases

disable_created_metrics()  # type: ignore[no-untyped-call] # it has no types
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_LONG_SECONDS = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
AlertName = Literal[
    "BalanceLow", "BudgetReached", "ChainUnreachable", "DatabaseUnavailable", "DeadlineAtRisk", "DiscoveryFailing",
    "EvaluationFailed", "EvaluationStuck", "GasCapReached", "HeadLagging", "JudgeBiased", "NonceGap", "NoncesLost",
    "PostedByAnother", "PostedLate", "PublicationFailing", "ResourcesShort", "ReviewWaiting", "SettingsWrong",
    "TicksStale", "TransactionUnknown", "Unscorable", "WorkerLost",
]  # fmt: skip  # All alerts of the webhook; the Prometheus rules have them too, and two that no webhook can send.
_log = structlog.get_logger(__name__)
_TIMEOUT_SECONDS = 10
_MAX_REMEMBERED = 10_000
REPEAT_SECONDS = 3600  # An alert is not sent again within this time
STALLED_ALERTS: dict[str, AlertName] = {
    "balance": "BalanceLow",
    "gas_cap": "GasCapReached",
    "nonces": "NoncesLost",
    "gap": "NonceGap",
}
Severity = Literal["warning", "critical"]
BEAT_STALE_SECONDS = 30.0
TICKS_MISSED = 3
_SHORT_SECONDS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120)
_SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Metrics:
    def __init__(self, version: str = "") -> None:
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, namespace="clara", registry=self.registry)
        counter = partial(Counter, namespace="clara", registry=self.registry)
        histogram = partial(Histogram, namespace="clara", registry=self.registry)
        gauge("build_info", "The running version, always 1.", ["version"]).labels(version).set(1)

        self.reported = {
            "balance_wei": gauge("evaluator_balance_wei", "Balance of the evaluator's account."),
            "posts_left": gauge("evaluator_posts_left", "Posts the balance still pays for at the present fee."),
            "head_block": gauge("head_block", "Newest block the node knows."),
            "head_lag_seconds": gauge("head_lag_seconds", "Age of the newest block when it was read."),
            "at": gauge("last_good_tick_timestamp_seconds", "When the last good tick ended."),
            "nearest_deadline_seconds": gauge(
                "nearest_scoring_deadline_seconds", "Seconds to the nearest scoring deadline without a post."
            ),
            "window_used": gauge("scoring_window_used_ratio", "Largest share of a scoring window gone without a post."),
            "reviews": gauge("review_queue", "Evaluations that wait for a person."),
            "month_spend_usd": gauge("month_spend_usd", "Spent or reserved this month."),
        }  # Gauges by the field of the last tick's report that they show.
        self.rpc_up = gauge("rpc_up", "1 while a node answers, 0 while none does.")
        self.ticks = counter("ticks_total", "Ticks by result.", ["result"])
        self.tick_seconds = histogram("tick_seconds", "Duration of a tick.", buckets=_SHORT_SECONDS)
        self.loop_beat_at = gauge("loop_beat_timestamp_seconds", "Last heartbeat of the event loop.")
        self.loop_lag = gauge("loop_lag_seconds", "How late the event loop's heartbeat was.")

        self.evaluations = counter("evaluations_total", "Ended evaluations by outcome.", ["outcome"])
        self.evaluation_listeners: list[Callable[[str, str, float], None]] = []
        """Called with the challenge, outcome and seconds of every ended attempt."""
        self.evaluation_seconds = histogram("evaluation_seconds", "Duration of an evaluation.", buckets=_LONG_SECONDS)
        self.running = gauge("evaluations_running", "Evaluations running in this process.")
        self.challenges = gauge("challenges", "Challenges by evaluation status.", ["status"])
        self.window_left_at_post = histogram(
            "scoring_window_left_ratio", "Share of the scoring window left when scores were posted.", buckets=_SHARES
        )
        self.degraded = counter(
            "degraded_total", "Evaluations that asked fewer questions to meet the deadline.", ["how"]
        )
        self.takeovers = counter("takeovers_total", "Workflows taken over from dead workers.")
        self.swap_consistency = gauge(
            "swap_consistency_ratio", "Share of games whose result did not change with the order, last evaluation."
        )

        self.llm_calls = counter("llm_calls_total", "Requests to models by result.", ["llm", "purpose", "result"])
        self.llm_tokens = counter("llm_tokens_total", "Tokens by direction.", ["llm", "direction"])
        self.llm_cost = counter("llm_cost_usd_total", "Dollars paid to models, with a known price.", ["llm"])
        self.llm_seconds = histogram("llm_seconds", "Latency of a model's answer.", ["llm"], buckets=_SHORT_SECONDS)
        self.month_budget = gauge("month_budget_usd", "The month's cap; 0 if there is none.")

        self.transactions = counter("transactions_total", "Transactions sent, by outcome.", ["intention", "outcome"])
        self.alerts = counter("alerts_total", "Alerts raised.", ["alert"])
        self.webhook_failures = counter("webhook_failures_total", "Alerts that could not be delivered.")
        self.http_requests = counter("http_requests_total", "Requests by route and status.", ["route", "status"])

        for name in ("posts_left", "nearest_deadline_seconds"):
            self.reported[name].set(float("nan"))
        self.swap_consistency.set(float("nan"))
        for name in get_args(AlertName):
            self.alerts.labels(name)
        for outcome in ("failed", "bug", "reverted", "temporary", "settings"):
            self.evaluations.labels(outcome)
        for intention in ("post_scores", "advance_to_scoring", "finalize", "feedback"):
            self.transactions.labels(intention, "unknown")

    def render(self) -> bytes:
        return generate_latest(self.registry)


@dataclass(slots=True)
class ServiceHealth:
    mode: str  # `all`, `worker-only` or `api-only`
    tick_seconds: float
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)
    beat: float = field(init=False)
    tick: float | None = None
    tick_problem: str | None = None
    wallet_problem: str | None = None  # What keeps the wallet from sending

    def __post_init__(self) -> None:
        self.started = self.beat = self.clock()

    def beating(self) -> None:
        self.beat = self.clock()

    def ticked(self, problem: str | None = None) -> None:
        self.tick, self.tick_problem = self.clock(), problem

    @property
    def stale_reason(self) -> str | None:
        now = self.clock()
        if now - self.beat > BEAT_STALE_SECONDS:
            return f"The event loop has not run for {now - self.beat:.0f} s."
        since = now - (self.started if self.tick is None else self.tick)
        if self.mode != "api-only" and since > TICKS_MISSED * self.tick_seconds:
            return f"No tick has ended for {since:.0f} s; one is due every {self.tick_seconds:.0f} s."
        return None

    def report(self, version: str) -> dict[str, object]:
        now, stale = self.clock(), self.stale_reason
        problems = [problem for problem in (stale, self.wallet_problem, self.tick_problem) if problem]
        return {
            "status": "stale" if stale else "degraded" if problems else "ok",
            "mode": self.mode,
            "version": version,
            "uptimeSeconds": round(now - self.started, 1),
            "beatAgeSeconds": round(now - self.beat, 1),
            "tickAgeSeconds": None if self.tick is None else round(now - self.tick, 1),
            "problems": problems,
        }


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; docs/operations.md has a section for each `name`."""

    name: AlertName
    severity: Severity
    summary: str
    challenge: str | None = None
    details: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Webhook:
    url: str
    secret: str | None
    pauses: tuple[float, ...] = (1, 5, 30, 120)  # Seconds between attempts; there is one more attempt than pauses


def signature(secret: str, timestamp: int, body: bytes) -> str:
    return "v1=" + hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


@dataclass(slots=True, eq=False)
class Alerts:
    _metrics: Metrics
    _webhook: Webhook | None = None
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    leases: Leases | None = None  # Shared by all workers, so that only one sends an alert
    _sent: dict[tuple[str, str | None], float] = field(default_factory=dict)
    _deliveries: set[asyncio.Task[None]] = field(default_factory=set)

    def raise_alert(self, alert: Alert) -> bool:
        """Log, count and send the alert; False if it was already raised within `REPEAT_SECONDS`."""
        key, now = (alert.name, alert.challenge), self.clock()
        if now - self._sent.get(key, float("-inf")) < REPEAT_SECONDS:
            return False
        if len(self._sent) >= _MAX_REMEMBERED:
            self._sent.clear()
        self._sent[key] = now
        log = _log.warning if alert.severity == "warning" else _log.error
        log("alert_raised", alert=alert.name, severity=alert.severity, summary=alert.summary,
            about=alert.challenge, details=alert.details)  # fmt: skip
        self._metrics.alerts.labels(alert.name).inc()
        if self._webhook is not None:
            task = asyncio.get_running_loop().create_task(self._deliver(self._webhook, alert, int(now)))
            self._deliveries.add(task)
            task.add_done_callback(self._deliveries.discard)
        return True

    async def close(self, *, patience_seconds: float = 5) -> None:
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=patience_seconds)
        for task in list(self._deliveries):
            task.cancel()

    async def _deliver(self, webhook: Webhook, alert: Alert, at: int) -> None:
        facts = asdict(alert)
        document = {"alert": facts.pop("name"), **facts, "raisedAt": at}
        body = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str).encode()
        if not await self._is_first(alert):
            return
        for number, pause in enumerate((*webhook.pauses, None)):
            problem = await self._send(webhook, body)
            if problem is None:
                return
            _log.warning("webhook_refused", alert=alert.name, attempt=number + 1, problem=problem)
            if pause is not None:
                await asyncio.sleep(pause)
        self._metrics.webhook_failures.inc()
        _log.error("webhook_given_up", alert=alert.name)

    async def _is_first(self, alert: Alert) -> bool:
        """Return whether no worker sent this alert within `REPEAT_SECONDS`; True if the store is down."""
        if self.leases is None:
            return True
        name = f"alert:{alert.name}:{alert.challenge or ''}"
        try:
            return await self.leases.take_lease(name, uuid.uuid4().hex, REPEAT_SECONDS)
        except Exception as bad:  # noqa: BLE001 - a repeated alert is better than none
            _log.warning("alert_may_repeat", alert=alert.name, problem=str(bad))
            return True

    async def _send(self, webhook: Webhook, body: bytes) -> str | None:
        """Return None if it was accepted, else the problem without the URL, which may contain a key."""
        timestamp = int(self.clock())
        headers = {"content-type": "application/json", "x-clara-timestamp": str(timestamp)}
        if webhook.secret:
            headers["x-clara-signature"] = signature(webhook.secret, timestamp, body)
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)) as session,
                session.post(webhook.url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return None if 200 <= response.status < 300 else f"HTTP {response.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as bad:
            return type(bad).__name__


_FAILED = frozenset({"rate_limited", "unanswered", "failed", "refused", "bug", "reverted", "temporary", "settings"})
"""Results of calls and outcomes of evaluations that mark a span as an error."""


class Telemetry:
    """Export spans with a private tracer; the global one is not changed."""

    def __init__(self, url: str, version: str, chain_id: int) -> None:
        require("telemetry", "CLARA_OTLP_URL")
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        names = {"service.name": "clara-eval", "service.version": version}
        self._provider = TracerProvider(resource=Resource({**names, "clara.chain_id": chain_id}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=10)))
        self._tracer = self._provider.get_tracer("clara_eval", version)

    def record_call(self, llm: str, purpose: str, result: str, seconds: float) -> None:
        provider, _, model = llm.partition("@")[0].partition(":")
        facts = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}
        self._add_span(f"chat {model}", seconds, result, {**facts, "clara.purpose": purpose})

    def record_evaluation(self, challenge: str, outcome: str, seconds: float) -> None:
        self._add_span("evaluate", seconds, outcome, {"clara.challenge": challenge}, event=True)

    def close(self) -> None:
        self._provider.shutdown()

    def _add_span(self, name: str, seconds: float, result: str, facts: dict[str, str], *, event: bool = False) -> None:
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
    """Count every model call and answer of the app; return a function that sends the last spans."""
    url = app.settings.otlp_url
    telemetry = Telemetry(url, __version__, app.chain_id) if url else None

    def count_answer(paid: PaidAnswer) -> None:
        metrics.llm_calls.labels(paid.llm, paid.purpose, paid.answer.stop).inc()
        metrics.llm_tokens.labels(paid.llm, "input").inc(paid.answer.input_tokens)
        metrics.llm_tokens.labels(paid.llm, "output").inc(paid.answer.output_tokens)
        if paid.cost_micro_usd is not None:
            metrics.llm_cost.labels(paid.llm).inc(paid.cost_micro_usd / 1_000_000)

    def count_call(llm: str, purpose: str, result: str, seconds: float) -> None:
        metrics.llm_seconds.labels(llm).observe(seconds)
        # Answers are counted when they are saved; only calls without an answer are counted here.
        if result in {"rate_limited", "unanswered", "failed", "refused"}:
            metrics.llm_calls.labels(llm, purpose, result).inc()
        if telemetry is not None:
            telemetry.record_call(llm, purpose, result, seconds)

    app.store.answer_listeners.append(count_answer)
    app.models.on_call = count_call
    if telemetry is None:
        return partial(asyncio.sleep, 0)
    metrics.evaluation_listeners.append(telemetry.record_evaluation)
    return partial(asyncio.to_thread, telemetry.close)
