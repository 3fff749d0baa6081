"""The queue of evaluations and ticks, on DBOS, and the takeover from dead workers.

Invariant: an attempt is queued at most once, and the earliest scoring deadline comes first; taking a worker's lease
proves that it is dead and keeps other workers from taking over at the same time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from dbos import DBOS, ScheduleInput, SetEnqueueOptions, SetWorkflowID

from clara_eval.app import App
from clara_eval.chain.model import Challenge
from clara_eval.challenges.status import read_attempts, save_attempts, workflow_id
from clara_eval.core.address import Address
from clara_eval.service.dbos_runtime import TICKS, Workflow, answered, evaluations_of, runs_here
from clara_eval.service.options import EngineOptions
from clara_eval.store.leases import Leases, worker_lease

_log = structlog.get_logger(__name__)
_ACTIVE = frozenset(("PENDING", "ENQUEUED", "DELAYED"))
_EPOCH = 1_577_836_800
"""2020: priorities are minutes since then, and fit DBOS's range for four thousand years."""
_CLEANED_AT_ONCE = 500


@dataclass(slots=True)
class Queue:
    app: App
    options: EngineOptions
    workflows: dict[str, Workflow] = field(default_factory=dict)
    """By name, once DBOS is launched."""

    async def enqueue(self, challenge: Challenge) -> str:
        app, address = self.app, challenge.address
        attempts = await read_attempts(app.store, app.chain_id, address)
        name = workflow_id(app.chain_id, address, attempts.number)
        known = await answered(DBOS.get_workflow_status_async(name))
        if known is not None and known.status in _ACTIVE:
            return name
        if known is not None:
            # It ended without writing its memory, which only a lost database explains: the next number goes on.
            attempts = attempts.after(None, failed=False)
            await save_attempts(app.store, app.chain_id, address, attempts)
            name = workflow_id(app.chain_id, address, attempts.number)
        priority = max(1, (challenge.scoring_deadline - _EPOCH) // 60)
        queue, workflow = evaluations_of(challenge.evaluator), self.workflows["evaluate_challenge"]
        with SetWorkflowID(name), SetEnqueueOptions(priority=min(priority, 2**31 - 1)):
            await answered(DBOS.enqueue_workflow_async(queue, workflow, address, attempts.number))
        _log.info("evaluation_queued", challenge=address, workflow=name)
        return name

    async def active(self) -> frozenset[Address]:
        before = f"evaluate:{self.app.chain_id}:"
        found = await answered(
            DBOS.list_workflows_async(
                status=sorted(_ACTIVE), workflow_id_prefix=before, load_input=False, load_output=False
            )
        )
        return frozenset(Address(one.workflow_id.removeprefix(before).partition(":")[0]) for one in found)

    async def schedule_ticks(self) -> None:
        schedule: ScheduleInput = {
            "schedule_name": "tick",
            "workflow_fn": self.workflows["tick"],
            "schedule": self.options.tick_cron,
            "context": None,
            "queue_name": TICKS,
        }
        await DBOS.apply_schedules_async([schedule])

    async def tick_now(self, worker: str) -> None:
        with SetWorkflowID(f"tick:{worker}:{uuid.uuid4().hex[:8]}"):
            await answered(DBOS.enqueue_workflow_async(TICKS, self.workflows["tick"], None, None))

    async def clean(self) -> None:
        before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - self.options.keep_days * 86400))
        old = await answered(
            DBOS.list_workflows_async(
                status=["SUCCESS", "ERROR", "CANCELLED"],
                completed_before=before,
                limit=_CLEANED_AT_ONCE,
                load_input=False,
                load_output=False,
            )
        )
        if old:
            await answered(DBOS.delete_workflows_async([found.workflow_id for found in old]))


async def take_over(leases: Leases, worker: str, lease_seconds: float, *, is_alone: bool) -> int:
    """Put the workflows of dead workers back into their queues and count them.

    `is_alone`: this is the only process there can be, so every other worker is dead, whatever its lease says.
    """
    pending = await answered(DBOS.list_workflows_async(status="PENDING", load_input=False, load_output=False))
    owners = {found.executor_id for found in pending if found.executor_id and found.executor_id != worker}
    taken = 0
    for owner in sorted(owners):
        if not is_alone and not await leases.take_lease(worker_lease(owner), f"taker:{worker}", lease_seconds):
            continue
        for found in pending:
            if found.executor_id == owner:
                taken += await _put_back(found.workflow_id, owner)
    return taken


@dataclass(slots=True)
class Orphans:
    """Workflows given to this process that do not run in it, as after a database that stopped in between."""

    worker: str
    grace_seconds: float
    """A workflow that was just given to us is about to start; one that just ended is about to be recorded."""
    runs_here: Callable[[str], bool] = runs_here
    clock: Callable[[], float] = time.monotonic
    _since: dict[str, float] = field(default_factory=dict)

    async def put_back(self) -> int:
        """Queue again what has not run for the grace period and count it."""
        pending = await answered(
            DBOS.list_workflows_async(status="PENDING", executor_id=self.worker, load_input=False, load_output=False)
        )
        idle = [found.workflow_id for found in pending if not self.runs_here(found.workflow_id)]
        now = self.clock()
        self._since = {name: self._since.get(name, now) for name in idle}
        put_back = 0
        for name in [name for name, since in self._since.items() if now - since >= self.grace_seconds]:
            put_back += await _put_back(name, self.worker)
            del self._since[name]
        return put_back


async def _put_back(workflow_id: str, owner: str) -> int:
    current = await answered(DBOS.get_workflow_status_async(workflow_id))
    if current is None or current.status != "PENDING" or current.executor_id != owner:
        return 0
    await answered(DBOS.resume_workflow_async(workflow_id, queue_name=current.queue_name))
    _log.warning("workflow_taken_over", workflow=workflow_id, owner=owner)
    return 1
