"""Read the events of a block range, in pieces that the node accepts.

Invariant: a refused range is asked again in smaller pieces, never skipped; the pieces grow back slowly. The answer of a
node that does not have the group's last block is not used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from clara_eval.chain.model import Checkpoint
from clara_eval.chain.rpc import NodeRefusal, Rpc, RpcCall
from clara_eval.chain.rpc_errors import Meaning
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary

FIRST_SPAN = 10_000
LARGEST_SPAN = 50_000
RANGES_AT_ONCE = 8
GROWS_AFTER = 3
"""Groups without a refusal before a larger span is tried again."""


_CURED_BY_SMALLER_RANGES = frozenset({Meaning.RANGE_TOO_LARGE, Meaning.UNSUPPORTED, Meaning.OTHER})
"""Providers have many words for a range that is too large: what they say is not trusted to be known."""


@dataclass(frozen=True, slots=True)
class LogFilter:
    addresses: tuple[Address, ...]
    """Empty: any contract."""
    topics: tuple[str | tuple[str, ...] | None, ...]
    """A tuple accepts any of its topics in its place, None accepts everything."""


@dataclass(frozen=True, slots=True)
class LogGroup:
    """The entries of neighbouring ranges, oldest first, up to the block `upto`."""

    entries: tuple[Any, ...]
    first: int
    upto: Checkpoint


def split_range(first: int, last: int, span: int, *, backwards: bool = False) -> list[tuple[int, int]]:
    """Return the next ranges of at most `span` blocks, at most RANGES_AT_ONCE, in the order to be asked."""
    ranges: list[tuple[int, int]] = []
    while first <= last and len(ranges) < RANGES_AT_ONCE:
        if backwards:
            ranges.append((max(first, last - span + 1), last))
            last = ranges[-1][0] - 1
        else:
            ranges.append((first, min(last, first + span - 1)))
            first = ranges[-1][1] + 1
    return ranges


class Logs:
    """Remembers between calls how large a range the nodes accept."""

    def __init__(self, rpc: Rpc, *, span: int = FIRST_SPAN) -> None:
        self._rpc = rpc
        self.span = span
        self._calm = 0

    async def groups(
        self, wanted: LogFilter, first: int, last: int, *, backwards: bool = False
    ) -> AsyncIterator[LogGroup]:
        """Yield the range group by group; stop reading to stop asking."""
        while first <= last:
            ranges = split_range(first, last, self.span, backwards=backwards)
            group = await self._ask(wanted, sorted(ranges))
            if group is None:
                continue
            yield group
            if backwards:
                last = group.first - 1
            else:
                first = group.upto.block_number + 1

    async def _ask(self, wanted: LogFilter, ranges: Sequence[tuple[int, int]]) -> LogGroup | None:
        """Return None if a range was refused; the span is smaller then."""
        last = ranges[-1][1]
        calls = [RpcCall("eth_getLogs", (_query(wanted, *part),)) for part in ranges]
        *found, block = await self._rpc.ask_one_node([*calls, RpcCall("eth_getBlockByNumber", (hex(last), False))])
        refused = [answer for answer in found if isinstance(answer, NodeRefusal)]
        if refused:
            self._shrink(refused[0])
            return None
        if isinstance(block, NodeRefusal):
            raise Temporary(f"No node has block {last} yet.", remedy="Try again shortly.")
        self._grow()
        entries = [entry for part in found for entry in _checked(part, wanted)]
        return LogGroup(tuple(entries), ranges[0][0], Checkpoint(last, block["hash"]))

    def _shrink(self, refusal: NodeRefusal) -> None:
        if refusal.meaning not in _CURED_BY_SMALLER_RANGES or self.span == 1:
            self.span = max(self.span, FIRST_SPAN)
            raise refusal
        self.span = max(1, self.span // 2)
        self._calm = 0

    def _grow(self) -> None:
        self._calm += 1
        if self._calm >= GROWS_AFTER:
            self.span = min(LARGEST_SPAN, self.span + max(1, self.span // 4))
            self._calm = 0


def _query(wanted: LogFilter, first: int, last: int) -> dict[str, Any]:
    return {
        **({"address": list(wanted.addresses)} if wanted.addresses else {}),
        "topics": list(wanted.topics),
        "fromBlock": hex(first),
        "toBlock": hex(last),
    }


def _checked(entries: Any, wanted: LogFilter) -> list[Any]:
    """Return the entries in chain order; Temporary if one was not asked for."""
    if not isinstance(entries, list):
        raise Temporary("A node answered eth_getLogs with something that is not a list.")
    for entry in entries:
        is_asked = (
            isinstance(entry, dict)
            and (not wanted.addresses or str(entry.get("address", "")).lower() in wanted.addresses)
            and len(entry.get("topics", [])) >= len(wanted.topics)
            and all(map(_fits, wanted.topics, entry["topics"]))
        )
        if not is_asked:
            raise Temporary("A node answered eth_getLogs with entries that were not asked for.")
    kept = [entry for entry in entries if not entry.get("removed")]
    return sorted(kept, key=lambda entry: (int(entry["blockNumber"], 16), int(entry["logIndex"], 16)))


def _fits(topic: str | tuple[str, ...] | None, word: object) -> bool:
    return topic is None or str(word).lower() in ((topic,) if isinstance(topic, str) else topic)
