"""Read the registries of agents and of feedback on them (ERC-8004)."""

from __future__ import annotations

from clara_eval.chain.blocks import Blocks
from clara_eval.chain.contracts.clients import GivenFeedback, IdentityRegistryContract, ReputationRegistryContract
from clara_eval.chain.logs import LogFilter, Logs
from clara_eval.chain.model import Block
from clara_eval.chain.rpc import NodeRefusal
from clara_eval.core.address import Address


class AgentRegistries:
    def __init__(self, blocks: Blocks, logs: Logs) -> None:
        self._blocks = blocks
        self._logs = logs

    def identity(self, address: Address) -> IdentityRegistryContract:
        return IdentityRegistryContract(self._blocks, address)

    def reputation(self, address: Address) -> ReputationRegistryContract:
        return ReputationRegistryContract(self._blocks, address)

    async def agents_of(self, registry: Address, owner: Address, block: Block) -> list[int]:
        """Return agent ids that the registry's events gave to an address and that it still owns, oldest first.

        Empty if the registry emits no events, or the nodes do not have them.
        """
        topics = tuple(event.topic for event in IdentityRegistryContract.OWNING_EVENTS)
        wanted = LogFilter((registry,), (topics, None, _topic(owner)))
        try:
            async for group in self._logs.groups(wanted, self._blocks.first, block.number, backwards=True):
                ids = IdentityRegistryContract.agents_in(group.entries, registry, owner)
                owners = await self.identity(registry).owners_of(block, ids)
                owned = [number for number, found in zip(ids, owners, strict=True) if found == owner]
                if owned:
                    return owned
        except NodeRefusal:
            return []  # not every node has old events; the caller is asked for the id then
        return []

    async def feedback_since(
        self, registry: Address, agent_id: int, client: Address, since: int
    ) -> tuple[GivenFeedback, ...]:
        """Return what a client said about an agent, from events since that time; deep or not."""
        head = await self._blocks.head()
        if await self.reputation(registry).last_index(head, agent_id, client) == 0:
            return ()
        topic = ReputationRegistryContract.ABI.event("NewFeedback").topic
        wanted = LogFilter((registry,), (topic, f"0x{agent_id:064x}", _topic(client)))
        found: list[GivenFeedback] = []
        first = await self._blocks.first_block_at(since, head)
        async for group in self._logs.groups(wanted, first, head.number):
            found += ReputationRegistryContract.given(group.entries)
        return tuple(found)


def _topic(address: Address) -> str:
    return "0x" + address[2:].rjust(64, "0")
