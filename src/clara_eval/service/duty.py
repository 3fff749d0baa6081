"""The tick that every duty works with, its report, and how a failing part is kept apart."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field

import structlog

from clara_eval.app import App
from clara_eval.chain.model import Block, Challenge, ChallengeStatus
from clara_eval.challenges.challenge_index import read_many
from clara_eval.challenges.status import reason_of
from clara_eval.core.address import Address
from clara_eval.core.codec import read_stored
from clara_eval.core.errors import ClaraError, ConfigError, StoreDown
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import STATES, EvalStatus
from clara_eval.documents.store_keys import INDEX, status_key
from clara_eval.service.due import ALARM_SHARE, ChallengeState, Due, Memory, due
from clara_eval.service.metrics import Alert, Alerts, Metrics
from clara_eval.service.options import EngineOptions

_log = structlog.get_logger(__name__)
LAST_TICK = "engine:last-tick"
ANNOUNCED = "engine:announced:"  # Before the address of every challenge that the factory announced, readable or not
OVER = "engine:over:"
"""Before the address of every challenge for which nothing will be due any more; the value is how it ended."""
Start = Callable[[Challenge], Awaitable[object]]  # Queue the evaluation of a challenge
Active = Callable[[], Awaitable[frozenset[Address]]]
"""List the challenges whose evaluation is queued or running in any process."""


@dataclass(slots=True)
class TickReport:
    at: int
    head_block: int = 0
    head_lag_seconds: float = 0.0
    balance_wei: int | None = None
    posts_left: int | None = None
    nonce_gap: str | None = None  # The nonces that are missing before signed transactions, in words
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
    return read_stored(TickReport, text) if text else None


def show_report(report: TickReport, metrics: Metrics, month_budget_usd: float | None) -> None:
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


@dataclass(frozen=True, slots=True)
class Tick:
    app: App
    alerts: Alerts
    metrics: Metrics
    start: Start
    active: Active
    options: EngineOptions
    head: Block
    safe: Block
    report: TickReport
    read_again: set[str] = field(default_factory=set)
    """Challenges to read again at the next tick, whatever their events say."""
    still_open: set[str] = field(default_factory=set)  # Known challenges whose deadline is ahead, ours or not
    opened: list[Challenge] = field(default_factory=list)
    """Our open challenges with entries that were read at this tick."""

    async def apart(self, what: str, part: Awaitable[None]) -> None:
        """Run a part whose failure must not stop the tick."""
        try:
            await part
        except (ConfigError, StoreDown):
            raise
        except Exception as bad:  # noqa: BLE001 - the other parts of the tick go on
            _log.warning("tick_part_failed", part=what, problem=str(bad), exc_info=unexpected(bad))
            self.report.problems.append(f"{what}: {reason_of(bad)}")

    @asynccontextmanager
    async def within(self, seconds: float, what: str) -> AsyncIterator[None]:
        """Cut the body off after `seconds`, with a problem in the report."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            _log.warning("goes_on_later", part=what, seconds=seconds)
            self.report.problems.append(f"{what} is taking long: it continues at the next tick.")

    async def addresses(self, prefix: str) -> list[str]:
        keys = await self.app.store.keys(self.app.chain_id, prefix)
        return [key.removeprefix(prefix) for key in keys]

    def watch_deadline(self, challenge: ChallengeState, found: Due) -> None:
        """Note how near the scoring deadline is while a post is missing, and alert past half of the window."""
        is_missing = challenge.status in {ChallengeStatus.OPEN, ChallengeStatus.SCORING}
        if not found.window_used or not is_missing:
            return
        left = (challenge.scoring_deadline - challenge.deadline) * (1 - found.window_used)
        nearest = self.report.nearest_deadline_seconds
        self.report.nearest_deadline_seconds = left if nearest is None else min(nearest, left)
        self.report.window_used = max(self.report.window_used, found.window_used)
        if found.window_used >= ALARM_SHARE:
            gone = f"{100 * found.window_used:.0f} % of the scoring window is gone and nothing is posted ({found.why})."
            self.alerts.raise_alert(Alert("DeadlineAtRisk", "critical", gone, challenge.address))


def due_now(app: App, challenge: ChallengeState, memory: Memory, head: Block) -> Due:
    now, can_sign = time.time(), app.sender.can_sign
    return due(challenge, memory, evaluator=app.evaluator, chain_now=head.timestamp, wall_now=now, can_sign=can_sign)


def unexpected(bad: Exception) -> Exception | None:
    """Return the error if it is none of ours and its traceback belongs in the log."""
    return None if isinstance(bad, (ClaraError, TimeoutError)) else bad


async def count(tick: Tick) -> None:
    app, report = tick.app, tick.report
    over = {key.removeprefix(OVER): name for key, name in await app.store.items(app.chain_id, OVER)}
    going = [address for address in await tick.addresses(INDEX) if address not in over]
    known = await read_many(app.store, app.chain_id, EvalStatus, status_key, going)
    states = [known[address].status if address in known else "pending" for address in going]
    report.statuses = dict(Counter([*over.values(), *states]))
    report.reviews = report.statuses.get("review", 0)
    month = time.strftime("%Y-%m", time.gmtime(report.at))
    spends = await app.store.spends(since=report.at - 32 * 86400)
    counted = (s for s in spends if time.strftime("%Y-%m", time.gmtime(s.at)) == month)
    settled = (s.reserved_micro_usd if s.settled_micro_usd is None else s.settled_micro_usd for s in counted)
    report.month_spend_usd = sum(settled) / 1_000_000
