"""Record who claimed which prize, for the timeline of a challenge."""

from __future__ import annotations

import json
from collections.abc import Sequence

from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Block, NewClaim
from clara_eval.core.address import Address
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import Summary, read
from clara_eval.documents.rounds import Claim, PrizeClaims, RoundResult
from clara_eval.documents.store_keys import claims_key, index_key, result_key
from clara_eval.store.sql_store import PublicKeys

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
        unclaimed[address] = await chain.blocks.first_block_at(posted_at, safe) - 1
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
            claims.claims += [_claim(one) for one in found if one.challenge == address]
            pairs.append((claims_key(address), plain_json(claims.model_dump())))
            if len(claims.claims) >= claims.winners:
                known.pop(address, None)
    await store.put_many(chain_id, [*pairs, (UNCLAIMED, json.dumps(known))])


def _claim(found: NewClaim) -> Claim:
    return Claim(address=found.winner, amount=str(found.amount), at=found.claimed_at or None, txHash=found.tx_hash)
