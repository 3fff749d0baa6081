"""Decide what is due for a challenge; the options, the tick and the report that all duties share.

Invariant: the chain is the source of truth, and deadlines are compared with block time; `due` is pure.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Self

import structlog

from clara_eval.app import App
from clara_eval.chain.model import Block, Challenge, ChallengeStatus
from clara_eval.challenges.challenge_index import read_many
from clara_eval.challenges.status import reason_of
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import read_stored
from clara_eval.core.errors import ClaraError, ConfigError, StoreDown
from clara_eval.core.hashing import plain_json
from clara_eval.core.model import FINALIZATION_SECONDS
from clara_eval.documents.results import STOPPED_STATES, EvalStatus
from clara_eval.documents.store_keys import INDEX, status_key
from clara_eval.service.metrics import Alert, Alerts, Metrics

_log = structlog.get_logger(__name__)
ALARM_SHARE = 0.5  # Share of the scoring window that may pass without a post before an alert
DEEP_SECONDS = 3600  # A post this old is deeper than any known reorg of a rollup
LAST_TICK = "engine:last-tick"
FINISHED = "engine:over:"
"""Key prefix of the challenges for which nothing will be due again; the value is the final status."""
Start = Callable[[Challenge], Awaitable[object]]  # Queue the evaluation of a challenge
Active = Callable[[], Awaitable[frozenset[Address]]]
"""Return the challenges whose evaluation is queued or running in any process."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    tick_cron: str = "*/5 * * * *"
    tick_seconds: float = 300  # Between ticks; `/healthz` reports the engine as stale after three of them
    beat_seconds: float = 5
    lease_seconds: float = 30  # A worker that does not renew its lease for so long is dead, and its work is taken over
    poll_seconds: float = 1.0  # Interval at which a worker looks for queued work
    worker_evaluations: int = 8  # Concurrent evaluations per process, each until its post is confirmed
    global_evaluations: int = 64  # Concurrent evaluations of all processes
    retry_seconds: float = 60  # First pause after a temporary failure; it doubles up to `retry_seconds_max`
    retry_seconds_max: float = 1800
    keep_days: int = 30  # Finished workflows older than this are deleted
    finalize_seconds: float = 120.0
    """Time limit of this part of a tick, as the next three: unfinished work continues at the next tick."""
    publish_seconds: float = 120.0
    measure_seconds: float = 30.0
    read_seconds: float = 60.0  # Per challenge

    @classmethod
    def ticking(cls, seconds: int) -> Self:
        """Return the defaults with a tick every `seconds`, a divisor of a minute, an hour or a day."""
        if seconds < 60:
            return cls(f"*/{seconds} * * * * *", seconds)
        if seconds < 3600:
            return cls(f"*/{seconds // 60} * * * *", seconds)
        return cls(f"0 */{seconds // 3600} * * *", seconds)


DEFAULTS = EngineOptions()


class DueAction(StrEnum):
    NONE = "none"
    EVALUATE = "evaluate"
    RECORD = "record"  # Scores are on the chain, but not in the store
    RESEND = "resend"  # An earlier key of ours signed a post that is not mined: broadcast it again
    FINALIZE = "finalize"
    CLOSE = "close"  # The contract ended without scores, which is not in the store


@dataclass(frozen=True, slots=True)
class RecordedChallenge:
    address: Address
    evaluator: Address
    status: ChallengeStatus
    deadline: int
    scoring_deadline: int
    score_posted_at: int

    @classmethod
    @lru_cache(maxsize=16_384)  # more than a tick reads; most rows have not changed
    def read(cls, text: str) -> Self:
        """Parse a stored `Summary`, without its texts."""
        summary = json.loads(text)
        return cls(
            Address(summary["address"]),
            to_address(summary["evaluator"]),
            ChallengeStatus[summary["chainStatus"].upper()],
            summary["deadline"],
            summary["scoringDeadline"],
            summary["scorePostedAt"] or 0,
        )


ChallengeState = Challenge | RecordedChallenge


@dataclass(frozen=True, slots=True)
class Memory:
    """What the store has about earlier work on a challenge."""

    status: str | None = None
    retry_at: int | None = None  # Wall-clock time of the next attempt, if one is planned
    is_approved: bool = False  # A person approved the result in review
    is_signed: bool = False  # The challenge's evaluator, our current or an earlier key, signed a post in this store
    posts_at: int | None = None  # Block time at which the default of the review is posted
    objections_until: int | None = None  # Block time at which the announced result is posted


@dataclass(frozen=True, slots=True)
class Due:
    action: DueAction
    why: str
    window_used: float = 0.0  # Share of the scoring window that has passed, while a post is missing
    may_change_unseen: bool = False
    """Read it at every tick: it can change without an event, or a reorg can undo its post."""


def due(
    challenge: ChallengeState, memory: Memory, *, evaluator: Address, chain_now: int, wall_now: float, can_sign: bool
) -> Due:
    if challenge.evaluator != evaluator and not memory.is_signed:
        return Due(DueAction.NONE, "another evaluator")
    if challenge.status in {ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED}:
        action = DueAction.NONE if memory.status in STOPPED_STATES else DueAction.CLOSE
        return Due(action, f"the contract is {challenge.status.name.lower()}")
    if challenge.score_posted_at:
        return _due_after_post(challenge, memory, chain_now, can_sign=can_sign)
    if chain_now <= challenge.deadline:
        return Due(DueAction.NONE, "submissions are open")
    if challenge.status is ChallengeStatus.OPEN and not can_sign:
        why = "advanceToScoring has not been called, and a dry run cannot call it"
        return Due(DueAction.NONE, why, may_change_unseen=True)
    used = window_used(challenge, chain_now)
    if challenge.evaluator != evaluator:
        action = DueAction.RESEND if can_sign and challenge.status is ChallengeStatus.SCORING else DueAction.NONE
        return Due(action, "an earlier key signed its post", used, may_change_unseen=True)
    if (reason := _reason_to_wait(memory, chain_now, wall_now, can_sign=can_sign)) is not None:
        return Due(DueAction.NONE, reason, used)
    return Due(DueAction.EVALUATE, "the deadline has passed and nothing is posted", used)


def due_now(app: App, challenge: ChallengeState, memory: Memory, head: Block) -> Due:
    now, can_sign = time.time(), app.sender.can_sign
    return due(challenge, memory, evaluator=app.evaluator, chain_now=head.timestamp, wall_now=now, can_sign=can_sign)


def window_used(challenge: ChallengeState, chain_now: int) -> float:
    """Return the used share of the scoring window: 0 at the deadline, 1 at the scoring deadline."""
    return max(0.0, (chain_now - challenge.deadline) / max(1, challenge.scoring_deadline - challenge.deadline))


def _due_after_post(challenge: ChallengeState, memory: Memory, chain_now: int, *, can_sign: bool) -> Due:
    if memory.status != "complete":
        return Due(DueAction.RECORD, "scores are on the chain")
    age = chain_now - challenge.score_posted_at
    if challenge.status is ChallengeStatus.SCORING and age >= FINALIZATION_SECONDS and can_sign:
        return Due(DueAction.FINALIZE, "12 hours have passed since the post")
    return Due(DueAction.NONE, "posted", may_change_unseen=age < DEEP_SECONDS)


def _reason_to_wait(memory: Memory, chain_now: int, wall_now: float, *, can_sign: bool) -> str | None:
    """Return why an evaluation that is due does not start now, or None if it does."""
    posts_at = memory.posts_at if memory.status == "review" else None
    if any(moment is not None and chain_now >= moment for moment in (posts_at, memory.objections_until)):
        return None
    if memory.status in STOPPED_STATES:
        return f"it ended as {memory.status}"
    if memory.status == "complete" and not can_sign:
        return "the dry run is complete"
    is_timed = memory.retry_at is not None and wall_now >= memory.retry_at  # the time for objections is over
    if memory.status == "review" and not memory.is_approved and not is_timed:
        return "it waits for a person"
    return "its next attempt is later" if memory.retry_at is not None and wall_now < memory.retry_at else None


@dataclass(slots=True)
class TickReport:
    at: int
    head_block: int = 0
    head_lag_seconds: float = 0.0
    balance_wei: int | None = None
    posts_left: int | None = None
    nonce_gap: str | None = None  # Sentence about nonces that are missing before signed transactions
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
    read_again: set[str] = field(default_factory=set)  # challenges to read at the next tick, even without events
    still_open: set[str] = field(default_factory=set)  # Known challenges before their deadline, of any evaluator
    opened: list[Challenge] = field(default_factory=list)  # Our open challenges with entries, read at this tick

    async def run_isolated(self, what: str, part: Awaitable[None]) -> None:
        """Run a part whose failure must not stop the tick."""
        try:
            await part
        except (ConfigError, StoreDown):
            raise
        except Exception as bad:  # noqa: BLE001 - the other parts of the tick must run
            self.add_failure("tick_part_failed", what, bad, reason_of(bad), part=what)

    def add_failure(self, event: str, about: str, bad: Exception, why: str = "", **facts: str) -> None:
        """Log a failure and add it to the report; an unexpected error is logged with its traceback."""
        is_ours = isinstance(bad, (ClaraError, TimeoutError))
        _log.warning(event, **facts, problem=str(bad), exc_info=None if is_ours else bad)
        self.report.problems.append(f"{about}: {why or str(bad) or type(bad).__name__}")

    @asynccontextmanager
    async def within(self, seconds: float, what: str) -> AsyncIterator[None]:
        """Cancel the body after `seconds` and note that in the report."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            _log.warning("goes_on_later", part=what, seconds=seconds)
            self.report.problems.append(f"{what} is taking long: it continues at the next tick.")

    async def addresses(self, prefix: str) -> list[str]:
        return [key.removeprefix(prefix) for key in await self.app.store.keys(self.app.chain_id, prefix)]

    def watch_deadline(self, challenge: ChallengeState, found: Due) -> None:
        """Record how near the scoring deadline is while a post is missing; alert after `ALARM_SHARE`."""
        if not found.window_used or challenge.status not in {ChallengeStatus.OPEN, ChallengeStatus.SCORING}:
            return
        left = (challenge.scoring_deadline - challenge.deadline) * (1 - found.window_used)
        nearest = self.report.nearest_deadline_seconds
        self.report.nearest_deadline_seconds = left if nearest is None else min(nearest, left)
        self.report.window_used = max(self.report.window_used, found.window_used)
        if found.window_used >= ALARM_SHARE:
            used = 100 * found.window_used
            summary = f"{used:.0f} % of the scoring window is gone and nothing is posted ({found.why})."
            self.alerts.raise_alert(Alert("DeadlineAtRisk", "critical", summary, challenge.address))

    async def count_statuses(self) -> None:
        app, report = self.app, self.report
        finished = {key.removeprefix(FINISHED): name for key, name in await app.store.items(app.chain_id, FINISHED)}
        others = [address for address in await self.addresses(INDEX) if address not in finished]
        known = await read_many(app.store, app.chain_id, EvalStatus, status_key, others)
        states = [known[address].status if address in known else "pending" for address in others]
        report.statuses = dict(Counter([*finished.values(), *states]))
        report.reviews = report.statuses.get("review", 0)
        month = datetime.fromtimestamp(report.at, UTC).replace(day=1, hour=0, minute=0, second=0)
        spends = await app.store.spends(since=int(month.timestamp()))
        settled = (s.reserved_micro_usd if s.settled_micro_usd is None else s.settled_micro_usd for s in spends)
        report.month_spend_usd = sum(settled) / 1_000_000
