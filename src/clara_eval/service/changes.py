"""Ask the chain once for what changed since the last tick.

Output: the challenges with events since then, or None if that cannot be known and all of them must be read.
Invariant: a challenge whose events are not deep yet, or that could not be read, is listed again at the next tick.
"""

from __future__ import annotations

import json

from clara_eval.chain.model import Checkpoint
from clara_eval.core.hashing import plain_json
from clara_eval.service.duty import Tick

PLACE = "engine:changes"
"""Up to which safe block events are read, and the challenges to read again."""
LONGEST_GAP_BLOCKS = 50_000
"""About a day of Base: after a longer pause reading every challenge costs less than reading every event."""


async def read_changes(tick: Tick) -> set[str] | None:
    chain, head = tick.app.chain, tick.head
    text = await tick.app.store.get(tick.app.chain_id, PLACE)
    if not text:
        return None
    place = json.loads(text)
    last = Checkpoint(place["block"], place["hash"])
    if head.number - last.block_number > LONGEST_GAP_BLOCKS:
        return None
    if last.block_number <= head.number and not await chain.blocks.is_canonical(last):
        return None
    first = min(last.block_number, tick.safe.number) + 1
    return {*place["again"], *await chain.events.challenges_with_events(first, head)}


async def save_changes(tick: Tick) -> None:
    """Remember how far events are read, once everything that changed is read."""
    place = {"block": tick.safe.number, "hash": tick.safe.hash, "again": sorted(tick.read_again)}
    await tick.app.store.put(tick.app.chain_id, PLACE, plain_json(place))
