"""Read blocks, receipts, contract views at one block, and the events of a block range.

Invariant: the views of one call are read at one block; a refused range is split into smaller ones, never skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clara_eval.chain.contracts.abi import View
from clara_eval.chain.model import Block, Checkpoint
from clara_eval.chain.rpc import Meaning, NodeRefusal, Rpc, RpcCall, is_refused, quantity, required
from clara_eval.config.settings import Network
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary

LAG_BLOCKS = 3  # A node further behind the best one is not asked first
SECTIONS = 16  # Blocks read in one step of the search for a time


class StateMissing(Temporary):
    """No node has the state of a contract at a block."""


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    tx_hash: str
    block_number: int
    block_hash: str
    gas_used: int
    has_succeeded: bool
    logs: tuple[Mapping[str, Any], ...]
    is_final: bool = False  # Whether its block is deep enough

    @classmethod
    def read(cls, raw: Any) -> TransactionReceipt:
        try:
            number, used, is_good = quantity(raw["blockNumber"]), quantity(raw["gasUsed"]), quantity(raw["status"]) == 1
            return cls(raw["transactionHash"], number, raw["blockHash"], used, is_good, tuple(raw["logs"]))
        except (KeyError, TypeError):
            raise Temporary("A node answered with something that is not a receipt.") from None


class Blocks:
    def __init__(self, rpc: Rpc, network: Network, *, first_block: int | None = None) -> None:
        self.rpc = rpc
        self.network = network
        self.first = network.from_block if first_block is None else first_block  # The first that can have a challenge
        self._can_pin_by_hash = True
        self._newest: Block | None = None

    async def head(self) -> Block:
        """Return the newest block; retry for a while if it is older than the last one returned."""
        known = self._newest
        self._newest = await self.rpc.retries.until(
            lambda found: known is None or found.number >= known.number, self._head_of_best_node
        )
        return self._newest

    async def _head_of_best_node(self) -> Block:
        """Return the newest block of a node that is not behind, and ask that node first from now on."""
        if len(self.rpc.nodes) == 1:
            raw = await self.rpc.ask_maybe("eth_getBlockByNumber", "latest", False)
            if raw is None:
                raise Temporary("The node does not know its newest block.", remedy="Set another CLARA_RPC_URL.")
            return read_block(raw)
        answers = await self.rpc.ask_every_node("eth_getBlockByNumber", "latest", False)
        heads = [(node, block) for node, raw in answers if (block := block_or_none(raw)) is not None]
        if not heads:
            raise Temporary("No node tells the newest block.", remedy="Check CLARA_RPC_URL.")
        best = max(block.number for _, block in heads)
        node, block = next(pair for pair in heads if pair[1].number >= best - LAG_BLOCKS)
        self.rpc.first = self.rpc.nodes.index(node)
        return block

    async def safe_block(self, head: Block | None = None) -> Block:
        """Return the block of the network's finality tag, or `confirmations` below the head without one."""
        head = head or await self.head()
        if self.network.finality_tag == "latest":
            return head
        raw = await self.rpc.answer("eth_getBlockByNumber", self.network.finality_tag, False)
        if is_refused(raw, Meaning.MISSING, Meaning.UNSUPPORTED, Meaning.OTHER):
            return await self.block_at(max(0, head.number - self.network.confirmations))
        return read_block(required(raw))

    async def is_canonical(self, block: Checkpoint) -> bool:
        """Return whether that block is still part of the chain; Temporary while the nodes are behind it."""
        return (await self.block_at(block.number)).hash == block.hash

    async def block_at(self, number: int) -> Block:
        raw = await self.rpc.answer("eth_getBlockByNumber", hex(number), False, retry_missing=True)
        if is_refused(raw, Meaning.MISSING):
            raise Temporary(f"No node has block {number}: they are behind.", remedy="Ask again when they are not.")
        return read_block(required(raw))

    async def first_block_at(self, moment: int, last: Block) -> Block:
        """Find the first block at or after `moment`, up to `last`."""
        # The first marks are close to `last`, because the block searched for usually is.
        low, found = min(self.first, last.number), last
        marks = sorted({max(low, last.number - 2**power) for power in range(SECTIONS)})
        while low < found.number:
            read = [read_block(required(raw)) for raw in await self.ask_blocks(marks)]
            low = max([low, *(block.number + 1 for block in read if block.timestamp < moment)])
            found = min([found, *(one for one in read if one.timestamp >= moment)], key=lambda block: block.number)
            marks = list(range(low, found.number, max(1, (found.number - low) // SECTIONS)))[:SECTIONS]
        return found

    async def ask_blocks(self, numbers: Sequence[int]) -> list[Any]:
        return await self.rpc.ask_many([RpcCall("eth_getBlockByNumber", (hex(n), False)) for n in numbers])

    async def receipt(self, tx_hash: str) -> TransactionReceipt | None:
        raw = await self.rpc.ask_maybe("eth_getTransactionReceipt", tx_hash)
        return None if raw is None else TransactionReceipt.read(raw)

    async def balance(self, address: Address) -> int:
        return quantity(await self.rpc.ask("eth_getBalance", address, "latest"))

    async def views(self, calls: Sequence[View], block: Block) -> list[object]:
        """Return what each call gives at `block`: data or a revert; any refusal if the contract is foreign."""
        is_pinned = self._can_pin_by_hash
        requests = [RpcCall("eth_call", (call.request(), self.parameter(block))) for call in calls]
        answers = await self.rpc.ask_many(requests, retry_missing=True)
        # A foreign contract may cause any error, so its errors do not show that the node cannot pin by hash.
        if is_pinned and any(
            is_refused(answer, Meaning.UNSUPPORTED) or (is_refused(answer, Meaning.OTHER) and not call.is_foreign)
            for call, answer in zip(calls, answers, strict=True)
        ):
            self._can_pin_by_hash = False
            return await self.views(calls, block)
        if not is_pinned and not await self.is_canonical(block):
            raise Temporary(f"Block {block.number} was replaced while it was read.", remedy="Try again.")
        for call, answer in zip(calls, answers, strict=True):
            if is_refused(answer, Meaning.MISSING):
                text = f"No node has the state of block {block.number}: it was replaced, or is too old for them."
                raise StateMissing(text, remedy="Read again; for old blocks use an archive node.")
            if not (call.is_foreign or is_refused(answer, Meaning.REVERTED)):
                required(answer)
        return answers

    def parameter(self, block: Block) -> Any:
        return {"blockHash": block.hash, "requireCanonical": True} if self._can_pin_by_hash else hex(block.number)


def read_block(raw: Any) -> Block:
    try:
        return Block(number=quantity(raw["number"]), hash=str(raw["hash"]), timestamp=quantity(raw["timestamp"]))
    except (KeyError, TypeError):
        raise Temporary("A node answered with something that is not a block.") from None


def block_or_none(raw: Any) -> Block | None:
    try:
        return read_block(raw)
    except Temporary:
        return None


FIRST_SPAN = 10_000
LARGEST_SPAN = 50_000
RANGES_AT_ONCE = 8
GROWS_AFTER = 3  # Groups without a refusal before a larger span is tried again
OUTAGE_DIVISOR = 8  # Divides the span after an outage: each one costs all retries, so the span shrinks fast
_CURED_BY_SMALLER_RANGES = frozenset({Meaning.RANGE_TOO_LARGE, Meaning.UNSUPPORTED, Meaning.OTHER})
"""Refusals that may mean a range that is too large: providers word it in many ways."""
Topics = Sequence[str | tuple[str, ...] | None]  # A tuple matches any of its topics, None matches everything


def split_range(first: int, last: int, span: int, *, backwards: bool = False) -> list[tuple[int, int]]:
    """Return up to RANGES_AT_ONCE ranges of at most `span` blocks, in the order to read them."""
    if backwards:
        return [(max(first, end - span + 1), end) for end in range(last, first - 1, -span)[:RANGES_AT_ONCE]]
    return [(start, min(last, start + span - 1)) for start in range(first, last + 1, span)[:RANGES_AT_ONCE]]


class Logs:
    """Reader of events that remembers between calls how large a range the nodes accept."""

    def __init__(self, rpc: Rpc, *, span: int = FIRST_SPAN) -> None:
        self._rpc = rpc
        self.span = span
        self._groups_since_refusal = 0

    async def groups(
        self, addresses: Sequence[Address], topics: Topics, first: int, last: int, *, backwards: bool = False
    ) -> AsyncIterator[tuple[list[Any], Checkpoint]]:
        """Yield log entries, oldest first, and the last block they cover; no addresses means any contract."""
        query = {"topics": list(topics)} | ({"address": list(addresses)} if addresses else {})
        while first <= last:
            ranges = split_range(first, last, self.span, backwards=backwards)
            found = await self._ask(query, sorted(ranges))
            if found is None:
                continue
            entries, upto = found
            yield [entry for part in entries for entry in _in_chain_order(part, addresses, topics)], upto
            first, last = (first, ranges[-1][0] - 1) if backwards else (ranges[-1][1] + 1, last)

    async def _ask(
        self, query: Mapping[str, Any], ranges: Sequence[tuple[int, int]]
    ) -> tuple[list[Any], Checkpoint] | None:
        """Return the entries and the last block; None if a range was refused and the span reduced."""
        last = ranges[-1][1]
        parts = ({**query, "fromBlock": hex(start), "toBlock": hex(end)} for start, end in ranges)
        calls = [RpcCall("eth_getLogs", (part,)) for part in parts]
        try:
            calls.append(RpcCall("eth_getBlockByNumber", (hex(last), False)))
            *found, block = await self._rpc.ask_many(calls, is_whole=True)
        except Temporary:
            # HTTP 403, 413 or 5xx may mean a range that is too long: it does if the nodes answer another request.
            await self._rpc.ask("eth_blockNumber")
            if self.span == 1:
                raise
            self.span, self._groups_since_refusal = max(1, self.span // OUTAGE_DIVISOR), 0
            return None
        refusal = next((answer for answer in found if isinstance(answer, NodeRefusal)), None)
        if refusal is not None:
            if refusal.meaning not in _CURED_BY_SMALLER_RANGES or self.span == 1:
                self.span = max(self.span, FIRST_SPAN)
                raise refusal
            self.span, self._groups_since_refusal = max(1, self.span // 2), 0
            return None
        if isinstance(block, NodeRefusal):
            raise Temporary(f"No node has block {last} yet.", remedy="Try again shortly.")
        self._groups_since_refusal += 1
        if self._groups_since_refusal >= GROWS_AFTER:
            self.span = min(LARGEST_SPAN, self.span + max(1, self.span // 4))
            self._groups_since_refusal = 0
        return found, Checkpoint(last, block["hash"])


def _in_chain_order(entries: Any, addresses: Sequence[Address], topics: Topics) -> list[Any]:
    if not isinstance(entries, list):
        raise Temporary("A node answered eth_getLogs with something that is not a list.")
    for entry in entries:
        is_match = (
            isinstance(entry, dict)
            and (not addresses or str(entry.get("address", "")).lower() in addresses)
            and len(entry.get("topics", [])) >= len(topics)
            and all(
                topic is None or str(word).lower() in ((topic,) if isinstance(topic, str) else topic)
                for topic, word in zip(topics, entry["topics"], strict=False)
            )
        )
        if not is_match:
            raise Temporary("A node answered eth_getLogs with entries that were not asked for.")
    kept = [entry for entry in entries if not entry.get("removed")]
    return sorted(kept, key=lambda entry: (int(entry["blockNumber"], 16), int(entry["logIndex"], 16)))
