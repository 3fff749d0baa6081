"""Set-up shared by tests: what test_publication.py and others use."""

from __future__ import annotations

from clara_eval.core.address import Address
from clara_eval.devnet.demo.round import post_round, submit_round
from clara_eval.devnet.local_chain import HOUR, LocalChain


async def closed_round(chain: LocalChain) -> Address:
    address = await post_round(chain)
    await submit_round(chain, address)
    await chain.move_time(HOUR + 1)
    return address
