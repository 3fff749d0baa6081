"""Log and count alerts, and send them to a webhook, signed and retried."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Literal

import aiohttp
import structlog

from clara_eval.core.errors import Stalled
from clara_eval.service.metrics import AlertName, Metrics
from clara_eval.store.leases import Leases

_log = structlog.get_logger(__name__)
_TIMEOUT_SECONDS = 10
_MOST_REMEMBERED = 10_000
REPEAT_SECONDS = 3600
STALLED_ALERTS: dict[str, AlertName] = {
    "balance": "BalanceLow",
    "gas_cap": "GasCapReached",
    "nonces": "NoncesLost",
    "gap": "NonceGap",
}

Severity = Literal["warning", "critical"]


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert; `name` is a section of docs/operations.md."""

    name: AlertName
    severity: Severity
    summary: str
    challenge: str | None = None
    details: dict[str, object] = field(default_factory=dict)


def stalled_alert(bad: Stalled, address: str) -> Alert:
    return Alert(STALLED_ALERTS[bad.cause], "critical", str(bad), address)


@dataclass(frozen=True, slots=True)
class Webhook:
    url: str
    secret: str | None
    pauses: tuple[float, ...] = (1, 5, 30, 120)  # Seconds between attempts; one attempt more than pauses


def signature(secret: str, timestamp: int, body: bytes) -> str:
    return "v1=" + hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


class Alerts:
    def __init__(
        self, metrics: Metrics, webhook: Webhook | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._metrics = metrics
        self._webhook = webhook
        self._clock = clock
        self.leases: Leases | None = None
        """Shared by all workers: an alert that one of them sent is not sent by another."""
        self._sent: dict[tuple[str, str | None], float] = {}
        self._deliveries: set[asyncio.Task[None]] = set()

    def raise_alert(self, alert: Alert) -> bool:
        """Log, count and deliver the alert; False if it was raised within `REPEAT_SECONDS`."""
        key, now = (alert.name, alert.challenge), self._clock()
        if now - self._sent.get(key, float("-inf")) < REPEAT_SECONDS:
            return False
        if len(self._sent) >= _MOST_REMEMBERED:
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
            problem = await self._attempt(webhook, body)
            if problem is None:
                return
            _log.warning("webhook_refused", alert=alert.name, attempt=number + 1, problem=problem)
            if pause is not None:
                await asyncio.sleep(pause)
        self._metrics.webhook_failures.inc()
        _log.error("webhook_given_up", alert=alert.name)

    async def _is_first(self, alert: Alert) -> bool:
        """Whether no worker sent this alert within `REPEAT_SECONDS`; a store that is away never holds one back."""
        if self.leases is None:
            return True
        name = f"alert:{alert.name}:{alert.challenge or ''}"
        try:
            return await self.leases.take_lease(name, uuid.uuid4().hex, REPEAT_SECONDS)
        except Exception as bad:  # noqa: BLE001 - rather twice than never
            _log.warning("alert_may_repeat", alert=alert.name, problem=str(bad))
            return True

    async def _attempt(self, webhook: Webhook, body: bytes) -> str | None:
        """Return None if it was taken, else the problem; the URL may hold a key and is never named."""
        timestamp = int(self._clock())
        headers = {"content-type": "application/json", "x-clara-timestamp": str(timestamp)}
        if webhook.secret:
            headers["x-clara-signature"] = signature(webhook.secret, timestamp, body)
        limit = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.post(webhook.url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                return None if 200 <= answer.status < 300 else f"HTTP {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as bad:
            return type(bad).__name__
