"""Read events of challenges, and find new challenges with a checkpoint that survives a restart.

Invariant: the checkpoint moves only after a page is kept, and steps back if its block was replaced. So an event may be
handed over twice, and none is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from clara_eval.chain.blocks import Blocks, block_or_none
from clara_eval.chain.contracts.clients import ChallengeContract, ChallengeFactoryContract
from clara_eval.chain.contracts.versions import contract_version
from clara_eval.chain.logs import LogFilter, Logs
from clara_eval.chain.model import Block, Checkpoint, NewChallenge, NewClaim
from clara_eval.core.address import Address

STEP_BACK_BLOCKS = 1_000
"""How far a reorg sends the reader back: far beyond any seen on a rollup, and cheap to read again."""


@dataclass(frozen=True, slots=True)
class Page:
    """All events up to and including block `upto`, after the page before."""

    events: tuple[NewChallenge, ...]
    upto: Checkpoint


class ChallengeEvents:
    """What challenges and their factory announced."""

    def __init__(self, blocks: Blocks, logs: Logs) -> None:
        self.blocks = blocks
        self._logs = logs
        self._version = contract_version(blocks.network.contracts)

    async def challenges_created(self, factory: Address, first: int, last: Block) -> AsyncIterator[Page]:
        contract = ChallengeFactoryContract(self.blocks, factory, self._version.factory)
        wanted = LogFilter((factory,), (contract.abi.event("ChallengeCreated").topic,))
        async for group in self._logs.groups(wanted, first, last.number):
            found = [contract.challenge_created(entry) for entry in group.entries]
            times = await self._times(found)
            yield Page(tuple(replace(one, created_at=times[one.block_number]) for one in found), group.upto)

    async def prizes_claimed(
        self, challenges: Sequence[Address], first: int, last: Block
    ) -> AsyncIterator[tuple[tuple[NewClaim, ...], int]]:
        """Yield claims from those challenges, page by page, each with the last block that it covers."""
        spoken = self._version.challenge
        wanted = LogFilter(tuple(challenges), (spoken.event("PrizeClaimed").topic,))
        async for group in self._logs.groups(wanted, first, last.number):
            found = [ChallengeContract.prize_claimed(spoken, entry) for entry in group.entries]
            times = await self._times(found)
            yield tuple(replace(one, claimed_at=times[one.block_number]) for one in found), group.upto.block_number

    async def challenges_with_events(self, first: int, last: Block) -> set[Address]:
        """Return contracts that emitted an event that changes a challenge: a hint, since anybody can emit these."""
        names = ("SubmissionReceived", "ScoresPosted", "ChallengeFinalized", "ChallengeExpired", "ChallengeCancelled")
        topics = tuple(self._version.challenge.event(name).topic for name in names)
        found: set[Address] = set()
        async for group in self._logs.groups(LogFilter((), (topics,)), first, last.number):
            found.update(Address(str(entry["address"]).lower()) for entry in group.entries)
        return found

    async def _times(self, found: Iterable[NewChallenge | NewClaim]) -> dict[int, int]:
        """Return the time of each event's block; 0 if no node has the block, because the event counts all the same."""
        numbers = sorted({one.block_number for one in found})
        blocks = [block_or_none(raw) for raw in await self.blocks.ask_blocks(numbers)]
        return {number: block.timestamp if block else 0 for number, block in zip(numbers, blocks, strict=True)}


class Checkpoints(Protocol):
    """The store of a reader's place."""

    async def checkpoint(self, name: str) -> Checkpoint | None: ...
    async def save_checkpoint(self, name: str, checkpoint: Checkpoint) -> None: ...


async def find_challenges(
    events: ChallengeEvents,
    checkpoints: Checkpoints,
    factory: Address,
    first_block: int,
    keep: Callable[[NewChallenge], Awaitable[None]],
) -> int:
    """Hand every challenge created since the last call to `keep`; return how many."""
    name = f"challenges:{events.blocks.rpc.chain_id}:{factory}"
    first, last = await _span(events.blocks, checkpoints, name, first_block)
    kept = 0
    async for page in events.challenges_created(factory, first, last):
        for new in page.events:
            await keep(new)
            kept += 1
        await checkpoints.save_checkpoint(name, page.upto)
    return kept


async def _span(blocks: Blocks, checkpoints: Checkpoints, name: str, first_block: int) -> tuple[int, Block]:
    last = await blocks.safe_block()
    place = await checkpoints.checkpoint(name)
    if place is None:
        return first_block, last
    if place.block_number <= last.number and not await blocks.is_canonical(place):
        return max(first_block, place.block_number - STEP_BACK_BLOCKS), last
    return place.block_number + 1, last
