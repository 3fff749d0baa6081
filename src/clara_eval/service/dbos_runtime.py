"""Launch DBOS: JSON instead of pickle, our version and executor ids, SQLite in WAL, our queues."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy
from dbos import DBOS, DBOSConfig, Serializer
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.core.private_file import make_private
from clara_eval.service.options import APPLICATION, APPLICATION_VERSION, EngineOptions
from clara_eval.store.open import is_sqlite, sqlite_path

EVALUATIONS = "evaluations"
"""Prefix of a queue; without an evaluator's address it holds what an earlier version queued."""
TICKS = "ticks"

Workflow = Callable[..., Coroutine[Any, Any, Any]]
_apart: set[asyncio.Task[object]] = set()
"""Bodies of steps that run now, in this process."""
_running: set[str] = set()
"""Ids of workflows whose function runs now, in this process."""


T = TypeVar("T")


def evaluations_of(evaluator: str) -> str:
    """Name the queue of one key's evaluations: processes of two keys may share a database."""
    return f"{EVALUATIONS}:{evaluator}"


async def answered(call: Awaitable[T]) -> T:
    """Await a call to DBOS; Temporary if its database does not answer."""
    try:
        return await call
    except SQLAlchemyError as bad:
        raise Temporary(f"The queue's database does not answer ({type(bad).__name__}).") from bad


class JsonSerializer(Serializer):
    """Plain JSON, which runs no code on reading: a datetime is ISO text, an error its class and message."""

    def serialize(self, data: object) -> str:
        return json.dumps(data, default=_plain, separators=(",", ":"))

    def deserialize(self, serialized_data: str) -> object:
        found = json.loads(serialized_data)
        if isinstance(found, dict) and set(found) == {"error", "message"}:
            return RuntimeError(f"{found['error']}: {found['message']}")
        return found

    def name(self) -> str:
        return "clara_json"


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "message": str(value)}
    raise TypeError(f"{type(value).__name__} is not stored in a workflow.")


def system_url(database_url: str) -> str:
    """The database of DBOS: a second file beside SQLite, its own schema inside Postgres."""
    if not is_sqlite(database_url):
        return database_url.replace("postgres://", "postgresql://", 1)
    path = Path(sqlite_path(database_url)).absolute()
    return f"sqlite:///{path.with_name(path.stem + '-engine' + path.suffix)}"


def sqlite_engine(url: str) -> sqlalchemy.Engine:
    """Open the SQLite file of DBOS: a step takes 3 ms instead of 20, and survives kill -9."""
    engine = sqlalchemy.create_engine(url)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        for pragma in ("busy_timeout=30000", "foreign_keys=ON", "journal_mode=WAL", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


@asynccontextmanager
async def launched(
    database_url: str,
    worker: str,
    workflows: dict[str, Workflow],
    options: EngineOptions,
    *,
    listens: bool = True,
    evaluator: str = "",
) -> AsyncIterator[dict[str, Workflow]]:
    """Run DBOS on this event loop and yield the workflows by name. Without `listens` it only queues."""
    url = system_url(database_url)
    engine = None
    if is_sqlite(url):
        make_private(Path(sqlite_path(url)))
        engine = sqlite_engine(url)
    config: DBOSConfig = {
        "name": APPLICATION,
        "system_database_url": url,
        "application_version": APPLICATION_VERSION,
        "executor_id": worker,
        "serializer": JsonSerializer(),
        "log_level": "WARNING",
        "enable_otlp": False,
        "scheduler_polling_interval_sec": 30.0,
    }
    if engine is not None:
        config["system_database_engine"] = engine
    DBOS(config=config)
    _use_our_log()
    registered = {name: DBOS.workflow(name=name)(_plain_function(run)) for name, run in workflows.items()}
    DBOS.listen_queues([EVALUATIONS, evaluations_of(evaluator), TICKS] if listens else [])
    try:
        _launch(url)
        await _register_queues(options, evaluator)
        yield registered
    finally:
        await interrupt()
        await _destroy()
        if engine is not None:
            engine.dispose()


def _launch(url: str) -> None:
    """Launch DBOS; ConfigError if its file is damaged."""
    try:
        DBOS.launch()
    except sqlalchemy.exc.DatabaseError as bad:
        if not is_sqlite(url) or isinstance(bad, sqlalchemy.exc.OperationalError):
            raise
        raise ConfigError(
            f"The engine's database {sqlite_path(url)} is damaged: {bad.orig}.",
            remedy="Move this file away and start again: it holds only queues. Results and payments are in "
            "CLARA_DATABASE_URL.",
        ) from bad


def _plain_function(run: Workflow) -> Workflow:
    """Wrap a method: DBOS sets attributes on the functions it is given."""

    async def workflow(*args: object) -> object:
        name = DBOS.workflow_id or ""
        _running.add(name)
        try:
            return await run(*args)
        finally:
            _running.discard(name)

    return workflow


def runs_here(workflow_id: str) -> bool:
    return workflow_id in _running


async def step_apart(name: str, run: Workflow, *args: object) -> object:
    """Run one step of the workflow with its body outside DBOS's context, so that it may queue workflows."""

    async def body() -> object:
        task = asyncio.get_running_loop().create_task(run(*args), context=contextvars.Context())
        _apart.add(task)
        try:
            return await task
        finally:
            task.cancel()
            _apart.discard(task)

    return await DBOS.run_step_async({"name": name}, body)


async def interrupt() -> None:
    """Cancel the running steps: their workflows stay pending and are taken over."""
    tasks = list(_apart)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=10)
        await asyncio.sleep(0.05)  # the workflows around them need a turn of the loop to notice


async def _destroy() -> None:
    """End DBOS and give the loop a fresh executor: DBOS had replaced the default one."""
    loop = asyncio.get_running_loop()
    fresh = ThreadPoolExecutor(thread_name_prefix="clara-")
    await loop.run_in_executor(fresh, lambda: DBOS.destroy(destroy_registry=True))
    loop.set_default_executor(fresh)


async def _register_queues(options: EngineOptions, evaluator: str) -> None:
    most_evaluations = max(options.global_evaluations, options.worker_evaluations)
    for name, worker, everywhere in (
        (EVALUATIONS, options.worker_evaluations, most_evaluations),
        (evaluations_of(evaluator), options.worker_evaluations, most_evaluations),
        (TICKS, 1, None),
    ):
        await DBOS.register_queue_async(
            name,
            worker_concurrency=worker,
            global_concurrency=everywhere,
            polling_interval_sec=options.poll_seconds,
            on_conflict="always_update",
        )


def _use_our_log() -> None:
    logger = logging.getLogger("dbos")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.propagate = True
