"""One worker of the chaos suite: the real service with a faster clockwork, on whatever the environment says.

With `--nursery` the process imports everything once and then forks a worker for each line it is given, so that a
thousand kills do not cost a thousand starts of Python: `{"environ": {…}, "log": PATH, "script": []}` in, `{"pid": …}`
out, and later `{"ended": …, "code": …, "at": …}` with the moment. With a script's path and words it runs that instead.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from runpy import run_path
from typing import Any

from tests.support.kill_points import die_with_parent, kill_at

from clara_eval.chain.sender import SendTimeouts
from clara_eval.config.settings import Settings
from clara_eval.core.version import code_version
from clara_eval.interfaces.serve import run_service
from clara_eval.service.due import EngineOptions
from clara_eval.service.engine import Mode

FAST = EngineOptions(
    tick_cron="*/3 * * * * *",
    tick_seconds=3,
    beat_seconds=1,
    lease_seconds=10,
    poll_seconds=0.4,
    worker_evaluations=3,
    retry_seconds=1,
    retry_seconds_max=4,
)
_LATE_IMPORTS = (
    "anyio._backends._asyncio", "clara_eval.actions.verify", "clara_eval.core.accounts",
    "clara_eval.devnet.demo.round", "clara_eval.interfaces.mcp.server", "clara_eval.judge.providers.openai",
    "clara_eval.store.postgres", "clara_eval.store.sqlite", "dbos", "numpy.ma", "psycopg", "psycopg_pool",
    "rich.logging", "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite.pysqlite", "truststore",
    "uvicorn.lifespan.on", "uvicorn.protocols.http.auto",
)  # fmt: skip
"""What a worker loads on its way, and a worker that is forked need not."""
FAST_PACE = SendTimeouts(poll_seconds=0.1, lease_seconds=5, give_up_after_seconds=60)


def _work() -> int:
    die_with_parent()
    if os.environ.get("CHAOS_KILL_AT"):
        kill_at(os.environ["CHAOS_KILL_AT"])
    mode: Mode = "worker-only" if os.environ.get("CHAOS_WORKER_ONLY") else "all"
    is_as_shipped = bool(os.environ.get("CHAOS_AS_SHIPPED"))
    settings = Settings.from_env(env_file=None)
    options, pace = (None, None) if is_as_shipped else (FAST, FAST_PACE)
    return asyncio.run(run_service(settings, mode=mode, options=options, pace=pace))


def _fork(asked: dict[str, Any]) -> int:
    """The child becomes a worker with its own log; the parent gets its number."""
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for given, stream in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(given, stream)
    if asked["script"]:
        os.environ.clear()
    os.environ.update(asked["environ"])
    try:
        os._exit(_run_script(asked["script"]) if asked["script"] else _work())
    except BaseException:  # noqa: BLE001 - a forked child must end here, whatever happens
        traceback.print_exc()
        os._exit(1)


def _run_script(words: list[str]) -> int:
    """As Python runs a file; its exit code."""
    die_with_parent()
    sys.argv = words
    try:
        run_path(words[0], run_name="__main__")
    except SystemExit as end:
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _nursery() -> int:
    """Fork on request, say who ended: one JSON document a line on both sides."""
    die_with_parent()
    for room in _LATE_IMPORTS:
        import_module(room)
    code_version()  # it reads all of the code, once a process
    gc.collect()
    gc.freeze()  # the children share it all, and need not look through it
    signal.signal(signal.SIGCHLD, _reap)
    for line in sys.stdin:
        _say(pid=_fork(json.loads(line)))
    return 0


def _reap(*_: object) -> None:
    """One signal may stand for several ends."""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not child:
            return
        _say(ended=child, code=os.waitstatus_to_exitcode(status), at=time.monotonic())


def _say(**document: float) -> None:
    """Without a buffer: a signal may come between two of these."""
    os.write(1, json.dumps(document).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(_nursery() if "--nursery" in sys.argv else _work())
