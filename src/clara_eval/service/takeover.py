"""Put the workflows that no living worker runs back into their queues, each exactly once.

Invariant: taking a worker's lease proves that it is dead and keeps other workers from taking over at the same time.
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
