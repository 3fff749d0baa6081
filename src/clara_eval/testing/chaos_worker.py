"""One worker of the chaos suite: the real service with a faster clockwork, on whatever the environment says."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from typing import Any

from clara_eval.chain.sending import EthereumAccount
from clara_eval.engine.options import EngineOptions
from clara_eval.publish.send import Pace
from clara_eval.service import run_service
from clara_eval.settings import Settings
from clara_eval.store.sql_store import SqlStore

FAST = EngineOptions(
    tick_cron="*/2 * * * * *",
    tick_seconds=2,
    beat_seconds=0.5,
    lease_seconds=10,
    poll_seconds=0.2,
    worker_evaluations=3,
    chunk_games=3,
    retry_seconds=1,
    retry_seconds_max=4,
)
FAST_PACE = Pace(poll_seconds=0.1, lease_seconds=5, give_up_after_seconds=60)


POINTS: dict[str, tuple[type, str]] = {
    "prepare": (EthereumAccount, "prepare"),
    "broadcast": (EthereumAccount, "broadcast"),
    "outcome": (EthereumAccount, "outcome"),
    "rehearse": (EthereumAccount, "rehearse"),
    "save_transaction": (SqlStore, "save_transaction"),
    "save_answer": (SqlStore, "save_answer"),
    "add_entry": (SqlStore, "add_entry"),
    "put_many": (SqlStore, "put_many"),
    "take_lease": (SqlStore, "take_lease"),
    "reserve_spend": (SqlStore, "reserve_spend"),
    "settle_spend": (SqlStore, "settle_spend"),
    "save_checkpoint": (SqlStore, "save_checkpoint"),
}
"""Steps at which a worker can be told to kill itself."""
KILL_POINTS = tuple(f"{when}:{name}:{count}" for name in POINTS for when in ("before", "after") for count in (1, 3))


def _kill_at(point: str) -> None:
    """SIGKILL ourselves before or after the n-th call of a step: `after:broadcast:1`."""
    when, name, count = point.split(":")
    owner, method = POINTS[name]
    step, calls = getattr(owner, method), 0

    async def deadly(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        is_last = calls == int(count)
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = await step(self, *args, **kwargs)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(owner, method, deadly)


def _die_with_parent() -> None:
    """A test that is killed leaves no worker behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    _die_with_parent()
    if os.environ.get("CHAOS_KILL_AT"):
        _kill_at(os.environ["CHAOS_KILL_AT"])
    sys.exit(asyncio.run(run_service(Settings.from_env(env_file=None), options=FAST, pace=FAST_PACE)))
