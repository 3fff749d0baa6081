"""Taking over from workers that died: their workflows go back into the queue, each exactly once.

A worker lives while it renews its lease in the store. Taking that lease proves that it does not, and keeps every other
worker from taking over the same work at the same time. A workflow is put back only while it still belongs to the dead.
"""

from __future__ import annotations

import structlog
from dbos import DBOS

from clara_eval.engine.dbos_runtime import answered
from clara_eval.pipeline.leases import Leases, worker_lease

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


async def _put_back(workflow_id: str, owner: str) -> int:
    current = await answered(DBOS.get_workflow_status_async(workflow_id))
    if current is None or current.status != "PENDING" or current.executor_id != owner:
        return 0
    await answered(DBOS.resume_workflow_async(workflow_id, queue_name=current.queue_name))
    _log.warning("workflow_taken_over", workflow=workflow_id, dead_worker=owner)
    return 1
