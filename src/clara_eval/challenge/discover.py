"""Finding challenges and submissions as they appear, from events, with a checkpoint that survives a restart.

Comes in: pages of events up to the newest safe block. Goes out: each event, handed to `keep`, at least once. Must hold:
the checkpoint moves only after a page is kept, so nothing is lost by a crash; a checkpoint whose block is no longer in
the chain steps back before reading on. So `keep` may see an event twice and must not mind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from clara_eval.challenge.model import Address, Block, Checkpoint

STEP_BACK_BLOCKS = 1_000
"""How far a reorg sends the reader back: far beyond any seen on a rollup, and cheap to read again."""

Event = TypeVar("Event")


@dataclass(frozen=True, slots=True)
class NewChallenge:
    """What the factory announced."""

    address: Address
    poster: Address
    token: Address
    prize_pool: int
    poster_bond: int
    deadline: int
    scoring_deadline: int
    challenge_uri: str
    skill_tags: tuple[str, ...]
    block_number: int


@dataclass(frozen=True, slots=True)
class NewSubmission:
    """What a challenge announced: somebody submitted, for the first time or again."""

    challenge: Address
    submitter: Address
    agent_id: int
    version: int
    solution_hash: str
    block_number: int


@dataclass(frozen=True, slots=True)
class Page(Generic[Event]):
    """All events up to and including block `upto`, after the page before."""

    events: tuple[Event, ...]
    upto: Checkpoint


class Events(Protocol):
    """What this module asks of a node."""

    @property
    def chain_id(self) -> int: ...

    async def safe_block(self) -> Block: ...

    async def is_canonical(self, block: Block | Checkpoint) -> bool: ...

    def challenges_created(self, factory: Address, first: int, last: Block) -> AsyncIterator[Page[NewChallenge]]: ...

    def submissions_received(
        self, challenges: Sequence[Address], first: int, last: Block
    ) -> AsyncIterator[Page[NewSubmission]]: ...


class Checkpoints(Protocol):
    """Where the reader's place is kept."""

    async def checkpoint(self, name: str) -> Checkpoint | None: ...

    async def save_checkpoint(self, name: str, checkpoint: Checkpoint) -> None: ...


async def find_challenges(
    chain: Events,
    checkpoints: Checkpoints,
    factory: Address,
    first_block: int,
    keep: Callable[[NewChallenge], Awaitable[None]],
) -> int:
    """Hand every challenge created since the last call to `keep`; the number handed over."""
    name = f"challenges:{chain.chain_id}:{factory}"
    first, last = await _span(chain, checkpoints, name, first_block)
    return await _follow(chain.challenges_created(factory, first, last), checkpoints, name, keep)


async def find_submissions(
    chain: Events,
    checkpoints: Checkpoints,
    challenge: Address,
    first_block: int,
    keep: Callable[[NewSubmission], Awaitable[None]],
) -> int:
    """Hand every submission since the last call to `keep`; for live views, the judging reads at its pinned block."""
    name = f"submissions:{chain.chain_id}:{challenge}"
    first, last = await _span(chain, checkpoints, name, first_block)
    return await _follow(chain.submissions_received([challenge], first, last), checkpoints, name, keep)


async def _span(chain: Events, checkpoints: Checkpoints, name: str, first_block: int) -> tuple[int, Block]:
    last = await chain.safe_block()
    place = await checkpoints.checkpoint(name)
    if place is None:
        return first_block, last
    if place.block_number <= last.number and not await chain.is_canonical(place):
        return max(first_block, place.block_number - STEP_BACK_BLOCKS), last
    return place.block_number + 1, last


async def _follow(
    pages: AsyncIterator[Page[Event]],
    checkpoints: Checkpoints,
    name: str,
    keep: Callable[[Event], Awaitable[None]],
) -> int:
    kept = 0
    async for page in pages:
        for event in page.events:
            await keep(event)
            kept += 1
        await checkpoints.save_checkpoint(name, page.upto)
    return kept
