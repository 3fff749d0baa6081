"""The room of the challenge alone: addresses, the pinned block, and a reader of events that survives a crash."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.chain.model import (
    Block,
    Challenge,
    ChallengeStatus,
    Checkpoint,
    NewChallenge,
    PrizeToken,
    ScoringState,
)
from clara_eval.challenges.venue import look_at_challenge, read_challenge
from clara_eval.core.address import Address, short, to_address
from clara_eval.core.errors import BadInput, NotYet, Temporary
from clara_eval.service.survey import STEP_BACK_BLOCKS, find_challenges
from clara_eval.store.sql_store import SignedTransactions

HERE = Address("0x" + "ab" * 20)
FACTORY = Address("0x" + "fa" * 20)
DEADLINE = 1000


def block(number: int, *, timestamp: int = DEADLINE + 1, fork: str = "") -> Block:
    return Block(number, f"0x{fork}{number:x}", timestamp)


CHALLENGE = Challenge(
    chain_id=31337, address=HERE, block=block(7), poster=HERE, evaluator=HERE, token=PrizeToken(HERE, "USDC", 6),
    prize_pool=10, poster_bond=1, deadline=DEADLINE, scoring_deadline=2000, challenge_uri="data:,", eval_config_hash="0x",
    private_set_hash="0x", winner_count=1, payout_bps=(10000,), identity_registry=HERE, max_participants=0,
    status=ChallengeStatus.SCORING, submission_count=0, score_posted_at=0, submissions=(),
)  # fmt: skip


Announced = tuple[tuple[NewChallenge, ...], Checkpoint]


@dataclass
class ScriptedChain:
    """A chain whose blocks the test writes down; `forked` blocks are no longer part of it."""

    head_block: Block = field(default_factory=lambda: block(9, timestamp=DEADLINE + 50))
    safe: Block = field(default_factory=lambda: block(7))
    forked: set[str] = field(default_factory=set)
    created: dict[int, int] = field(default_factory=dict)
    """How many challenges each block has."""
    chain_id: int = 31337

    @property
    def all_parts(self) -> Any:
        return self

    blocks = challenges = events = rpc = all_parts

    async def head(self) -> Block:
        return self.head_block

    async def safe_block(self, head: Block | None = None) -> Block:
        return self.safe

    def contract(self, address: Address) -> Any:
        return self

    async def scoring_state(self, block: Block) -> ScoringState:
        return ScoringState(ChallengeStatus.SCORING, 0, DEADLINE)

    async def first_block_at(self, moment: int, last: Block) -> Block:
        return last

    async def challenge_at(self, address: Address, block: Block) -> Challenge:
        return replace(CHALLENGE, address=address, block=block)

    async def is_canonical(self, block: Checkpoint) -> bool:
        return block.hash not in self.forked

    async def challenges_created(self, factory: Address, first: int, last: Block) -> AsyncIterator[Announced]:
        for number in range(first, last.number + 1):
            found = tuple(announced(number, place) for place in range(self.created.get(number, 0)))
            yield found, Checkpoint(number, block(number).hash)


@dataclass
class Places(SignedTransactions):
    """Checkpoints in memory."""

    kept: dict[str, Checkpoint] = field(default_factory=dict)

    async def checkpoint(self, name: str) -> Checkpoint | None:
        return self.kept.get(name)

    async def save_checkpoint(self, name: str, checkpoint: Checkpoint) -> None:
        self.kept[name] = checkpoint


def announced(number: int, place: int) -> NewChallenge:
    address = Address(f"0x{number:038x}{place:02x}")
    return NewChallenge(address, number)


@given(st.binary(min_size=20, max_size=20), st.booleans())
def test_an_address_has_one_form(raw: bytes, upper: bool) -> None:
    """However it is written, an address is kept in lower case."""
    text = raw.hex().upper() if upper else raw.hex()
    assert to_address(f" 0x{text} ") == "0x" + raw.hex()


@pytest.mark.parametrize(
    "text", ["", "0x", "0x" + "g" * 40, "ab" * 21, "0x" + "a" * 41, "0x" + "٣" * 40, "vitalik.eth"]
)
def test_what_is_not_an_address_is_refused_and_shown(text: str) -> None:
    """The error shows what came in and says what an address looks like."""
    with pytest.raises(BadInput, match="40 hex digits") as refused:
        to_address(text, what="challenge")
    assert repr(text[:80]) in str(refused.value)


def test_an_address_is_shortened_for_people() -> None:
    """The first and the last digits stay."""
    assert short(HERE) == "0xabab…abab"


async def test_nothing_is_read_before_the_deadline_is_safely_over() -> None:
    """While no safe block is later than the deadline, the reading waits and says how long."""
    early: Any = ScriptedChain(safe=block(7, timestamp=DEADLINE))
    with pytest.raises(NotYet, match="1 s short"):
        await read_challenge(early, HERE)


async def test_a_reading_is_of_the_safe_block_and_not_of_the_newest() -> None:
    """Judging reads at the safe block; people who look see the newest."""
    chain: Any = ScriptedChain()
    assert (await read_challenge(chain, HERE)).block.number == 7
    assert (await look_at_challenge(chain, HERE)).block.number == 9


async def test_a_block_that_was_replaced_meanwhile_is_read_again() -> None:
    """A reorg during the reading is an outage, never a result."""
    chain: Any = ScriptedChain(forked={block(7).hash})
    with pytest.raises(Temporary, match="replaced"):
        await read_challenge(chain, HERE)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 40))
async def test_no_event_is_lost_by_a_crash(counts: list[int], dies_after: int) -> None:
    """Wherever the reader dies, the next one hands over every event that was not kept; none is missing in the end."""
    chain: Any = ScriptedChain(safe=block(len(counts)), created=dict(enumerate(counts, start=1)))
    places, seen = Places(), list[Address]()

    async def keep(event: NewChallenge) -> None:
        if len(seen) == dies_after:
            seen.append(event.address)
            raise RuntimeError("the process dies here")
        seen.append(event.address)

    try:
        await find_challenges(chain, places, FACTORY, 1, keep)
    except RuntimeError:
        await find_challenges(chain, places, FACTORY, 1, keep)
    assert set(seen) == {announced(number, place).address for number, n in chain.created.items() for place in range(n)}
    assert await find_challenges(chain, places, FACTORY, 1, keep) == 0


async def test_a_reorg_sends_the_reader_back_but_not_before_the_first_block() -> None:
    """A checkpoint whose block is gone is left by a fixed number of blocks, and never below the factory's first."""
    places, seen = Places(), list[int]()
    chain: Any = ScriptedChain(safe=block(5), created={3: 1, 5: 1})

    async def keep(event: NewChallenge) -> None:
        seen.append(event.block_number)

    await find_challenges(chain, places, FACTORY, 3, keep)
    chain.forked = {block(5).hash}
    await find_challenges(chain, places, FACTORY, 3, keep)
    assert seen == [3, 5, 3, 5]
    assert STEP_BACK_BLOCKS > 3
