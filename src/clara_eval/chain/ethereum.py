"""One network through its nodes, in parts by what is read."""

from __future__ import annotations

from clara_eval.chain.agents import AgentRegistries
from clara_eval.chain.blocks import Blocks
from clara_eval.chain.challenge_reader import ChallengeReader
from clara_eval.chain.events import ChallengeEvents
from clara_eval.chain.logs import Logs
from clara_eval.chain.results import PostedResults
from clara_eval.chain.rpc import Rpc
from clara_eval.config.networks import Network


class EthereumChain:
    """The readers of one network, over the nodes of `rpc`."""

    def __init__(self, rpc: Rpc, network: Network, *, first_block: int | None = None) -> None:
        logs = Logs(rpc)
        self.blocks = Blocks(rpc, network, first_block=first_block)
        self.challenges = ChallengeReader(self.blocks, logs)
        self.events = ChallengeEvents(self.blocks, logs)
        self.results = PostedResults(self.blocks, logs)
        self.agents = AgentRegistries(self.blocks, logs)

    @property
    def chain_id(self) -> int:
        return self.blocks.rpc.chain_id

    async def close(self) -> None:
        await self.blocks.rpc.close()
