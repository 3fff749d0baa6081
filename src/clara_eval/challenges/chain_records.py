"""Record what the chain holds: posts of others and our own after a loss, how challenges ended, who claimed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from clara_eval.chain.ethereum import EthereumChain, PostedResults
from clara_eval.chain.model import Block, Challenge, ChallengeStatus, NewClaim, Posted, PostedBy
from clara_eval.chain.winners import committed_digest
from clara_eval.challenges.challenge_index import STATUS, agent_name, read_document, read_many
from clara_eval.challenges.public_documents import rows_on_chain
from clara_eval.challenges.status import CLOSED, StatusWriter
from clara_eval.core.address import Address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import (
    Claim,
    Entrant,
    PaidWinner,
    PrizeClaims,
    RoundResult,
    Summary,
    Token,
    read,
)
from clara_eval.documents.store_keys import claims_key, entry_key, index_key, result_key, scores_key
from clara_eval.store.sql_store import PublicKeys, SqlStore
from clara_eval.store.trace_archive import bring_back


async def record_posted(store: SqlStore, results: PostedResults, challenge: Challenge) -> Posted | None:
    """Write what is posted and return it; None if nothing is, or nothing deep enough."""
    posted = await results.posted_by(challenge)
    if posted is None:
        return None
    writer = await StatusWriter.resumed(store, challenge.chain_id, challenge.address)
    if not posted.is_final:
        await writer.say("publishing", 95, reason="Scores are posted; their block is not deep enough yet.")
        return None
    scores = await read_document(store, challenge.chain_id, scores_key(challenge.address))
    committed = committed_digest(posted.calldata) if posted.by is PostedBy.EVALUATOR else None
    if committed and (scores is None or scores.get("traceDigest") != committed):
        await bring_back(store, challenge.chain_id, challenge.address, committed)
        scores = await read_document(store, challenge.chain_id, scores_key(challenge.address))
    ours = scores if scores is not None and committed and scores.get("traceDigest") == committed else None
    if scores is None or not scores.get("postedBy") or (scores.get("traceDigest") and ours is None):
        document = ours
        if document is None:
            winners = await results.winners_on_chain(challenge.address, challenge.winner_count)
            rows = [row.model_dump() for row in rows_on_chain(winners)]
            paid = [{"account": row["address"], "prizeAmount": row["prizeAmount"]} for row in rows]
            document = {"rankings": rows, "winners": paid if posted.by is PostedBy.EVALUATOR else []}
            document |= {"margin": None, "consistency": None, "flags": [], "traceDigest": None}
        document |= {"postedBy": str(posted.by), "txHash": posted.tx_hash, "outcome": "already_done"}
        document["publishedAt"] = challenge.score_posted_at
        await store.put(challenge.chain_id, scores_key(challenge.address), plain_json(document))
    reason = None if posted.by is PostedBy.EVALUATOR else f"Scores were posted by the {posted.by}."
    await writer.say("complete", reason=reason, posted_by=str(posted.by))
    return posted


async def record_closed(store: SqlStore, challenge: Challenge) -> None:
    state, reason = CLOSED[STATUS[challenge.status]]
    writer = await StatusWriter.resumed(store, challenge.chain_id, challenge.address)
    await writer.say(state, reason=reason)


async def known_results(store: PublicKeys, chain_id: int, addresses: Iterable[str]) -> dict[str, RoundResult]:
    return await read_many(store, chain_id, RoundResult, result_key, addresses)


def result_pairs(address: str, result: RoundResult) -> list[tuple[str, str]]:
    lines = [(entry_key(one.agentId, address), "1") for one in result.entrants]
    return [*lines, (result_key(address), plain_json(result.model_dump()))]


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
    agents = list(dict.fromkeys(one.agent_id for one in challenge.submissions))
    registry = chain.agents.identity(challenge.identity_registry)
    uris = await registry.each(block, [registry.view("tokenURI", agent) for agent in agents])
    names = {agent: agent_name(uri or "") for agent, uri in zip(agents, uris, strict=True)}
    result = RoundResult(
        chainStatus=challenge.status.name.lower(),
        token=Token.model_validate(to_camel_json(challenge.token)),
        entrants=[
            Entrant(agentId=one.agent_id, address=one.submitter, name=names[one.agent_id])
            for one in challenge.submissions
        ],
        winners=[
            PaidWinner(agentId=one.agent_id, address=one.account, score=one.score, prizeAmount=str(one.prize_amount))
            for one in winners
        ],
        isOver=challenge.status not in {ChallengeStatus.OPEN, ChallengeStatus.SCORING},
    )
    await store.put_many(challenge.chain_id, result_pairs(address, result))
    return result


UNCLAIMED = "engine:unclaimed"
"""Every challenge with prizes left, and the last block that was read for it."""
AT_ONCE = 100
"""Challenges in one question."""


async def watch_claims(store: PublicKeys, chain: EthereumChain, address: Address, safe: Block) -> None:
    """Look for claims of this challenge from its post on, if it is one that pays."""
    result = await read(store, chain.chain_id, RoundResult, result_key(address))
    summary = await read(store, chain.chain_id, Summary, index_key(address))
    posted_at = summary.scorePostedAt if summary else None
    if result is None or result.chainStatus != "finalized" or not result.winners or not posted_at:
        return
    unclaimed = await _unclaimed(store, chain.chain_id)
    if address not in unclaimed:
        claims = PrizeClaims(winners=len(result.winners))
        unclaimed[address] = (await chain.blocks.first_block_at(posted_at, safe)).number - 1
        pairs = [(claims_key(address), plain_json(claims.model_dump())), (UNCLAIMED, json.dumps(unclaimed))]
        await store.put_many(chain.chain_id, pairs)


async def record_claims(store: PublicKeys, chain: EthereumChain, safe: Block) -> None:
    unclaimed = await _unclaimed(store, chain.chain_id)
    for upto in sorted(set(unclaimed.values())):
        together = [Address(address) for address, read_upto in unclaimed.items() if read_upto == upto]
        for start in range(0, len(together) if upto < safe.number else 0, AT_ONCE):
            some = together[start : start + AT_ONCE]
            async for found, block in chain.events.prizes_claimed(some, upto + 1, safe):
                await _note(store, chain.chain_id, found, some, block)


async def _unclaimed(store: PublicKeys, chain_id: int) -> dict[str, int]:
    return dict(json.loads(await store.get(chain_id, UNCLAIMED) or "{}"))


async def _note(
    store: PublicKeys, chain_id: int, found: Sequence[NewClaim], asked: Sequence[Address], upto: int
) -> None:
    """Keep a page of claims together with how far it is read."""
    before = await _unclaimed(store, chain_id)
    known = before | {address: upto for address in asked if address in before}
    pairs: list[tuple[str, str]] = []
    for address in dict.fromkeys(claim.challenge for claim in found):
        claims = await read(store, chain_id, PrizeClaims, claims_key(address))
        if claims is not None:
            claims.claims += [
                Claim(address=one.winner, amount=str(one.amount), at=one.claimed_at or None, txHash=one.tx_hash)
                for one in found
                if one.challenge == address
            ]
            pairs.append((claims_key(address), plain_json(claims.model_dump())))
            if len(claims.claims) >= claims.winners:
                known.pop(address, None)
    await store.put_many(chain_id, [*pairs, (UNCLAIMED, json.dumps(known))])
