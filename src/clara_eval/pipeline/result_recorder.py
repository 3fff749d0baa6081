"""Reads from the chain how challenges ended: who entered and who is paid, for the agents' records.

Comes in: a challenge whose deadline has passed, ours or not. Goes out: its `RoundResult` in the store. Must hold:
everything is read at one safe block, so that no reorg takes it back; a challenge that is over is read once more and
then never again.
"""

from __future__ import annotations

from typing import Protocol

from clara_eval.camel_json import to_camel_json
from clara_eval.challenge.model import Address, Block, Challenge, ChallengeStatus
from clara_eval.records.agents import RESULTS, Entrant, PaidWinner, RoundResult, result_pairs
from clara_eval.records.documents import Token, read
from clara_eval.trace.store import PublicKeys
from clara_eval.winners import Winner

_ENDED = frozenset((ChallengeStatus.FINALIZED, ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED))


class Rounds(Protocol):
    """What the chain tells about a round."""

    async def challenge_at(self, address: Address, block: Block) -> Challenge: ...
    async def winners_at(self, address: Address, count: int, block: Block) -> tuple[Winner, ...]: ...


async def unrecorded(store: PublicKeys, chain_id: int, addresses: list[Address]) -> list[Address]:
    """Those whose result is not written down for good."""
    found = {address: await read(store, chain_id, RoundResult, RESULTS + address) for address in addresses}
    return [address for address, result in found.items() if result is None or not result.isOver]


async def record_result(store: PublicKeys, chain: Rounds, address: Address, block: Block) -> RoundResult | None:
    """Write the result down as it is at `block`; None while submissions are open there."""
    challenge = await chain.challenge_at(address, block)
    if challenge.status is ChallengeStatus.OPEN and block.timestamp <= challenge.deadline:
        return None
    winners = await chain.winners_at(address, challenge.winner_count, block) if challenge.score_posted_at else ()
    result = RoundResult(
        chainStatus=challenge.status.name.lower(),
        token=Token.model_validate(to_camel_json(challenge.token)),
        entrants=[Entrant(agentId=one.agent_id, address=one.submitter) for one in challenge.submissions],
        winners=[
            PaidWinner(agentId=one.agent_id, address=one.account, score=one.score, prizeAmount=str(one.prize_amount))
            for one in winners
        ],
        isOver=challenge.status in _ENDED,
    )
    await store.put_many(challenge.chain_id, result_pairs(address, result))
    return result
