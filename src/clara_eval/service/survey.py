"""Discover new challenges, and read those that changed or are due by their recorded state.

Invariant: the checkpoint of discovery moves only after a page is stored, and steps back after a reorg: no event
is lost. A challenge that cannot be read is listed in the report and blocks no other; it is read again at the next tick,
as is one whose events are not final yet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from clara_eval.chain.ethereum import ChallengeEvents
from clara_eval.chain.model import Challenge, ChallengeStatus, Checkpoint, NewChallenge
from clara_eval.chain.sender import Intention
from clara_eval.challenges.challenge_index import save_summary
from clara_eval.challenges.review import read_review
from clara_eval.challenges.status import Attempts, attempts_key, is_to_try_again, reason_of
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import read_stored
from clara_eval.core.errors import ConfigError, StoreDown
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import FINAL_STATES, Created, EvalStatus
from clara_eval.documents.store_keys import INDEX, created_key, index_key, status_key
from clara_eval.service.due import FINISHED, ChallengeState, Due, DueAction, Memory, RecordedChallenge, Tick, due_now
from clara_eval.service.metrics import Alert
from clara_eval.store.sql_store import SignedTransactions

_log = structlog.get_logger(__name__)
ANNOUNCED = "engine:announced:"  # Key prefix of every challenge that the factory created, readable or not
CHANGES = "engine:changes"  # Key of the last safe block whose events were read, and of the challenges to read again
LONGEST_GAP_BLOCKS = 50_000
"""About a day on Base: after a longer gap it is cheaper to read every challenge than every event."""

STEP_BACK_BLOCKS = 1_000  # blocks to read again after a reorg: far more than any known reorg of a rollup, and cheap
_READS_AT_ONCE = 8
READ_TOGETHER = 25  # Challenges per batch of requests: the response of a larger batch can exceed a megabyte
_TOGETHER_SECONDS = 10.0  # Timeout of a batch; after it each challenge is read alone
_KEYS = (index_key, status_key, attempts_key)
Found = tuple[Challenge, Due]
Keep = Callable[[NewChallenge], Awaitable[None]]


async def discover(tick: Tick) -> None:
    app = tick.app

    async def keep(new: NewChallenge) -> None:
        created = Created(at=new.created_at or None, txHash=new.tx_hash, block=new.block_number)
        pairs = [(ANNOUNCED + new.address, str(new.block_number))]
        pairs += [(created_key(new.address), plain_json(created.model_dump()))] if new.tx_hash else []
        await app.store.put_many(app.chain_id, pairs)

    factory = to_address(app.settings.factory)
    try:
        await find_challenges(app.chain.events, app.store, factory, app.settings.first_block, keep)
    except StoreDown:
        raise
    except Exception as bad:
        tick.alerts.raise_alert(Alert("DiscoveryFailing", "critical", reason_of(bad)))
        raise


async def find_challenges(
    events: ChallengeEvents, store: SignedTransactions, factory: Address, first_block: int, keep: Keep
) -> int:
    """Call `keep` for every challenge created since the last call; return their number."""
    blocks = events.blocks
    name = f"challenges:{blocks.rpc.chain_id}:{factory}"
    first, last, checkpoint = first_block, await blocks.safe_block(), await store.checkpoint(name)
    if checkpoint is not None:
        is_replaced = checkpoint.number <= last.number and not await blocks.is_canonical(checkpoint)
        first = max(first_block, checkpoint.number - STEP_BACK_BLOCKS) if is_replaced else checkpoint.number + 1
    kept = 0
    async for announced, upto in events.challenges_created(factory, first, last):
        for new in announced:
            await keep(new)
            kept += 1
        await store.save_checkpoint(name, upto)
    return kept


async def save_changes(tick: Tick) -> None:
    progress = {"block": tick.safe.number, "hash": tick.safe.hash, "again": sorted(tick.read_again)}
    await tick.app.store.put(tick.app.chain_id, CHANGES, plain_json(progress))


@dataclass(slots=True)
class Survey:
    """Select the challenges to read at this tick; the others are decided by their recorded state."""

    tick: Tick
    active: frozenset[Address] = frozenset()
    changed: set[str] | None = None
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_READS_AT_ONCE))
    texts: dict[str, str] = field(default_factory=dict)  # Stored summaries, statuses and attempts, by key

    async def run(self) -> AsyncIterator[list[Found]]:
        await self.tick.run_isolated("events", self._read_changes())
        self.active = await self.tick.active()
        for addresses in await self._select_challenges():
            groups = [addresses[start : start + READ_TOGETHER] for start in range(0, len(addresses), READ_TOGETHER)]
            found = [one for group in groups for one in await self._read_group(group)]
            yield sorted(found, key=lambda one: one[0].scoring_deadline)

    async def _read_changes(self) -> None:
        tick, chain, head = self.tick, self.tick.app.chain, self.tick.head
        async with asyncio.timeout(tick.options.read_seconds):
            text = await tick.app.store.get(tick.app.chain_id, CHANGES)
            progress = json.loads(text) if text else None
            if progress is None or head.number - progress["block"] > LONGEST_GAP_BLOCKS:
                return
            last = Checkpoint(progress["block"], progress["hash"])
            if last.number <= head.number and not await chain.blocks.is_canonical(last):
                return
            found = await chain.events.challenges_with_events(min(last.number, tick.safe.number) + 1, head)
        self.changed = {*progress["again"], *found}
        tick.read_again.update(found)  # a reorg may undo what they say

    async def _select_challenges(self) -> tuple[list[Address], list[Address]]:
        tick, app = self.tick, self.tick.app
        finished = set(await tick.addresses(FINISHED))
        known = dict.fromkeys([*await tick.addresses(ANNOUNCED), *await tick.addresses(INDEX)])
        waiting = [Address(name) for name in known if name not in finished]
        self.texts = await app.store.get_many(app.chain_id, [index_key(address) for address in waiting])
        states = dict[Address, RecordedChallenge | None]()
        for address in waiting:
            try:
                text = self.texts.get(index_key(address))
                state = RecordedChallenge.read(text) if text else None
            except Exception as bad:  # noqa: BLE001 - one broken row must not hide the other challenges
                self._add_failure(address, bad)
                continue
            if state is not None and state.deadline >= tick.safe.timestamp:
                tick.still_open.add(address)
            if state is None or not self._is_quiet(state):
                states[address] = state
        self.texts |= await app.store.get_many(app.chain_id, [key(one) for one in states for key in _KEYS[1:]])
        ours, others = list[Address](), list[Address]()
        for address, state in states.items():
            try:
                if state is None or await self._must_read(state):
                    (ours if state is None or state.evaluator == app.evaluator else others).append(address)
            except Exception as bad:  # noqa: BLE001 - as above
                self._add_failure(address, bad)
        return ours, others

    def _is_quiet(self, state: RecordedChallenge) -> bool:
        """Return whether the challenge is open and has no new event: nothing can be due."""
        if self.changed is None or state.address in self.changed:
            return False
        return state.status is ChallengeStatus.OPEN and self.tick.head.timestamp <= state.deadline

    def _stored_status(self, address: Address) -> EvalStatus | None:
        text = self.texts.get(status_key(address))
        return EvalStatus.model_validate_json(text) if text else None

    def _add_failure(self, address: Address, bad: Exception) -> None:
        self.tick.add_failure("challenge_not_read", address, bad, challenge=address)
        self.tick.read_again.add(address)

    async def _must_read(self, state: RecordedChallenge) -> bool:
        """Return whether the recorded state may be outdated, or something is due by it."""
        if self.changed is None or state.address in self.changed:
            return True
        memory = await self._read_memory(state)
        is_ended = state.status not in {ChallengeStatus.OPEN, ChallengeStatus.SCORING}
        is_others = state.evaluator != self.tick.app.evaluator and not memory.is_signed
        if is_ended and (memory.status in FINAL_STATES or is_others):
            await self.tick.app.store.put(self.tick.app.chain_id, FINISHED + state.address, memory.status or "pending")
            return False
        found = due_now(self.tick.app, state, memory, self.tick.head)
        if found.may_change_unseen or (found.action is not DueAction.NONE and not self.is_active(state, found)):
            return True
        self.tick.watch_deadline(state, found)
        return False

    def is_active(self, challenge: ChallengeState, found: Due) -> bool:
        return found.action is DueAction.EVALUATE and challenge.address in self.active

    async def _read_memory(self, challenge: ChallengeState) -> Memory:
        app, address = self.tick.app, challenge.address
        status = self._stored_status(address)
        state = status.status if status else None
        if status is not None and await is_to_try_again(app.store, app.chain_id, address, status):
            state = None
        text = self.texts.get(attempts_key(address))
        attempts = read_stored(Attempts, text) if text else Attempts()
        review = await read_review(app.store, app.chain_id, address) if state == "review" else None
        is_signed = False
        if status is not None and challenge.evaluator != app.evaluator:
            posts = await app.store.transactions(f"{app.chain_id}:{address}", Intention.POST_SCORES)
            is_signed = any(tx.sender == challenge.evaluator for tx in posts)
        is_approved = review is not None and review.state == "approved"
        until = status.objectionsUntil if status else None
        return Memory(state, attempts.retry_at, is_approved, is_signed, review.posts_at if review else None, until)

    async def _read_group(self, group: Sequence[Address]) -> list[Found]:
        """Read the challenges in one batch; if that fails read each alone, so that a failure stays alone."""
        tick, app, is_alone = self.tick, self.tick.app, len(group) == 1
        seconds = tick.options.read_seconds
        try:
            async with self.gate, asyncio.timeout(seconds if is_alone else min(seconds, _TOGETHER_SECONDS)):
                challenges = await app.chain.challenges.challenges_at(group, tick.head)
                self.texts |= await app.store.get_many(app.chain_id, [key(one) for one in group for key in _KEYS])
                return [(one, await self._decide(one)) for one in challenges]
        except ConfigError:
            raise
        except Exception as bad:  # noqa: BLE001 - one failing challenge must not hide the others
            if is_alone:
                self._add_failure(group[0], bad)
                return []
            _log.info("challenges_read_one_by_one", count=len(group), problem=reason_of(bad))
        return [found for alone in await asyncio.gather(*(self._read_group([one]) for one in group)) for found in alone]

    async def _decide(self, challenge: Challenge) -> Due:
        status = self._stored_status(challenge.address)
        await save_summary(self.tick.app.store, challenge, status.postedBy if status else None)
        return due_now(self.tick.app, challenge, await self._read_memory(challenge), self.tick.head)
