"""The queue of evaluations and ticks, on DBOS.

Invariant: an attempt is queued at most once, and the earliest scoring deadline comes first.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

import structlog
from dbos import DBOS, ScheduleInput, SetEnqueueOptions, SetWorkflowID

from clara_eval.app import App
from clara_eval.chain.model import Challenge
from clara_eval.challenges.status import read_attempts, save_attempts, workflow_id
from clara_eval.core.address import Address
from clara_eval.service.dbos_runtime import TICKS, Workflow, answered, evaluations_of
from clara_eval.service.options import EngineOptions

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
        """Queue the current attempt and return the id of its workflow."""
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
        """List the challenges whose evaluation is queued or running in any process, in one query."""
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
        """Queue a tick beside the scheduled ones."""
        with SetWorkflowID(f"tick:{worker}:{uuid.uuid4().hex[:8]}"):
            await answered(DBOS.enqueue_workflow_async(TICKS, self.workflows["tick"], None, None))

    async def clean(self) -> None:
        """Delete old finished workflows; their results are in the store."""
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
