"""Record how challenges ended, read at one safe block, for the records of agents."""

from __future__ import annotations

from collections.abc import Iterable

from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Block, ChallengeStatus
from clara_eval.challenges.agents import result_pairs
from clara_eval.challenges.challenge_index import read_many
from clara_eval.core.address import Address
from clara_eval.core.codec import to_camel_json
from clara_eval.documents.results import Summary, Token
from clara_eval.documents.rounds import Entrant, PaidWinner, RoundResult
from clara_eval.documents.store_keys import result_key
from clara_eval.store.sql_store import PublicKeys

_ENDED = frozenset((ChallengeStatus.FINALIZED, ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED))


async def known_results(store: PublicKeys, chain_id: int, addresses: Iterable[str]) -> dict[str, RoundResult]:
    return await read_many(store, chain_id, RoundResult, result_key, addresses)


def has_news(result: RoundResult | None, summary: Summary) -> bool:
    """Whether the challenge was seen in another state than the one that is written down."""
    if result is None:
        return True
    return result.chainStatus != summary.chainStatus or bool(result.winners) != bool(summary.scorePostedAt)


async def record_result(store: PublicKeys, chain: EthereumChain, address: Address, block: Block) -> RoundResult | None:
    """Write the result down as it is at `block`; None while submissions are open there."""
    challenge = await chain.challenges.challenge_at(address, block)
    if challenge.status is ChallengeStatus.OPEN and block.timestamp <= challenge.deadline:
        return None
    results, count = chain.results, challenge.winner_count
    winners = await results.winners_on_chain(address, count, block) if challenge.score_posted_at else ()
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
