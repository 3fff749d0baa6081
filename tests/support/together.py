"""Many transactions in few blocks: a node that keeps the state of every block grows slow with them."""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.core.address import Address
from clara_eval.devnet.anvil import DevAccount, MinedReceipt
from clara_eval.devnet.local_chain import Handed, LocalChain, PostedTerms, create_params

BASE_FEE = 10**9
POOL = 50
"""Transactions that wait for their blocks together."""


async def submit_together(chain: LocalChain, challenge: Address, handed: Sequence[Handed]) -> list[MinedReceipt]:
    """Submit all in as few blocks as hold them."""
    target = chain.challenge(challenge)
    calls = [(one.agent, target.encode_abi("submit", one.arguments(await chain.register(one.agent)))) for one in handed]
    return await _send_together(chain, challenge, calls)


async def post_many(chain: LocalChain, terms: PostedTerms, count: int) -> None:
    """Post so many challenges with the same terms."""
    call = chain.factory.encode_abi("createChallenge", [create_params(chain, terms, await chain.now())])
    for first in range(0, count, POOL):
        calls = [(chain.poster, call)] * min(POOL, count - first)
        await _send_together(chain, chain.deployment.factory, calls)


async def _send_together(chain: LocalChain, to: Address, calls: Sequence[tuple[DevAccount, str]]) -> list[MinedReceipt]:
    await chain.node.rpc("evm_setAutomine", False)
    try:
        hashes = [await chain.node.post(sender, to, call) for sender, call in calls]
        while int(str((await chain.node.rpc("txpool_status"))["pending"]), 16):
            await chain.node.rpc("anvil_setNextBlockBaseFeePerGas", hex(BASE_FEE))  # full blocks would raise it
            await chain.mine(1)
        return await chain.node.receipts(hashes)
    finally:
        await chain.node.rpc("evm_setAutomine", True)
