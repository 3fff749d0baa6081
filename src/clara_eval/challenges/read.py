"""Read a challenge from the chain, all of it at one block."""

from __future__ import annotations

import json

from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Challenge
from clara_eval.chain.sender import Intention
from clara_eval.chain.transaction import StoredTransaction, read_signed
from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import NotYet, Temporary
from clara_eval.evaluation.trace.journal import Journal
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import keep_result

CHALLENGE = JsonCodec(Challenge)
_SUPERSEDED = "superseded"
"""The journal's entry with the calldata that was signed about a block that is gone."""


async def read_challenge(chain: EthereumChain, address: Address) -> Challenge:
    """The challenge with its frozen submissions, pinned to a block."""
    block = await chain.blocks.safe_block()
    challenge = await chain.challenges.challenge_at(address, block)
    if block.timestamp <= challenge.deadline:
        wait = challenge.deadline - block.timestamp + 1
        raise NotYet(
            f"The newest safe block {block.number} is {wait} s short of the first moment after the deadline.",
            remedy="Try again then.",
        )
    if not await chain.blocks.is_canonical(block):
        raise Temporary(f"Block {block.number} was replaced while it was read.", remedy="Try again.")
    return challenge


async def look_at_challenge(chain: EthereumChain, address: Address) -> Challenge:
    """The challenge at the newest block, whatever its status; for people who look, never for judging."""
    return await chain.challenges.challenge_at(address, await chain.blocks.head())


async def pin_challenge(chain: EthereumChain, store: SqlStore, address: Address) -> Challenge:
    """The challenge at the block of its evaluation; a reorg that replaced the block starts the evaluation anew.

    Raises:
        NotYet: no safe block is past the deadline.

    """
    journal = Journal(store, f"{chain.chain_id}:{address}")
    challenge = await journal.saved("challenge", CHALLENGE)
    if challenge is not None and await chain.blocks.is_canonical(challenge.block):
        return challenge
    if challenge is not None:
        signed = {
            read_signed(row.raw).data.hex() for row in await store.transactions(journal.run, Intention.POST_SCORES)
        }
        if signed:
            await keep_result(store, challenge.chain_id, address)
        await journal.forget()
        if signed:
            # What was signed about the block that is gone is replaced on its own nonce, never sent again.
            await journal.note(_SUPERSEDED, sorted(signed))
    return await journal.keep("challenge", CHALLENGE, await read_challenge(chain, address))


async def is_still_current(store: SqlStore, chain: EthereumChain, tx: StoredTransaction) -> bool:
    """Whether a recorded post is of a block that is still there and was not superseded; true of other transactions."""
    if tx.intention != Intention.POST_SCORES:
        return True
    read = await store.entry(tx.run, "challenge")
    if read is None or read_signed(tx.raw).data in await superseded(store, tx.run):
        return False
    return await chain.blocks.is_canonical(CHALLENGE.read_text(read).block)


async def superseded(store: SqlStore, run: str) -> frozenset[bytes]:
    recorded = await store.entry(run, _SUPERSEDED)
    return frozenset(bytes.fromhex(data) for data in (json.loads(recorded) if recorded else ()))
