"""One process of the service: ticks, evaluations, takeovers and heartbeats.

Invariant: on SQLite there is only one process; a worker that lost its lease stops at once; interrupted work stays
queued and continues in another process.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import structlog

from clara_eval.app import App
from clara_eval.challenges.status import gravest, public_text
from clara_eval.core.errors import ClaraError, ConfigError, RanOut, StoreDown, Temporary
from clara_eval.core.private_file import make_private
from clara_eval.documents.results import STATES
from clara_eval.service.attempt_runner import AttemptRunner
from clara_eval.service.due import EngineOptions, TickReport, read_report, save_report
from clara_eval.service.loop import run_tick
from clara_eval.service.metrics import Alert, AlertName, Alerts, Metrics, ServiceHealth
from clara_eval.service.queue import Queue, Takeovers, Workflows, cancel_steps, run_dbos
from clara_eval.service.requests import ServiceRequests
from clara_eval.store.leases import worker_lease
from clara_eval.store.open import is_sqlite, sqlite_path

_log = structlog.get_logger(__name__)


@contextmanager
def only_process(database: Path) -> Iterator[None]:
    """Hold the lock file of the database; ConfigError if another process holds it."""
    path = database.with_name(database.name + ".lock")
    make_private(path)
    with path.open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read(20).strip() or "unknown"
            raise ConfigError(
                f"Another clara-eval process (id {holder}) already works with {database}.",
                remedy="SQLite serves one process: stop the other one, or set CLARA_DATABASE_URL to Postgres.",
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


TICK_ALERTS: dict[type[BaseException], AlertName] = {
    ConfigError: "SettingsWrong",
    StoreDown: "DatabaseUnavailable",
    RanOut: "ResourcesShort",
    Temporary: "ChainUnreachable",
    BaseException: "TicksStale",
}  # The alert by the error that ended a tick; the first match counts.
LAGGING_SECONDS = 300  # Age of the newest block
Mode = Literal["all", "worker-only", "api-only"]


class Engine:
    def __init__(
        self, app: App, metrics: Metrics, alerts: Alerts, *, mode: Mode = "all", options: EngineOptions | None = None
    ) -> None:
        self.app, self.metrics, self.alerts, self.mode = app, metrics, alerts, mode
        self.options = options or EngineOptions.ticking(app.settings.tick_seconds)
        self.health = ServiceHealth(mode, self.options.tick_seconds)
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.lost = asyncio.Event()  # Set when another worker declared this one dead: the process must end
        self.queue = Queue(app, self.options)
        self.requests = ServiceRequests(app, self.queue)
        self._is_alone = is_sqlite(app.settings.database_url)
        self._runner = AttemptRunner(app, self.worker, self.options, metrics, alerts)
        self._takeovers = Takeovers(app.store, self.worker, self.options.lease_seconds, self._is_alone)
        self._started_at = int(time.time())
        app.sender.notices.append(self._report_gap)
        alerts.leases = app.store

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Engine]:
        async with AsyncExitStack() as stack:
            app, url = self.app, self.app.settings.database_url
            stack.enter_context(only_process(Path(sqlite_path(url))) if self._is_alone else nullcontext())
            await app.store.take_lease(worker_lease(self.worker), self.worker, self.options.lease_seconds)
            functions: Workflows = {"evaluate_challenge": self._runner.attempt, "tick": self.tick}
            is_worker = self.mode != "api-only"
            self.queue.workflows = await stack.enter_async_context(
                run_dbos(url, self.worker, functions, self.options, listens=is_worker, evaluator=app.sender.address)
            )
            stack.push_async_callback(self._stop, asyncio.create_task(self._beat()))
            if is_worker:
                await self.queue.start_ticks(self.worker)
            _log.info("engine_started", worker=self.worker, mode=self.mode)
            yield self

    async def _stop(self, heartbeat: asyncio.Task[None]) -> None:
        heartbeat.cancel()
        with suppress(asyncio.CancelledError):
            await heartbeat
        await cancel_steps()
        with suppress(Temporary):
            # Released, so that other workers need not wait until it expires.
            await self.app.store.drop_lease(worker_lease(self.worker), self.worker)
        _log.info("engine_stopped", worker=self.worker)

    async def tick(self, *_schedule: object) -> dict[str, Any]:
        started = time.monotonic()
        try:
            report = await run_tick(
                self.app, self.alerts, self.metrics, self.queue.enqueue, active=self.queue.active, options=self.options
            )
            await save_report(self.app, report)
            await self._take_over()
            await self.queue.delete_old_workflows()
        except Exception as bad:  # noqa: BLE001 - a bug is reported like any other failure of a tick
            return await self._report_failed_tick(bad, time.monotonic() - started)
        self._apply_report(report)
        if report.head_lag_seconds > LAGGING_SECONDS:
            summary = f"The node's newest block is {report.head_lag_seconds / 60:.0f} minutes old."
            self.alerts.raise_alert(Alert("HeadLagging", "warning", summary))
        self.metrics.ticks.labels("good").inc()
        self.metrics.tick_seconds.observe(time.monotonic() - started)
        _log.info("tick_ended", started=report.started, problems=len(report.problems), block=report.head_block)
        return {"started": report.started}

    async def _report_failed_tick(self, bad: Exception, seconds: float) -> dict[str, Any]:
        self.metrics.ticks.labels("failed").inc()
        self.metrics.tick_seconds.observe(seconds)
        known = gravest(bad)
        name = next(alert for kind, alert in TICK_ALERTS.items() if isinstance(known, kind))
        if name in {"ChainUnreachable", "DatabaseUnavailable"}:
            self.metrics.rpc_up.set(name == "DatabaseUnavailable")  # a tick reads from the node first
        is_ours = isinstance(known, ClaraError)
        problem = str(known) if is_ours else f"A tick ended unexpectedly ({type(known).__name__})."
        self.health.ticked(public_text(problem) or "A setting is wrong; the log names it.")
        _log.error("tick_failed", problem=problem, exc_info=None if is_ours else bad)
        self.alerts.raise_alert(Alert(name, "critical", problem))
        return {"problem": problem}

    async def _report_gap(self, problem: str) -> None:
        self.health.wallet_problem = problem
        self.alerts.raise_alert(Alert("NonceGap", "warning", problem))

    def _apply_report(self, report: TickReport) -> None:
        """Publish a report of any process; one from before our start updates metrics but not health."""
        if report.at >= self._started_at:
            self.health.ticked(None)
            self.health.wallet_problem = report.nonce_gap
            self.metrics.rpc_up.set(1)
        for name, gauge in self.metrics.reported.items():
            value = getattr(report, name)
            if value is not None:
                gauge.set(value)
        if report.nearest_deadline_seconds is None:
            self.metrics.reported["nearest_deadline_seconds"].set(float("nan"))
        for status in STATES:
            self.metrics.challenges.labels(status).set(report.statuses.get(status, 0))
        self.metrics.month_budget.set(self.app.settings.budget_per_month_usd or 0)

    async def _take_over(self) -> None:
        taken = await self._takeovers.put_back()
        self.metrics.takeovers.inc(taken)
        if taken:
            pieces = f"{taken} piece{'s' if taken > 1 else ''} of work"
            summary = f"{self.worker} took over {pieces} from a worker that stopped."
            self.alerts.raise_alert(Alert("WorkerLost", "warning", summary))

    async def _beat(self) -> None:
        """Report that the event loop runs, renew the worker's lease, and take over from dead workers."""
        looked_at, shown_at = time.monotonic(), 0
        while not self.lost.is_set():
            expected = time.monotonic() + self.options.beat_seconds
            await asyncio.sleep(self.options.beat_seconds)
            self.metrics.loop_lag.set(max(0.0, time.monotonic() - expected))
            self.metrics.loop_beat_at.set(time.time())
            self.health.beating()
            try:
                lease = worker_lease(self.worker)
                if not await self.app.store.take_lease(lease, self.worker, self.options.lease_seconds):
                    _log.error("worker_declared_dead", worker=self.worker)
                    summary = f"{self.worker} was declared dead and stops."
                    self.alerts.raise_alert(Alert("WorkerLost", "critical", summary))
                    self.lost.set()
                    await cancel_steps()
                report = await read_report(self.app)
                if report is not None and report.at > shown_at:
                    shown_at = report.at
                    self._apply_report(report)
                if self.mode != "api-only" and time.monotonic() - looked_at > self.options.lease_seconds / 2:
                    looked_at = time.monotonic()
                    await self._take_over()
            except ClaraError as bad:
                _log.warning("beat_failed", problem=str(bad))
            except Exception as bad:  # noqa: BLE001 - after any error the lease must still be renewed
                _log.error("beat_failed", problem=type(bad).__name__, exc_info=bad)
