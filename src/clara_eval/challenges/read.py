"""Reading one challenge from the chain, all of it at one block.

Comes in: an address. Goes out: a `Challenge` with its submissions as they stood at a block after the deadline that the
network holds safe. Must hold: after the deadline submissions are frozen, so every later block tells the same; the
block's hash goes with the reading. Refuses a challenge whose deadline no safe block has passed yet (`NotYet`).
"""

from __future__ import annotations

from clara_eval.chain.blocks import Blocks
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Block, Challenge
from clara_eval.core.address import Address
from clara_eval.core.errors import NotYet, Temporary


async def pinned_block(blocks: Blocks, not_before: int) -> Block:
    """The safe block to read at, or NotYet while none is later than `not_before`."""
    block = await blocks.safe_block()
    if block.timestamp <= not_before:
        wait = not_before - block.timestamp + 1
        raise NotYet(
            f"The newest safe block {block.number} is {wait} s short of the first moment after the deadline.",
            remedy="Try again then.",
        )
    return block


async def read_challenge(chain: EthereumChain, address: Address) -> Challenge:
    """The challenge with its frozen submissions, pinned to a block."""
    block = await pinned_block(chain.blocks, await chain.challenges.deadline(address))
    challenge = await chain.challenges.challenge_at(address, block)
    if not await chain.blocks.is_canonical(block):
        raise Temporary(f"Block {block.number} was replaced while it was read.", remedy="Try again.")
    return challenge


async def look_at_challenge(chain: EthereumChain, address: Address) -> Challenge:
    """The challenge as it stands now, whatever its status; for people who look, never for judging."""
    return await chain.challenges.challenge_at(address, await chain.blocks.head())
