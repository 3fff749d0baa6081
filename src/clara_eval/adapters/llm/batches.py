"""Claude's Message Batches: the same requests at half the price, when there is time.

Prompts come in; their answers are in the answer book when `fill` returns, under the same request hashes as single
calls, so the ordinary asking that follows finds them and the trace is the same. What a batch is about is journalled
before it is submitted and its id right after, so a killed process goes on with the batch it paid for. Items that
failed, expired or were cancelled stay open: ordinary calls ask for them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anthropic

from clara_eval.adapters.llm.anthropic import AnthropicLlm
from clara_eval.adapters.llm.failures import explain
from clara_eval.errors import BadAnswer, Temporary
from clara_eval.hashing import plain_json, sha256_hex
from clara_eval.judge.outages import Unanswered
from clara_eval.judge.port import PaidAnswer, Prompt, request_hash
from clara_eval.judge.prices import PriceCard
from clara_eval.judge.purse import Purse

FEWEST = 100
LEAST_SECONDS = 6 * 3600
MOST_IN_A_BATCH = 10_000
MOST_BYTES = 100 * 2**20
"""The provider allows 100,000 requests and 256 MB; smaller batches lose less when something goes wrong."""
CLOCK_SKEW_SECONDS = 300
CANCEL_SECONDS = 900
"""How long a cancelled batch may take to end before its answers are given up."""


def should_batch(seconds_left: float, calls: int) -> bool:
    """Whether batches are worth it: enough calls to matter, and time for a batch to fail and be replaced.

    Most batches end within an hour and all within a day. `fill` waits for half of the time that is left and then
    cancels; the other half is for ordinary calls. Below six hours that would be a bet on the provider's mood.
    """
    return calls >= FEWEST and seconds_left >= LEAST_SECONDS


class BatchStore(Protocol):
    """The journal and the answer book; the store fulfils it."""

    async def entries(self, run: str, prefix: str) -> list[tuple[str, str]]: ...
    async def add_entry(self, run: str, key: str, value: str) -> str: ...
    async def answers(self, requests: Sequence[str]) -> dict[str, PaidAnswer]: ...
    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer: ...


@dataclass(frozen=True, slots=True)
class _Planned:
    """A batch as journalled: its name, what it asks for, and when it was planned."""

    name: str
    requests: tuple[str, ...]
    planned_at: float
    batch_id: str | None = None
    done: bool = False


@dataclass(slots=True)
class MessageBatches:
    """Fills the answer book of one run through one Claude model."""

    llm: AnthropicLlm
    store: BatchStore
    run: str
    purse: Purse
    card: PriceCard | None
    seconds: float
    """How long to wait for batches in all; then they are cancelled."""
    poll_seconds: float = 20.0
    tries: int = 6
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], float] = time.time

    async def fill(self, prompts: Sequence[Prompt]) -> None:
        """Answer as many of these as batches can."""
        wanted = {request_hash(self.llm.name, prompt): prompt for prompt in prompts}
        known = await self.store.answers(list(wanted))
        missing = {request: prompt for request, prompt in wanted.items() if request not in known}
        deadline = self.now() + self.seconds
        earlier = [plan for plan in await self._journalled() if not plan.done]
        for plan in earlier:
            for request in plan.requests:
                missing.pop(request, None)
        fresh = [await self._plan(chunk) for chunk in _chunks(missing)]
        for plan in [*earlier, *fresh]:
            await self._carry_out(plan, wanted, deadline)

    async def _carry_out(self, plan: _Planned, wanted: dict[str, Prompt], deadline: float) -> None:
        asked = {request: wanted[request] for request in plan.requests if request in wanted}
        amounts = await self.purse.reserve_all(self.llm.name, self.card, list(asked.values()), batch=True)
        reserved = dict(zip(asked, amounts, strict=True))
        give_back = self.purse.release
        try:
            batch_id = plan.batch_id or await self._submit(plan, asked)
            if batch_id is not None:
                # From here to the last answer the provider may charge for what we have not seen.
                give_back = self.purse.unsure
                await self._until_ended(batch_id, deadline)
                await self._collect(batch_id, asked, reserved)
                give_back = self.purse.release
        finally:
            for request, amount in reserved.items():
                give_back(amount, asked[request].purpose)
        await self.store.add_entry(self._journal, f"done/{plan.name}", "1")

    async def _submit(self, plan: _Planned, asked: dict[str, Prompt]) -> str | None:
        """Create it, or find the one that was created just before a crash or a lost answer; None if all is moot."""
        if not asked:
            return None
        batch_id = await self._created_before(plan)
        for number in range(1, self.tries + 1):
            if batch_id is not None:
                break
            try:
                batch_id = await self._create(asked)
            except Unanswered:
                batch_id = await self._created_before(plan)
            except Temporary as bad:
                if number == self.tries:
                    raise
                await self.sleep(max(bad.retry_after_seconds or 0.0, 2.0**number))
        if batch_id is None:
            raise Temporary(f"{self.llm.name} did not say whether it took a batch.", remedy="It is looked for again.")
        return await self.store.add_entry(self._journal, f"id/{plan.name}", batch_id)

    async def _create(self, asked: dict[str, Prompt]) -> str:
        requests: Any = [
            {"custom_id": _custom_id(request), "params": self.llm.params(prompt)} for request, prompt in asked.items()
        ]
        created = await self._said(self.llm.client.messages.batches.create(requests=requests))
        return str(created.id)

    async def _created_before(self, plan: _Planned) -> str | None:
        """A batch of the same size, created since this one was planned, that nobody has claimed."""
        claimed = {other.batch_id for other in await self._journalled()}
        page = await self._said(self.llm.client.messages.batches.list(limit=50))
        for batch in page.data:
            counts = batch.request_counts
            size = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
            is_new = batch.created_at.timestamp() >= plan.planned_at - CLOCK_SKEW_SECONDS
            if size == len(plan.requests) and is_new and batch.id not in claimed:
                return str(batch.id)
        return None

    async def _until_ended(self, batch_id: str, deadline: float) -> None:
        cancelled = False
        failures = 0
        while True:
            try:
                batch = await self._said(self.llm.client.messages.batches.retrieve(batch_id))
                if batch.processing_status == "ended":
                    return
                if self.now() >= deadline and not cancelled:
                    await self._said(self.llm.client.messages.batches.cancel(batch_id))
                    cancelled = True
            except Temporary:
                failures += 1
                if failures >= self.tries:
                    raise
            if self.now() >= deadline + CANCEL_SECONDS:
                raise Temporary(f"The batch {batch_id} of {self.llm.name} does not end.", remedy="It is asked again.")
            await self.sleep(self.poll_seconds)

    async def _collect(self, batch_id: str, asked: dict[str, Prompt], reserved: dict[str, int]) -> None:
        by_id = {_custom_id(request): request for request in asked}
        async for item in await self._said(self.llm.client.messages.batches.results(batch_id)):
            request = by_id.get(item.custom_id)
            if request is None or item.result.type != "succeeded":
                continue
            try:
                answer = self.llm.answer(item.result.message.model_dump(mode="json"))
            except (KeyError, TypeError, ValueError):
                raise BadAnswer(f"The batch {batch_id} holds something that is not a message.") from None
            purpose = asked[request].purpose
            cost = None if self.card is None else self.card.cost(answer, batch=True)
            await self.store.save_answer(PaidAnswer(request, self.run, self.llm.name, purpose, answer, cost))
            self.purse.settle(reserved.pop(request), purpose, answer, cost)

    async def _said(self, call: Any) -> Any:
        try:
            return await call
        except (anthropic.AnthropicError, anthropic.APIError) as bad:
            raise explain(bad, self.llm.endpoint) from None

    # journal

    @property
    def _journal(self) -> str:
        """Beside the run's own journal: a run that starts anew must still find the batches it paid for."""
        return f"{self.run}:batches:{self.llm.name}"

    async def _plan(self, chunk: tuple[str, ...]) -> _Planned:
        name = sha256_hex("".join(chunk).encode())[2:34]
        plan = _Planned(name, chunk, self.now())
        await self.store.add_entry(self._journal, f"plan/{name}", plain_json([list(chunk), plan.planned_at]))
        return plan

    async def _journalled(self) -> list[_Planned]:
        kept = dict(await self.store.entries(self._journal, ""))
        plans = []
        for key, value in kept.items():
            if key.startswith("plan/"):
                name, (requests, planned_at) = key.removeprefix("plan/"), json.loads(value)
                batch_id, done = kept.get(f"id/{name}"), f"done/{name}" in kept
                plans.append(_Planned(name, tuple(requests), planned_at, batch_id, done))
        return plans


def _custom_id(request: str) -> str:
    """The hash without 0x: 64 characters, exactly what the API allows."""
    return request.removeprefix("0x")


def _chunks(missing: dict[str, Prompt]) -> Iterator[tuple[str, ...]]:
    """In order of hash, so that the same requests make the same batches."""
    chunk: list[str] = []
    size = 0
    for request in sorted(missing):
        prompt = missing[request]
        needed = len(prompt.system.encode()) + len(prompt.user.encode()) + len(prompt.schema_json) + 1000
        if chunk and (len(chunk) == MOST_IN_A_BATCH or size + needed > MOST_BYTES):
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(request)
        size += needed
    if chunk:
        yield tuple(chunk)
