"""Steps at which a process of a test kills itself, and how: by SIGKILL, as a machine that dies does it.

`kill_at("after:broadcast:1")` lets this process die right after the first call of that step.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

from clara_eval.chain.account import EthereumAccount
from clara_eval.store.publication.cloudflare_kv import CloudflareKv
from clara_eval.store.publication.ipfs import IpfsPublication
from clara_eval.store.sql_store import SqlStore

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
MORE_POINTS: dict[str, tuple[type, str]] = {
    "put": (SqlStore, "put"),
    "forget_entry": (SqlStore, "forget_entry"),
    "take_trace": (IpfsPublication, "take_trace"),
    "kv_put": (CloudflareKv, "_put"),
}
"""Those that only `step_worker` comes to."""
KILL_POINTS = tuple(f"{when}:{name}:{count}" for name in POINTS for when in ("before", "after") for count in (1, 3))


def kill_at(point: str) -> None:
    """SIGKILL ourselves before or after the n-th call of a step: `after:broadcast:1`.

    `before:put:2@feedback` counts only calls one of whose arguments speaks of feedback.
    """
    point, _, about = point.partition("@")
    when, name, count = point.split(":")
    owner, method = (POINTS | MORE_POINTS)[name]
    step, calls = getattr(owner, method), 0

    async def deadly(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += about in repr(args)
        is_last = calls == int(count) and about in repr(args)
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = await step(self, *args, **kwargs)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(owner, method, deadly)


def die_with_parent() -> None:
    """A test that is killed leaves no worker behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
