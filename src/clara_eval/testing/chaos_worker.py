"""One worker of the chaos suite: the real service with a faster clockwork, on whatever the environment says."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys

from clara_eval.engine.options import EngineOptions
from clara_eval.publish.send import Pace
from clara_eval.service import run_service
from clara_eval.settings import Settings

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


def _die_with_parent() -> None:
    """A test that is killed leaves no worker behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    _die_with_parent()
    sys.exit(asyncio.run(run_service(Settings.from_env(env_file=None), options=FAST, pace=FAST_PACE)))
