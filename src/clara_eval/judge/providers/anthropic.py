"""Claude through the Messages API, or through Message Batches at half the price if there is time."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import partial
from typing import Any

from clara_eval.config.settings import Settings
from clara_eval.core.errors import OutOfBudget, Temporary
from clara_eval.core.extras import require
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.core.strict_json import object_or_none
from clara_eval.judge.costs.budgets import public_price
from clara_eval.judge.port import Answer, PaidAnswer, Prompt, Stop, Unanswered, describe_sampling, request_hash
from clara_eval.judge.provider import EFFORT, BatchRun, JudgeName, Provider, endpoint_key
from clara_eval.judge.providers.wire import HttpLlm, ModelReply, error_text

ANTHROPIC = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
BATCHES = "/v1/messages/batches"
_STOPS: dict[str | None, Stop] = {
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "max_tokens"),
    "refusal": "refusal",
}
_ANSWERS_AT_ONCE = re.compile(r"claude-(?:\d|instant|[a-z]+-[1-4](?:\D|$))")
_PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


class AnthropicLlm(HttpLlm):
    """One Claude model, at Anthropic or at a gateway."""

    def __init__(self, model: str, *, api_key: str, base_url: str | None = None, name: str = "") -> None:
        self.model, self._effort = model, EFFORT if thinks(model) else ""
        address, headers = (base_url or ANTHROPIC).removesuffix("/v1"), {"anthropic-version": API_VERSION}
        super().__init__(name or f"anthropic:{model}", address, api_key, "ANTHROPIC_API_KEY", headers)

    async def complete(self, prompt: Prompt) -> Answer:
        params = self.params(prompt)
        reply = await self.post("/v1/messages", plain_json(params).encode())
        if reply.status == 400 and "effort" in params["output_config"] and "effort" in error_text(reply.content):
            self._effort = ""
            return await self.complete(prompt)
        if not reply.is_ok:
            raise self.refusal(reply)
        try:
            return self.answer(json.loads(reply.content))
        except _PARSE_ERRORS:
            raise Unanswered(f"{self.name} answered with something that is not a message.") from None

    def params(self, prompt: Prompt) -> dict[str, Any]:
        """Return the request body, for a single call and for an item of a batch."""
        return {
            "model": self.model,
            "max_tokens": prompt.max_tokens,
            "system": [{"type": "text", "text": prompt.system, "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": prompt.user}],
            "output_config": {
                "format": {"type": "json_schema", "schema": json.loads(prompt.schema_json)},
                **({"effort": self._effort} if self._effort else {}),
            },
        }

    def answer(self, body: dict[str, Any]) -> Answer:
        """Parse a message; its input tokens are counted in three parts."""
        usage = body["usage"]
        cached, written = (int(usage.get(f"cache_{kind}_input_tokens") or 0) for kind in ("read", "creation"))
        return Answer(
            text="".join(block["text"] for block in body["content"] if block.get("type") == "text"),
            model=str(body["model"]),
            stop=_STOPS.get(body.get("stop_reason"), "end"),
            input_tokens=int(usage["input_tokens"]) + cached + written,
            output_tokens=int(usage["output_tokens"]),
            cached_tokens=cached,
            cache_write_tokens=written,
            sampling=describe_sampling({}),
        )


def thinks(model: str) -> bool:
    """Return whether this Claude model thinks by default: those before the fifth generation do not."""
    return _ANSWERS_AT_ONCE.search(model) is None


def _build(judge: JudgeName, settings: Settings) -> AnthropicLlm:
    require("anthropic", judge.text)
    key = endpoint_key(settings, judge, settings.anthropic_api_key, "ANTHROPIC_API_KEY")
    address = judge.base_url or settings.anthropic_base_url
    return AnthropicLlm(judge.model, api_key=key, base_url=address, name=judge.text)


FEWEST_CALLS = 100
LEAST_SECONDS = 6 * 3600
MOST_IN_A_BATCH = 10_000  # the provider allows 100,000; a smaller batch loses less if it fails
MOST_BYTES = 100 * 2**20  # the provider allows 256 MB
CLOCK_SKEW_SECONDS = 300
CANCEL_SECONDS = 900  # how long to wait for a cancelled batch to end


def should_batch(seconds_left: float, calls: int) -> bool:
    """Return whether batches are worth it: enough calls, and time for single calls if a batch fails.

    Most batches end within an hour and all within a day. Batches get half of the time left.
    """
    return calls >= FEWEST_CALLS and seconds_left >= LEAST_SECONDS


async def answer_in_batches(run: BatchRun, prompts: Sequence[Prompt], seconds_left: float) -> None:
    """Answer prompts in batches if worth it; earlier batches, which are paid for, are always collected."""
    assert isinstance(run.llm, AnthropicLlm), "only Claude has message batches"
    seconds = seconds_left / 2
    batches = MessageBatches(run.llm, run.store, run.run, run.budget, run.card, run.poll_seconds, seconds=seconds)
    await batches.fill(prompts, only_earlier=not should_batch(seconds_left, len(prompts)))


@dataclass(slots=True)
class _Planned:
    name: str
    requests: tuple[str, ...]
    planned_at: float
    batch_id: str | None = None
    done: bool = False


@dataclass(frozen=True, slots=True)
class MessageBatches(BatchRun):
    """Answers prompts of one run in batches, and saves the answers under the hashes of single requests.

    Invariant: a batch is journalled before it is submitted, so a restarted process finds the batch it paid for.
    """

    llm: AnthropicLlm
    _: KW_ONLY
    seconds: float  # how long to wait for all batches before they are cancelled
    tries: int = 6
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], float] = time.time

    async def fill(self, prompts: Sequence[Prompt], *, only_earlier: bool = False) -> None:
        """Answer these prompts in batches. `only_earlier`: collect submitted batches and create none."""
        journalled = await self._load_plans()
        if only_earlier and all(plan.done for plan in journalled):
            return
        wanted = {request_hash(self.llm.name, prompt): prompt for prompt in prompts}
        # A plan without any of these requests is of another stage, which will collect it.
        plans = [plan for plan in journalled if not plan.done and not wanted.keys().isdisjoint(plan.requests)]
        known = await self.store.answers(list(wanted))
        missing = {request: prompt for request, prompt in wanted.items() if request not in known}
        deadline = self.now() + self.seconds
        for plan in plans:
            if plan.batch_id is None and (batch_id := await self._find_created(plan, len(plan.requests))):
                plan.batch_id = await self.store.add_entry(self._journal, f"id/{plan.name}", batch_id)
        if only_earlier:
            plans = [plan for plan in plans if plan.batch_id is not None]
        else:
            planned = {request for plan in plans for request in plan.requests}
            open_ones = {request: prompt for request, prompt in missing.items() if request not in planned}
            plans += [await self._plan(chunk, len(journalled)) for chunk in _chunks(open_ones)]
        for plan in plans:
            await self._answer(plan, {one: missing[one] for one in plan.requests if one in missing}, deadline)
            await self.store.add_entry(self._journal, f"done/{plan.name}", "1")

    async def _answer(self, plan: _Planned, asked: dict[str, Prompt], deadline: float) -> None:
        try:
            amounts = await self.budget.reserve_all(self.llm.name, self.card, list(asked.values()), batch=True)
        except OutOfBudget:
            if plan.batch_id is None:
                return  # the budget may still suffice for single calls
            amounts = [0] * len(asked)  # a submitted batch is charged anyway, so collect it without a reservation
        reserved, settle = dict(zip(asked, amounts, strict=True)), self.budget.release
        try:
            if reserved:
                batch_id = plan.batch_id or await self._submit(plan, asked)
                # Until its results are read the batch may be charged; if that fails, the next attempt collects it.
                settle = partial(self.budget.charge_unanswered, is_collected_later=True)
                await self._wait_until_ended(batch_id, deadline)
                await self._collect(batch_id, asked, reserved)
                settle = self.budget.release
        finally:
            for amount in reserved.values():
                settle(amount)

    async def _submit(self, plan: _Planned, asked: dict[str, Prompt]) -> str:
        """Create the batch and return its id; if the response was lost, look the batch up."""
        items = [{"custom_id": one.removeprefix("0x"), "params": self.llm.params(asked[one])} for one in asked]
        content = plain_json({"requests": items}).encode()
        for number in range(1, self.tries + 1):
            batch_id: str | None
            try:
                batch_id = str((await self._read_document(self.llm.post(BATCHES, content), "id"))["id"])
            except Unanswered:
                batch_id = await self._find_created(plan, len(asked))
            except Temporary as bad:
                if number == self.tries:
                    raise
                await self.sleep(max(bad.retry_after_seconds or 0.0, 2.0**number))
                continue
            if batch_id is not None:
                return await self.store.add_entry(self._journal, f"id/{plan.name}", batch_id)
        raise Temporary(f"{self.llm.name} did not confirm the batch.", remedy="It is looked for again.")

    async def _find_created(self, plan: _Planned, items: int) -> str | None:
        """Return the id of an unclaimed batch of this size that was created after the plan."""
        claimed = {other.batch_id for other in await self._load_plans()}
        for batch in (await self._read_document(self.llm.get(BATCHES, {"limit": "50"}), "data"))["data"]:
            created_at = datetime.fromisoformat(batch["created_at"]).timestamp()
            is_new = created_at >= plan.planned_at - CLOCK_SKEW_SECONDS
            if sum(batch["request_counts"].values()) == items and is_new and batch["id"] not in claimed:
                return str(batch["id"])
        return None

    async def _wait_until_ended(self, batch_id: str, deadline: float) -> None:
        cancelled, failures = False, 0
        while True:
            try:
                batch = await self._read_document(self.llm.get(f"{BATCHES}/{batch_id}"), "processing_status")
                failures = 0
                if batch["processing_status"] == "ended":
                    return
                if self.now() >= deadline and not cancelled:
                    await self._read_document(self.llm.post(f"{BATCHES}/{batch_id}/cancel", b"{}"))
                    cancelled = True
            except Temporary:
                failures += 1
                if failures >= self.tries:
                    raise
            if self.now() >= deadline + CANCEL_SECONDS:
                raise Temporary(f"The batch {batch_id} of {self.llm.name} does not end.", remedy="It is asked again.")
            await self.sleep(self.poll_seconds)

    async def _collect(self, batch_id: str, asked: dict[str, Prompt], reserved: dict[str, int]) -> None:
        async for line in self.llm.lines(f"{BATCHES}/{batch_id}/results"):
            try:
                item = json.loads(line)
                request, result = f"0x{item['custom_id']}", item["result"]
            except _PARSE_ERRORS:
                raise Unanswered(f"The results of the batch {batch_id} cannot be read.") from None
            if request not in reserved or result["type"] != "succeeded":
                continue
            try:
                answer = self.llm.answer(result["message"])
            except _PARSE_ERRORS:
                # Charged and unusable: this request is repeated, and the others are still read.
                self.budget.charge_unanswered(reserved.pop(request))
                continue
            cost = None if self.card is None else self.card.cost(answer, batch=True)
            paid = PaidAnswer(request, self.run, self.llm.name, asked[request].purpose, answer, cost)
            await self.store.save_answer(paid)
            self.budget.charge(reserved.pop(request), cost)

    async def _read_document(self, exchange: Awaitable[ModelReply], *keys: str) -> dict[str, Any]:
        reply = await exchange
        if not reply.is_ok:
            raise self.llm.refusal(reply)
        found = object_or_none(reply.content)
        if found is None or not found.keys() >= {*keys}:
            raise Unanswered(f"{self.llm.name} answered with something that is not about a batch.")
        return found

    @property
    def _journal(self) -> str:
        """The journal of batches. It is not the run's own, so that a restart does not delete it."""
        return f"{self.run}:batches:{self.llm.name}"

    async def _plan(self, chunk: tuple[str, ...], earlier: int) -> _Planned:
        name = sha256_hex("".join((*chunk, str(earlier))).encode())[2:34]
        plan = _Planned(name, chunk, self.now())
        await self.store.add_entry(self._journal, f"plan/{name}", plain_json([list(chunk), plan.planned_at]))
        return plan

    async def _load_plans(self) -> list[_Planned]:
        kept = dict(await self.store.entries(self._journal, ""))
        plans = []
        for key, value in kept.items():
            if key.startswith("plan/"):
                name, (requests, at) = key.removeprefix("plan/"), json.loads(value)
                plans.append(_Planned(name, tuple(requests), at, kept.get(f"id/{name}"), f"done/{name}" in kept))
        return plans


def _chunks(missing: dict[str, Prompt]) -> list[tuple[str, ...]]:
    """Split in order of hash, so that equal requests give equal batches; sized for the largest request."""
    sizes = (len((p.system + p.user + p.schema_json).encode()) + 1000 for p in missing.values())
    count = min(MOST_IN_A_BATCH, max(1, MOST_BYTES // max(sizes, default=1)))
    requests = sorted(missing)
    return [tuple(requests[start : start + count]) for start in range(0, len(requests), count)]


PROVIDER = Provider(
    name="anthropic",
    form="anthropic:MODEL, anthropic:MODEL@https://host",
    build=_build,
    takes_address=True,
    price=lambda judge, at: public_price(judge.model, "anthropic", at),
    answer_in_batches=answer_in_batches,
    thinks=lambda judge: thinks(judge.model),
)
