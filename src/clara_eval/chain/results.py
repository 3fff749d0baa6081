"""Read what is posted for a challenge: by whom, which winners, who has claimed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clara_eval.chain.blocks import Blocks
from clara_eval.chain.contracts.clients import ChallengeContract
from clara_eval.chain.contracts.versions import contract_version
from clara_eval.chain.logs import LogFilter, Logs
from clara_eval.chain.model import Block, Challenge
from clara_eval.chain.posted import Posted, PostedBy, ScoringState
from clara_eval.chain.winners import WinnerPrize
from clara_eval.core.address import Address
from clara_eval.core.errors import NotFound, Temporary

BLOCKS_AFTER_POST = 50
"""Looked through from the first block with the time of the post, before the whole chain is."""
MOST_LOOKS = 3
"""For the event of a post, each at a newer block than the one before."""


class PostedResults:
    def __init__(self, blocks: Blocks, logs: Logs) -> None:
        self.blocks = blocks
        self._logs = logs
        self._abi = contract_version(blocks.network.contracts).challenge

    def _contract(self, address: Address) -> ChallengeContract:
        return ChallengeContract(self.blocks, address, self._abi)

    async def scoring_state(self, address: Address, head: Block | None = None) -> ScoringState:
        """Return status and time of the post at the newest block, of a challenge that was read before."""
        newest = head

        async def look() -> ScoringState | NotFound:
            nonlocal newest
            block, newest = newest or await self.blocks.head(), None
            try:
                return await self._contract(address).scoring_state(block)
            except NotFound as missing:
                return missing  # for a moment, while a node is replacing blocks

        found = await self.blocks.rpc.retries.until(lambda state: isinstance(state, ScoringState), look)
        if isinstance(found, NotFound):
            raise found
        return found

    async def posted_by(self, challenge: Challenge) -> Posted | None:
        """Return the transaction that posted the scores and who sent it; None while nothing is posted."""
        for _ in range(MOST_LOOKS):
            head = await self.blocks.head()
            posted_at = (await self._contract(challenge.address).scoring_state(head)).score_posted_at
            if posted_at == 0:
                return None
            found = await self._post_until(challenge, posted_at, head)
            if found is not None:
                return found
            if (await self.blocks.head()).number <= head.number:
                break  # else the node told the state of a block that it was just making
        raise Temporary(f"Scores of {challenge.address} are posted, but no node shows the event.")

    async def _post_until(self, challenge: Challenge, posted_at: int, head: Block) -> Posted | None:
        """Find the post that was made at this time, if its event is in a block up to this one."""
        first = await self.blocks.first_block_at(posted_at, head)
        wanted = LogFilter((challenge.address,), (self._abi.event("ScoresPosted").topic,))
        async for group in self._logs.groups(wanted, first, min(head.number, first + BLOCKS_AFTER_POST)):
            for entry in group.entries:
                return await self._posted(challenge, entry, head)
        # Blocks may be out of the order of their times, as after a reorg of a development chain.
        since = self.blocks.first if challenge.score_posted_at else challenge.block.number
        async for group in self._logs.groups(wanted, since, head.number, backwards=True):
            for entry in group.entries:
                return await self._posted(challenge, entry, head)
        return None

    async def _posted(self, challenge: Challenge, entry: Any, head: Block) -> Posted:
        raw = await self.blocks.rpc.ask("eth_getTransactionByHash", entry["transactionHash"])
        sender, number = Address(raw["from"].lower()), int(entry["blockNumber"], 16)
        return Posted(
            by=PostedBy.of(sender, evaluator=challenge.evaluator, poster=challenge.poster),
            sender=sender,
            tx_hash=entry["transactionHash"],
            block_number=number,
            calldata=bytes.fromhex(raw["input"].removeprefix("0x")),
            is_final=head.number - number + 1 >= self.blocks.network.confirmations,
        )

    async def winners_on_chain(self, address: Address, count: int) -> tuple[WinnerPrize, ...]:
        return await self.winners_at(address, count, await self.blocks.head())

    async def winners_at(self, address: Address, count: int, block: Block) -> tuple[WinnerPrize, ...]:
        return await self._contract(address).winners(block, count)

    async def has_claimed(self, address: Address, accounts: Sequence[Address]) -> dict[Address, bool]:
        return await self._contract(address).has_claimed(await self.blocks.head(), accounts)
