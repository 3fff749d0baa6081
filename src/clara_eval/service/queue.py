"""Queue evaluations and ticks on DBOS, and take over the work of dead workers.

Invariant: an attempt is queued at most once, and the earliest scoring deadline runs first; taking a worker's expired
lease proves that it is dead and stops other workers from taking over too.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy
import structlog
from dbos import DBOS, DBOSConfig, ScheduleInput, Serializer, SetEnqueueOptions, SetWorkflowID, WorkflowStatus
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from clara_eval.app import App
from clara_eval.chain.model import Challenge
from clara_eval.challenges.status import read_attempts, save_attempts, workflow_id
from clara_eval.core.address import Address
from clara_eval.core.errors import ConfigError, StoreDown
from clara_eval.core.private_file import make_private
from clara_eval.documents.store_keys import KeyOfOne
from clara_eval.service.due import EngineOptions
from clara_eval.store.leases import worker_lease
from clara_eval.store.open import is_sqlite, sqlite_path
from clara_eval.store.sql_store import DATABASE, QUEUE_CONNECTIONS, Leases

_log = structlog.get_logger(__name__)
APPLICATION_VERSION = "1"  # Version of the workflow format: it changes only if stored workflows could not be continued.
_ACTIVE = frozenset(("PENDING", "ENQUEUED", "DELAYED"))
_EPOCH = 1_577_836_800  # 2020-01-01: a priority is the scoring deadline in minutes since then, at most 2**31 - 1
_DELETED_AT_ONCE = 500
EVALUATIONS = "evaluations"  # Prefix of queue names; the bare name was the queue of an earlier version
evaluation_queue: KeyOfOne = f"{EVALUATIONS}:{{}}".format  # By evaluator: several keys may share a database
TICKS = "ticks"
Workflow = Callable[..., Coroutine[Any, Any, Any]]
Workflows = dict[str, Workflow]
_step_tasks: set[asyncio.Task[object]] = set()  # Running step bodies of this process
_running: set[str] = set()  # Ids of the workflows that run in this process
T = TypeVar("T")


async def call_dbos(call: Awaitable[T]) -> T:
    """Await a DBOS call with a timeout, since DBOS retries forever; StoreDown if its database is down."""
    try:
        async with asyncio.timeout(DATABASE.longest_seconds):
            return await call
    except (SQLAlchemyError, TimeoutError) as bad:
        raise StoreDown(f"The queue's database does not answer ({type(bad).__name__}).") from bad


class JsonSerializer(Serializer):
    """Serialize as JSON, never pickle: a datetime as ISO text, an error as its class and message."""

    def serialize(self, data: object) -> str:
        return json.dumps(data, default=_encode, separators=(",", ":"))

    def deserialize(self, serialized_data: str) -> object:
        found = json.loads(serialized_data)
        if isinstance(found, dict) and set(found) == {"error", "message"}:
            return RuntimeError(f"{found['error']}: {found['message']}")
        return found

    def name(self) -> str:
        return "clara_json"


def _encode(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "message": str(value)}
    raise TypeError(f"{type(value).__name__} is not stored in a workflow.")


def system_url(database_url: str) -> str:
    """Return the URL of the DBOS database: a second SQLite file, or its own schema in Postgres."""
    if not is_sqlite(database_url):
        return database_url.replace("postgres://", "postgresql://", 1)
    path = Path(sqlite_path(database_url)).absolute()
    return f"sqlite:///{path.with_name(path.stem + '-engine' + path.suffix)}"


def sqlite_engine(url: str) -> sqlalchemy.Engine:
    """Open the SQLite file of DBOS in WAL mode: a step takes 3 ms instead of 20, and survives kill -9."""
    make_private(Path(sqlite_path(url)))
    engine = sqlalchemy.create_engine(url)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        for pragma in ("busy_timeout=30000", "foreign_keys=ON", "journal_mode=WAL", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


@asynccontextmanager
async def run_dbos(
    url: str, worker: str, workflows: Workflows, options: EngineOptions, *, listens: bool = True, evaluator: str = ""
) -> AsyncIterator[Workflows]:
    """Run DBOS on this event loop and yield the workflows by name; without `listens` it only queues."""
    url = system_url(url)
    engine = sqlite_engine(url) if is_sqlite(url) else None
    config: DBOSConfig = {
        "name": "clara-eval",
        "system_database_url": url,
        "system_database_engine": engine,
        "application_version": APPLICATION_VERSION,
        "executor_id": worker,
        "serializer": JsonSerializer(),
        "log_level": "WARNING",
        "sys_db_pool_size": QUEUE_CONNECTIONS,
        "enable_otlp": False,
        "scheduler_polling_interval_sec": 30.0,
    }
    DBOS(config=config)
    logger = logging.getLogger("dbos")  # its records go through our handlers
    logger.handlers.clear()
    logger.propagate = True
    registered = {name: DBOS.workflow(name=name)(_as_one_step(run)) for name, run in workflows.items()}
    queues = [EVALUATIONS, evaluation_queue(evaluator), TICKS]
    DBOS.listen_queues(queues if listens else [])
    try:
        _launch(url)
        for name in queues:
            await DBOS.register_queue_async(
                name,
                worker_concurrency=1 if name == TICKS else options.worker_evaluations,
                global_concurrency=None if name == TICKS else options.global_evaluations,
                polling_interval_sec=options.poll_seconds,
                on_conflict="always_update",
            )
        yield registered
    finally:
        await cancel_steps()
        # DBOS replaced the executor of the loop and shuts its own down.
        loop, fresh = asyncio.get_running_loop(), ThreadPoolExecutor(thread_name_prefix="clara-")
        await loop.run_in_executor(fresh, lambda: DBOS.destroy(destroy_registry=True))
        loop.set_default_executor(fresh)
        if engine is not None:
            engine.dispose()


def _launch(url: str) -> None:
    """Launch DBOS; ConfigError if its file is damaged, StoreDown if its database is down."""
    try:
        DBOS.launch()
    except sqlalchemy.exc.DatabaseError as bad:
        if not is_sqlite(url) or isinstance(bad, sqlalchemy.exc.OperationalError):
            raise StoreDown(
                f"The queue's database does not answer: {bad.orig}.",
                remedy="Check that it runs and its disk is not full.",
            ) from bad
        raise ConfigError(
            f"The engine's database {sqlite_path(url)} is damaged: {bad.orig}.",
            remedy="Move this file away and start again: it holds only queues. Results and payments are in "
            "CLARA_DATABASE_URL.",
        ) from bad


def _as_one_step(run: Workflow) -> Workflow:
    """Wrap `run` as a one-step workflow; it runs outside the DBOS context, so it may queue workflows."""

    async def workflow(*args: object) -> object:
        async def body() -> object:
            task = asyncio.get_running_loop().create_task(run(*args), context=contextvars.Context())
            _step_tasks.add(task)
            try:
                return await task
            finally:
                task.cancel()
                _step_tasks.discard(task)

        name = DBOS.workflow_id or ""
        _running.add(name)
        try:
            return await DBOS.run_step_async({"name": run.__name__}, body)
        finally:
            _running.discard(name)

    return workflow


async def cancel_steps() -> None:
    """Cancel the running steps; their workflows stay pending and are taken over."""
    tasks = list(_step_tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=10)
        await asyncio.sleep(0.05)  # the enclosing workflows need an iteration of the loop to notice


@dataclass(slots=True)
class Queue:
    app: App
    options: EngineOptions
    workflows: Workflows = field(default_factory=dict)  # By name, once DBOS is launched

    async def enqueue(self, challenge: Challenge) -> str:
        app, address = self.app, challenge.address
        attempts = await read_attempts(app.store, app.chain_id, address)
        name = workflow_id(app.chain_id, address, attempts.number)
        known = await call_dbos(DBOS.get_workflow_status_async(name))
        if known is not None and self._is_active(known):
            return name
        if known is not None:
            # Queued by another version, or it ended and the attempts were lost with a database: use the next number.
            await call_dbos(DBOS.cancel_workflow_async(name))
            attempts = attempts.after(None, failed=False)
            await save_attempts(app.store, app.chain_id, address, attempts)
            name = workflow_id(app.chain_id, address, attempts.number)
        priority = max(1, (challenge.scoring_deadline - _EPOCH) // 60)
        queue, workflow = evaluation_queue(challenge.evaluator), self.workflows["evaluate_challenge"]
        with SetWorkflowID(name), SetEnqueueOptions(priority=min(priority, 2**31 - 1)):
            await call_dbos(DBOS.enqueue_workflow_async(queue, workflow, address, attempts.number))
        _log.info("evaluation_queued", challenge=address, workflow=name)
        return name

    async def active(self) -> frozenset[Address]:
        prefix = f"evaluate:{self.app.chain_id}:"
        found = await _list_workflows(status=sorted(_ACTIVE), workflow_id_prefix=prefix)
        active = (one.workflow_id for one in found if self._is_active(one))
        return frozenset(Address(name.removeprefix(prefix).partition(":")[0]) for name in active)

    def _is_active(self, found: WorkflowStatus) -> bool:
        """Return whether it runs, or waits in a queue that this version serves."""
        is_served = (str(found.queue_name).partition(":")[0], found.app_version) == (EVALUATIONS, APPLICATION_VERSION)
        return found.status == "PENDING" or (found.status in _ACTIVE and is_served)

    async def start_ticks(self, worker: str) -> None:
        """Queue a tick now, and schedule the next ones."""
        schedule: ScheduleInput = {
            "schedule_name": "tick",
            "workflow_fn": self.workflows["tick"],
            "schedule": self.options.tick_cron,
            "context": None,
            "queue_name": TICKS,
        }
        await DBOS.apply_schedules_async([schedule])
        with SetWorkflowID(f"tick:{worker}:{uuid.uuid4().hex[:8]}"):
            await call_dbos(DBOS.enqueue_workflow_async(TICKS, self.workflows["tick"], None, None))

    async def delete_old_workflows(self) -> None:
        before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - self.options.keep_days * 86400))
        ended = ["SUCCESS", "ERROR", "CANCELLED"]
        old = await _list_workflows(status=ended, completed_before=before, limit=_DELETED_AT_ONCE)
        if old:
            await call_dbos(DBOS.delete_workflows_async([found.workflow_id for found in old]))


async def _list_workflows(**filters: Any) -> list[WorkflowStatus]:
    return await call_dbos(DBOS.list_workflows_async(**filters, load_input=False, load_output=False))


@dataclass(slots=True)
class Takeovers:
    """Put abandoned work back into its queue: of dead workers, and our own that does not run."""

    leases: Leases
    worker: str
    lease_seconds: float
    is_alone: bool  # On SQLite there is one process: every other worker is dead, even if its lease is valid
    clock: Callable[[], float] = time.monotonic
    _idle_since: dict[str, float] = field(default_factory=dict)

    async def put_back(self) -> int:
        """Put abandoned workflows back and return their number."""
        pending, now = await _list_workflows(status="PENDING"), self.clock()
        idle = [
            one.workflow_id for one in pending if one.executor_id == self.worker and one.workflow_id not in _running
        ]
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        # Not at once: a workflow may be about to start here, or its end about to be recorded.
        lost = {name for name, since in self._idle_since.items() if now - since >= self.lease_seconds / 2}
        for name in lost:
            del self._idle_since[name]
        others = {one.executor_id for one in pending if one.executor_id} - {self.worker}
        dead = {owner for owner in others if await self._is_dead(owner)}
        return sum([await _put_back(one) for one in pending if one.executor_id in dead or one.workflow_id in lost])

    async def _is_dead(self, owner: str) -> bool:
        lease = worker_lease(owner)
        return self.is_alone or await self.leases.take_lease(lease, f"taker:{self.worker}", self.lease_seconds)


async def _put_back(pending: WorkflowStatus) -> int:
    current = await call_dbos(DBOS.get_workflow_status_async(pending.workflow_id))
    if current is None or (current.status, current.executor_id) != ("PENDING", pending.executor_id):
        return 0
    await call_dbos(DBOS.resume_workflow_async(pending.workflow_id, queue_name=current.queue_name))
    _log.warning("workflow_taken_over", workflow=pending.workflow_id, owner=pending.executor_id)
    return 1
