"""The report of a tick: kept in the store, so that every process shows the same health and metrics."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from clara_eval.app import App
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import STATES
from clara_eval.service.metrics import Metrics

LAST_TICK = "engine:last-tick"


@dataclass(slots=True)
class TickReport:
    at: int
    head_block: int = 0
    head_lag_seconds: float = 0.0
    balance_wei: int | None = None
    posts_left: int | None = None
    nonce_gap: str | None = None
    """The nonces that are missing before signed transactions, in words."""
    statuses: dict[str, int] = field(default_factory=dict)
    started: int = 0
    reviews: int = 0
    nearest_deadline_seconds: float | None = None
    window_used: float = 0.0
    month_spend_usd: float = 0.0
    problems: list[str] = field(default_factory=list)


async def save_report(app: App, report: TickReport) -> None:
    await app.store.put(app.chain_id, LAST_TICK, plain_json(asdict(report)))


async def read_report(app: App) -> TickReport | None:
    text = await app.store.get(app.chain_id, LAST_TICK)
    return TickReport(**json.loads(text)) if text else None


def show_report(report: TickReport, metrics: Metrics, month_budget_usd: float | None) -> None:
    """Set the gauges of this process from the last tick of any process."""
    metrics.head_block.set(report.head_block)
    metrics.head_lag.set(report.head_lag_seconds)
    if report.balance_wei is not None:
        metrics.balance_wei.set(report.balance_wei)
    if report.posts_left is not None:
        metrics.posts_left.set(report.posts_left)
    for status in STATES:
        metrics.challenges.labels(status).set(report.statuses.get(status, 0))
    metrics.review_queue.set(report.reviews)
    left = report.nearest_deadline_seconds
    metrics.nearest_deadline.set(float("nan") if left is None else left)
    metrics.window_used.set(report.window_used)
    metrics.month_spend.set(report.month_spend_usd)
    metrics.month_budget.set(month_budget_usd or 0)
    metrics.last_good_tick_at.set(report.at)
