"""Where an evaluation stands, under the specification's key, for whoever asks.

Progress goes through the stages: collecting and extracting are the first half, comparing the second, publishing the
rest. Writing is throttled: a status is for people and is written at most a few times a second.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from clara_eval.camel_json import to_camel_json
from clara_eval.errors import Temporary
from clara_eval.hashing import plain_json
from clara_eval.pipeline.plan import Stage
from clara_eval.trace.store_keys import status_key

State = Literal[
    "pending", "extracting", "comparing", "publishing", "complete", "review", "deferred", "failed", "unscorable"
]
FINAL_STATES = ("complete", "failed", "unscorable")
_SPAN: dict[Stage, tuple[int, int]] = {"collecting": (0, 10), "extracting": (10, 40), "comparing": (40, 90)}


class Keys(Protocol):
    async def get(self, chain_id: int, key: str) -> str | None: ...
    async def put(self, chain_id: int, key: str, value: str) -> None: ...


@dataclass(frozen=True, slots=True)
class StageProgress:
    name: str
    done: int
    total: int
    calls: int = 0
    cost_usd: float = 0.0
    calls_per_second: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Status:
    status: State
    progress: int
    started_at: int
    updated_at: int
    reason: str | None = None
    retry_at: int | None = None
    posted_by: str | None = None
    stage: StageProgress | None = None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = to_camel_json(self)
        return document


async def read_status(keys: Keys, chain_id: int, address: str) -> dict[str, Any] | None:
    """The status document as stored, or None where nothing was ever started."""
    text = await keys.get(chain_id, status_key(address))
    document: dict[str, Any] | None = json.loads(text) if text else None
    return document


class StatusWriter:
    """Writes the status of one evaluation. Being called is also how the walk is watched."""

    def __init__(
        self,
        keys: Keys,
        chain_id: int,
        address: str,
        *,
        listener: Callable[[Status], None] | None = None,
        now: Callable[[], float] = time.time,
        every_seconds: float = 0.25,
    ) -> None:
        self._keys, self._chain_id, self._address = keys, chain_id, address
        self._listener, self._now, self._every = listener, now, every_seconds
        self.meter: Callable[[], tuple[int, float]] = lambda: (0, 0.0)
        self._began = now()
        self._stage_began: dict[str, tuple[float, int]] = {}
        self._written = 0.0
        self._writing: asyncio.Task[None] | None = None
        self._earlier: dict[str, Any] | None = None
        self.status = Status("pending", 0, int(self._began), int(self._began))

    async def resume(self) -> None:
        """Keep the first start of an evaluation that is walked again."""
        self._earlier = await read_status(self._keys, self._chain_id, self._address)
        if self._earlier and self._earlier.get("startedAt"):
            self.status = replace(self.status, started_at=int(self._earlier["startedAt"]))

    async def stand(self) -> bool:
        """Whether this was posted before; then that is said again: trouble on a second walk undoes no post."""
        if self._earlier is None or self._earlier.get("status") != "complete" or not self._earlier.get("postedBy"):
            return False
        await self._settled()
        await self._keys.put(self._chain_id, status_key(self._address), plain_json(self._earlier))
        return True

    def __call__(self, stage: Stage, done: int, total: int) -> None:
        """Progress of a stage; written now and then, in the background."""
        low, high = _SPAN[stage]
        share = done / total if total else 1.0
        state: State = "comparing" if stage == "comparing" else "extracting"
        self.status = replace(
            self.status,
            status=state,
            progress=int(low + (high - low) * share),
            updated_at=int(self._now()),
            reason=None,
            retry_at=None,
            stage=self._progress(stage, done, total),
        )
        self._tell()
        due = self._now() - self._written >= self._every
        if due and (self._writing is None or self._writing.done()):
            self._written = self._now()
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def _progress(self, stage: str, done: int, total: int) -> StageProgress:
        calls, cost = self.meter()
        began, first = self._stage_began.setdefault(stage, (self._now(), done))
        elapsed, steps = self._now() - began, done - first
        rate = steps / elapsed if steps > 0 and elapsed > 0 else None
        left = (total - done) / rate if rate else None
        shown_rate, shown_left = rate and round(rate, 2), left and round(left, 1)
        return StageProgress(stage, done, total, calls, round(cost, 6), shown_rate, shown_left)

    async def say(
        self,
        state: State,
        progress: int,
        *,
        reason: str | None = None,
        retry_at: int | None = None,
        posted_by: str | None = None,
    ) -> None:
        """A change of state: written before this returns."""
        await self._settled()
        self.status = replace(
            self.status,
            status=state,
            progress=progress,
            updated_at=int(self._now()),
            reason=reason,
            retry_at=retry_at,
            posted_by=posted_by,
            stage=None if state in FINAL_STATES else self.status.stage,
        )
        self._tell()
        await self._write()

    async def _settled(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            with suppress(Temporary):  # a lost line of progress: the state that is said next is written anew
                await writing

    def _tell(self) -> None:
        if self._listener is not None:
            self._listener(self.status)

    async def _write(self) -> None:
        await self._keys.put(self._chain_id, status_key(self._address), plain_json(self.status.to_json()))
