"""Chunks of one evaluation's questions, spread over all workers.

Comes in: what a judge will be asked next. Goes out: nothing; afterwards the answers are in the book, and the evaluation
finds them there. Must hold: a chunk's id comes from its whole content, so that an evaluation that is walked again meets
its old chunks instead of making new ones; a chunk is asked by one worker at a time; its money is set aside in the
evaluation's budget first, and it cannot spend more. What no chunk answered is asked by the evaluation itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

import structlog
from dbos import DBOS, SetWorkflowID

from clara_eval.challenges.model_pool import Ahead, ModelPool
from clara_eval.core.errors import ClaraError, OutOfBudget, Temporary
from clara_eval.core.gather import gather_or_raise
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.judge.costs.run_budget import RunBudget
from clara_eval.judge.port import Prompt, request_hash
from clara_eval.service.dbos_runtime import CHUNKS, Workflow, answered
from clara_eval.service.options import EngineOptions
from clara_eval.store.leases import Busy, held
from clara_eval.store.ports import Store

_log = structlog.get_logger(__name__)
ACTIVE = frozenset(("PENDING", "ENQUEUED", "DELAYED"))
CHUNK_SECONDS = 1800.0
_BUSY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some questions of one run to one judge; equal questions have equal ids wherever they are made."""

    judge: str
    run: str
    prompts: tuple[Prompt, ...]

    @property
    def name(self) -> str:
        return f"chunk:{self.run}:{sha256_hex(plain_json([self.judge, self.requests]).encode())[2:34]}"

    @property
    def requests(self) -> list[str]:
        return [request_hash(self.judge, prompt) for prompt in self.prompts]

    def to_camel_json(self, allowance: int | None) -> dict[str, object]:
        return {"judge": self.judge, "run": self.run, "prompts": [asdict(p) for p in self.prompts], "most": allowance}


class Spreader:
    """Makes chunks for this worker's evaluations, and asks chunks of anybody's."""

    def __init__(self, store: Store, pool: ModelPool, worker: str, options: EngineOptions) -> None:
        self._store = store
        self._pool = pool
        self._worker = worker
        self._options = options
        self.workflow: Workflow | None = None

    async def spread(self, ahead: Ahead) -> None:
        """Have all of it asked in chunks, where it is enough for two and the money allows it."""
        size = self._options.chunk_games
        if self.workflow is None or len(ahead.prompts) < 2 * size:
            return
        chunks = [
            Chunk(ahead.judge, ahead.run, ahead.prompts[start : start + size])
            for start in range(0, len(ahead.prompts), size)
        ]
        await gather_or_raise(self._see_through(chunk, ahead) for chunk in chunks)

    async def _see_through(self, chunk: Chunk, ahead: Ahead) -> None:
        """One chunk from its reservation to its settlement."""
        before = await self._store.answers(chunk.requests)
        missing = [p for p in chunk.prompts if request_hash(chunk.judge, p) not in before]
        if not missing and not await self._is_active(chunk.name):
            return
        try:
            allowance = sum(await ahead.budget.reserve_all(chunk.judge, ahead.card, missing))
        except OutOfBudget:
            # Not enough money for the worst case of a whole chunk; asked one by one it may suffice. A chunk of an
            # earlier walk may still be under way: its answers are waited for, not asked again.
            await self._ended(chunk.name)
            return
        try:
            await self._queue(chunk, None if ahead.budget.cap_micro_usd is None else allowance)
            await self._ended(chunk.name)
        finally:
            after = await self._store.answers(chunk.requests)
            for request, paid in after.items():
                if request not in before:
                    ahead.budget.charge(0, paid.purpose, paid.answer, paid.cost_micro_usd)
            ahead.budget.release(allowance, chunk.prompts[0].purpose)

    async def _queue(self, chunk: Chunk, allowance: int | None) -> None:
        assert self.workflow is not None
        with SetWorkflowID(chunk.name):
            await answered(DBOS.enqueue_workflow_async(CHUNKS, self.workflow, chunk.to_camel_json(allowance)))

    async def _is_active(self, name: str) -> bool:
        known = await answered(DBOS.get_workflow_status_async(name))
        return known is not None and known.status in ACTIVE

    async def _ended(self, name: str) -> None:
        """It may end in another process, and while the database is away nobody can tell: then it goes on."""
        while True:
            try:
                if not await self._is_active(name):
                    return
            except Temporary as bad:
                _log.warning("chunk_not_seen", chunk=name, problem=str(bad))
            await asyncio.sleep(min(1.0, self._options.poll_seconds))

    async def ask_chunk(self, wire: dict[str, Any]) -> dict[str, object]:
        """The workflow's body: ask what is not answered yet; an outage leaves the rest to the evaluation."""
        chunk = Chunk(wire["judge"], wire["run"], tuple(Prompt(**prompt) for prompt in wire["prompts"]))
        while True:
            try:
                async with held(self._store, chunk.name, self._worker, self._options.lease_seconds):
                    answered = await self._ask_all(chunk, wire["most"])
            except Busy:
                await asyncio.sleep(_BUSY_SECONDS)
            else:
                _log.info("chunk_asked", run=chunk.run, questions=len(chunk.prompts), answered=answered)
                return {"asked": len(chunk.prompts), "answered": answered}

    async def _ask_all(self, chunk: Chunk, most: int | None) -> int:
        budget = RunBudget(most)
        line = self._pool.line(chunk.judge, chunk.run, budget, CHUNK_SECONDS)
        await line.look_up(chunk.prompts)
        answered = 0
        waiting = iter(chunk.prompts)

        async def work() -> None:
            nonlocal answered
            for prompt in waiting:
                try:
                    await line.ask(prompt)
                except ClaraError as bad:
                    _log.warning("chunk_question_unanswered", run=chunk.run, problem=str(bad))
                else:
                    answered += 1

        try:
            await gather_or_raise(work() for _ in range(min(len(chunk.prompts), self._pool.settings.max_concurrency)))
        finally:
            if budget.unsure_micro_usd:
                await self._store.add_unsure(chunk.run, budget.unsure_micro_usd)
        return answered
