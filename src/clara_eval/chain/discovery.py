"""Finding challenges as they appear, from events, with a checkpoint that survives a restart.

Comes in: pages of events up to the newest safe block. Goes out: each event, handed to `keep`, at least once. Must hold:
the checkpoint moves only after a page is kept, so nothing is lost by a crash; a checkpoint whose block is no longer in
the chain steps back before reading on. So `keep` may see an event twice and must not mind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from clara_eval.chain.model import Block, Checkpoint
from clara_eval.core.address import Address

STEP_BACK_BLOCKS = 1_000
"""How far a reorg sends the reader back: far beyond any seen on a rollup, and cheap to read again."""


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
    tx_hash: str = ""
    created_at: int = 0
    """The time of its block."""


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
class NewClaim:
    """What a challenge announced: a winner took the prize."""

    challenge: Address
    winner: Address
    amount: int
    tx_hash: str
    block_number: int
    claimed_at: int = 0
    """The time of its block."""


@dataclass(frozen=True, slots=True)
class Page:
    """All events up to and including block `upto`, after the page before."""

    events: tuple[NewChallenge, ...]
    upto: Checkpoint


class Events(Protocol):
    """What this module asks of a node."""

    @property
    def chain_id(self) -> int: ...
    async def safe_block(self) -> Block: ...
    async def is_canonical(self, block: Block | Checkpoint) -> bool: ...
    def challenges_created(self, factory: Address, first: int, last: Block) -> AsyncIterator[Page]: ...


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
    kept = 0
    async for page in chain.challenges_created(factory, first, last):
        for new in page.events:
            await keep(new)
            kept += 1
        await checkpoints.save_checkpoint(name, page.upto)
    return kept


async def _span(chain: Events, checkpoints: Checkpoints, name: str, first_block: int) -> tuple[int, Block]:
    last = await chain.safe_block()
    place = await checkpoints.checkpoint(name)
    if place is None:
        return first_block, last
    if place.block_number <= last.number and not await chain.is_canonical(place):
        return max(first_block, place.block_number - STEP_BACK_BLOCKS), last
    return place.block_number + 1, last
