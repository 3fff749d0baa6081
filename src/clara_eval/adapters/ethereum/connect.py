"""From settings to a chain that has been checked, and to a sender for it.

`connect` asks every node for its chain id before anything else is asked: a node of another chain ends the process with
a clear sentence. `sender_for` gives the evaluator's wallet its policy; without a key the sender only rehearses.
"""

from __future__ import annotations

from collections.abc import Iterable

from clara_eval.adapters.ethereum.reading import EthereumChain
from clara_eval.adapters.ethereum.rpc import Rpc
from clara_eval.adapters.ethereum.sending import EthereumSender
from clara_eval.adapters.wallet import open_wallet
from clara_eval.challenge.model import Address
from clara_eval.publish.guard import SigningPolicy
from clara_eval.settings import Settings


async def connect(settings: Settings) -> EthereumChain:
    """The network of the settings, its nodes checked; close it after use."""
    rpc = Rpc(settings.rpc_urls, chain_id=settings.network.chain_id)
    try:
        await rpc.check_nodes()
    except BaseException:
        await rpc.close()
        raise
    return EthereumChain(rpc, settings.network, first_block=settings.first_block)


def sender_for(settings: Settings, chain: EthereumChain, *, named: Iterable[Address] = ()) -> EthereumSender:
    """The evaluator's wallet on that chain; `named` are challenges a person asked for by address."""
    policy = SigningPolicy(chain_id=chain.chain_id, challenges=set(named))
    factory = settings.challenge_factory or settings.network.factory
    return EthereumSender(
        chain,
        open_wallet(settings, policy),
        factory=Address(factory) if factory else None,
        dry_address=Address(settings.evaluator_address) if settings.evaluator_address else None,
    )
