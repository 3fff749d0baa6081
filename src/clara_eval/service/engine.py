"""The engine: one process's share of the work, from its first heartbeat to its orderly end.

Comes in: an open `App`. Goes out, while `running` lasts: ticks, evaluations, takeovers, heartbeats, and the two things
a door may ask for (`request`, `decide`). Must hold: on SQLite it is the only process; a worker that finds its lease
taken stops at once; what is interrupted stays queued and goes on elsewhere.
"""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import structlog
from dbos import DBOS, ScheduleInput, SetEnqueueOptions, SetWorkflowID

from clara_eval.actions.evaluate import check_known
from clara_eval.actions.objections import object_to_draft
from clara_eval.actions.reveal import reveal_harness
from clara_eval.actions.review import Decree, approve, reject, rule
from clara_eval.app import App
from clara_eval.chain.model import Challenge
from clara_eval.challenges.attempt_memory import read_attempts, save_attempts, workflow_id
from clara_eval.challenges.challenge_index import save_summary
from clara_eval.challenges.objections import Objection
from clara_eval.challenges.read import look_at_challenge
from clara_eval.challenges.status import FINAL_STATES, StatusWriter
from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError, ConfigError, NotYet, Temporary
from clara_eval.core.processes import this_process
from clara_eval.documents.results import EvalStatus, read
from clara_eval.documents.store_keys import status_key
from clara_eval.service.alerts import Alert, Alerts
from clara_eval.service.attempt_runner import AttemptRunner
from clara_eval.service.chunks import Spreader
from clara_eval.service.dbos_runtime import (
    TICKS,
    Workflow,
    answered,
    evaluations_of,
    launched,
    step_apart,
)
from clara_eval.service.due import DueAction, Memory, due
from clara_eval.service.health import ServiceHealth
from clara_eval.service.metrics import Metrics
from clara_eval.service.options import EngineOptions
from clara_eval.service.process_lock import only_process
from clara_eval.service.takeover import Orphans, take_over
from clara_eval.service.tick import (
    Ticker,
    TickReport,
    read_report,
    save_report,
    show_report,
)
from clara_eval.store.leases import worker_lease
from clara_eval.store.open import is_sqlite, sqlite_path

_log = structlog.get_logger(__name__)
Mode = Literal["all", "worker-only", "api-only"]
ACTIVE = frozenset(("PENDING", "ENQUEUED", "DELAYED"))
_EPOCH = 1_577_836_800
"""2020: priorities are minutes since then, and fit DBOS's range for four thousand years."""
_CLEAN_SECONDS = 3600.0


class Engine:
    def __init__(
        self, app: App, metrics: Metrics, alerts: Alerts, *, mode: Mode = "all", options: EngineOptions | None = None
    ) -> None:
        self.app = app
        self.metrics = metrics
        self.alerts = alerts
        self.mode: Mode = mode
        self.options = options or EngineOptions.ticking(app.settings.tick_seconds)
        self.pulse = ServiceHealth(mode, self.options.tick_seconds)
        self.worker = f"{socket.gethostname()}-{this_process()}-{uuid.uuid4().hex[:8]}"
        self.lost = asyncio.Event()
        """Set when this worker was declared dead by another: the process has to end."""
        self._is_alone = is_sqlite(app.settings.database_url)
        self._walker = AttemptRunner(app, self.worker, self.options, metrics, alerts)
        self._ticker = Ticker(app, alerts, metrics, self._start, active=self._active)
        self._spreader = Spreader(app.store, app.models, self.worker, self.options)
        self._orphans = Orphans(self.worker, self.options.lease_seconds / 2)
        self._workflows: dict[str, Workflow] = {}
        self._started_at = int(time.time())
        app.sender.notices.append(self._tell_gap)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Engine]:
        """Turn until the body ends."""
        async with AsyncExitStack() as stack:
            url = self.app.settings.database_url
            stack.enter_context(only_process(Path(sqlite_path(url))) if self._is_alone else nullcontext())
            await self.app.store.take_lease(worker_lease(self.worker), self.worker, self.options.lease_seconds)
            functions: dict[str, Workflow] = {
                "evaluate_challenge": self._evaluate,
                "ask_chunk": self._ask_chunk,
                "tick": self._tick,
            }
            works = self.mode != "api-only"
            self._workflows = await stack.enter_async_context(
                launched(url, self.worker, functions, self.options, listens=works, evaluator=self.app.sender.address)
            )
            if not self._is_alone:
                self._spreader.workflow = self._workflows["ask_chunk"]
                self.app.models.spread = self._spreader.spread
            beating = asyncio.create_task(self._beat())
            stack.push_async_callback(self._stop, beating)
            if works:
                await self._apply_schedule()
                await self.tick_now()
            _log.info("engine_started", worker=self.worker, mode=self.mode)
            yield self

    async def _stop(self, beating: asyncio.Task[None]) -> None:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
        await self._walker.stop()
        with suppress(Temporary):
            # Given back, so that others need not wait for it to run out.
            await self.app.store.drop_lease(worker_lease(self.worker), self.worker)
        _log.info("engine_stopped", worker=self.worker)

    # what doors ask for

    async def request(self, address: Address) -> str:
        """Queue an evaluation now; the id of its workflow."""
        challenge = await self._known(address)
        app = self.app
        status = await read(app.store, app.chain_id, EvalStatus, status_key(address))
        state = status.status if status else None
        found = due(
            challenge, Memory("review" if state == "review" else None), evaluator=app.evaluator,
            chain_now=challenge.block.timestamp, wall_now=time.time(), can_sign=app.sender.can_sign,
        )  # fmt: skip
        if found.action is not DueAction.EVALUATE:
            raise NotYet(f"Challenge {address} is not evaluated now: {found.why}.")
        attempts = (await read_attempts(app.store, app.chain_id, address)).at_once()
        await save_attempts(app.store, app.chain_id, address, attempts)
        if state in {*FINAL_STATES, "deferred"}:
            await (await StatusWriter.resumed(app.store, app.chain_id, address)).say("pending", 0)
        return await self._enqueue(challenge)

    async def _known(self, address: Address) -> Challenge:
        await check_known(self.app, address)
        challenge = await look_at_challenge(self.app.chain, address)
        await save_summary(self.app.store, challenge, None)
        return challenge

    async def decide(
        self,
        address: Address,
        decision: Literal["approve", "reject"],
        reason: str,
        digest: str | None = None,
        by: str = "",
    ) -> None:
        """Follow a person's decision at once."""
        decide = approve if decision == "approve" else reject
        await decide(self.app.store, self.app.chain_id, address, note=reason, digest=digest, by=by)
        if decision == "approve":
            await self._enqueue(await look_at_challenge(self.app.chain, address))

    async def reveal(self, address: Address, document: str, signature: str) -> str:
        """Take a hidden harness that its poster reveals; the hash it was committed by."""
        await check_known(self.app, address)
        return await reveal_harness(self.app.ports, address, document, signature)

    async def object(self, address: Address, about: str, reason: str, signature: str) -> Objection:
        """Take a submitter's objection to an announced result."""
        await check_known(self.app, address)
        return await object_to_draft(self.app, address, about, reason, signature)

    async def rule(self, address: Address, decree: Decree, digest: str | None) -> None:
        """Walk the round again under a person's ruling, at once."""
        await rule(self.app.store, self.app.chain_id, address, decree, digest=digest)
        await self._enqueue(await look_at_challenge(self.app.chain, address))

    async def tick_now(self) -> None:
        """Queue a tick beside the regular ones."""
        with SetWorkflowID(f"tick:{self.worker}:{uuid.uuid4().hex[:8]}"):
            await answered(DBOS.enqueue_workflow_async(TICKS, self._workflows["tick"], None, None))

    # evaluations

    async def _start(self, challenge: Challenge) -> None:
        await self._enqueue(challenge)

    async def _enqueue(self, challenge: Challenge) -> str:
        """Queue the current attempt, earliest scoring deadline first; an attempt is queued at most once."""
        app, address = self.app, challenge.address
        attempts = await read_attempts(app.store, app.chain_id, address)
        name = workflow_id(app.chain_id, address, attempts.number)
        known = await answered(DBOS.get_workflow_status_async(name))
        if known is not None and known.status in ACTIVE:
            return name
        if known is not None:
            # It ended without writing its memory, which only a lost database explains: the next number goes on.
            attempts = attempts.after(None, failed=False)
            await save_attempts(app.store, app.chain_id, address, attempts)
            name = workflow_id(app.chain_id, address, attempts.number)
        priority = max(1, (challenge.scoring_deadline - _EPOCH) // 60)
        with SetWorkflowID(name), SetEnqueueOptions(priority=min(priority, 2**31 - 1)):
            await answered(
                DBOS.enqueue_workflow_async(
                    evaluations_of(challenge.evaluator),
                    self._workflows["evaluate_challenge"],
                    address,
                    attempts.number,
                )
            )
        _log.info("evaluation_queued", challenge=address, workflow=name)
        return name

    async def _active(self) -> frozenset[Address]:
        """Challenges whose evaluation is queued or running in any process, in one question."""
        before = f"evaluate:{self.app.chain_id}:"
        found = await answered(
            DBOS.list_workflows_async(
                status=sorted(ACTIVE), workflow_id_prefix=before, load_input=False, load_output=False
            )
        )
        return frozenset(Address(one.workflow_id.removeprefix(before).partition(":")[0]) for one in found)

    async def _evaluate(self, address: str, number: int) -> Any:
        """The workflow: one coarse step, because the evaluation keeps its own journal."""
        return await step_apart("attempt", self._walker.attempt, Address(address), number)

    async def _ask_chunk(self, wire: dict[str, Any]) -> Any:
        """The workflow of a chunk: some questions of an evaluation that runs here or elsewhere."""
        return await step_apart("chunk", self._walker.tracked, self._spreader.ask_chunk, wire)

    # ticks

    async def _apply_schedule(self) -> None:
        schedule: ScheduleInput = {
            "schedule_name": "tick",
            "workflow_fn": self._workflows["tick"],
            "schedule": self.options.tick_cron,
            "context": None,
            "queue_name": TICKS,
        }
        await DBOS.apply_schedules_async([schedule])

    async def _tick(self, _at: Any, _context: Any) -> Any:
        return await step_apart("tick", self._walker.tracked, self.tick)

    async def tick(self) -> dict[str, Any]:
        """One tick in this process; its problem, if it has one, is told and not raised."""
        started = time.monotonic()
        try:
            report = await self._ticker.tick()
            await save_report(self.app, report)
            await self._take_over()
            await self._clean()
        except Exception as bad:  # noqa: BLE001 - a tick that breaks is told like one that fails
            return await self._tick_failed(bad, time.monotonic() - started)
        self._ticked_well(report)
        show_report(report, self.metrics, self.app.settings.budget_per_month_usd)
        self.metrics.ticks.labels("good").inc()
        self.metrics.tick_seconds.observe(time.monotonic() - started)
        _log.info("tick_ended", started=report.started, problems=len(report.problems), block=report.head_block)
        return {"started": report.started}

    async def _tick_failed(self, bad: Exception, seconds: float) -> dict[str, Any]:
        self.metrics.ticks.labels("failed").inc()
        self.metrics.tick_seconds.observe(seconds)
        if isinstance(bad, ClaraError):
            self.metrics.rpc_up.set(0)
            said, name = str(bad), "SettingsWrong" if isinstance(bad, ConfigError) else "ChainUnreachable"
        else:
            said, name = f"An unexpected error ended the tick ({type(bad).__name__}).", "TicksStale"
        self.pulse.ticked(said)
        _log.error("tick_failed", problem=said, exc_info=None if isinstance(bad, ClaraError) else bad)
        self.alerts.raise_alert(Alert(name, "critical", said))
        return {"problem": said}

    async def _tell_gap(self, words: str) -> None:
        """A transaction found that nonces are missing before it."""
        self.pulse.wallet_problem = words
        self.alerts.raise_alert(Alert("NonceGap", "warning", words))

    def _ticked_well(self, report: TickReport) -> None:
        self.pulse.ticked(None)
        self.pulse.wallet_problem = report.nonce_gap
        self.metrics.rpc_up.set(1)

    async def _take_over(self) -> None:
        taken = await take_over(self.app.store, self.worker, self.options.lease_seconds, is_alone=self._is_alone)
        taken += await self._orphans.put_back()
        self.metrics.takeovers.inc(taken)

    async def _clean(self) -> None:
        """Finished workflows are forgotten after a while: their results are in the store."""
        before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - self.options.keep_days * 86400))
        old = await answered(DBOS.list_workflows_async(
            status=["SUCCESS", "ERROR", "CANCELLED"], completed_before=before, limit=500, load_input=False,
            load_output=False,
        ))  # fmt: skip
        if old:
            await answered(DBOS.delete_workflows_async([found.workflow_id for found in old]))

    # heartbeat

    async def _beat(self) -> None:
        """The loop's own sign of life, the worker's lease, and a look for dead workers between ticks."""
        looked = time.monotonic()
        seen = 0
        while not self.lost.is_set():
            expected = time.monotonic() + self.options.beat_seconds
            await asyncio.sleep(self.options.beat_seconds)
            self.metrics.loop_lag.set(max(0.0, time.monotonic() - expected))
            self.metrics.loop_beat_at.set(time.time())
            self.pulse.beating()
            try:
                await self._renew()
                seen = await self._follow_reports(seen)
                if self.mode != "api-only" and time.monotonic() - looked > self.options.lease_seconds / 2:
                    looked = time.monotonic()
                    await self._take_over()
            except ClaraError as bad:
                _log.warning("beat_failed", problem=str(bad))
            except Exception as bad:  # noqa: BLE001 - whatever it is, the lease has to be renewed
                _log.error("beat_failed", problem=type(bad).__name__, exc_info=bad)

    async def _renew(self) -> None:
        lease = worker_lease(self.worker)
        if await self.app.store.take_lease(lease, self.worker, self.options.lease_seconds):
            return
        _log.error("worker_declared_dead", worker=self.worker)
        self.alerts.raise_alert(Alert("WorkerLost", "critical", f"{self.worker} was declared dead and stops."))
        self.lost.set()
        await self._walker.stop()

    async def _follow_reports(self, seen: int) -> int:
        """Ticks of other processes count for this one's health too; of one before our start only the numbers do."""
        report = await read_report(self.app)
        if report is None or report.at <= seen:
            return seen
        if report.at >= self._started_at:
            self._ticked_well(report)
        show_report(report, self.metrics, self.app.settings.budget_per_month_usd)
        return report.at
