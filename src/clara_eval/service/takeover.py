"""Taking over what nobody runs: it goes back into the queue, each workflow exactly once.

The question is whether a workflow *runs*, not only whether its owner lives: a database that stops between giving a
workflow to a worker and the worker's start of it leaves one that belongs to a living process and runs nowhere
(`Orphans`: every process looks after its own). Two at once are kept apart by the lease of the evaluation itself.

A worker lives while it renews its lease in the store. Taking that lease proves that it does not, and keeps every other
worker from taking over the same work at the same time. A workflow is put back only while it still belongs to the dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from dbos import DBOS

from clara_eval.service.dbos_runtime import answered, runs_here
from clara_eval.store.leases import Leases, worker_lease

_log = structlog.get_logger(__name__)


async def take_over(leases: Leases, worker: str, lease_seconds: float, *, is_alone: bool) -> int:
    """Put the workflows of dead workers back into their queues; how many there were.

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
    """Workflows that belong to this process and do not run in it."""

    worker: str
    grace_seconds: float
    """A workflow that was just given to us is about to start, one that has just ended about to be written down."""
    runs_here: Callable[[str], bool] = runs_here
    clock: Callable[[], float] = time.monotonic
    _since: dict[str, float] = field(default_factory=dict)

    async def put_back(self) -> int:
        """Queue again what has not run for the grace; how many there were."""
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
