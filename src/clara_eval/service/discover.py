"""Note every challenge that the factory announced, from the event alone.

Invariant: the checkpoint moves only after a page is kept, and steps back if its block was replaced. So an event may be
handed over twice, and none is lost. The challenge itself is not asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from clara_eval.chain.ethereum import ChallengeEvents
from clara_eval.chain.model import NewChallenge
from clara_eval.challenges.status import reason_of
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import StoreDown
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import Created
from clara_eval.documents.store_keys import created_key
from clara_eval.service.alerts import Alert
from clara_eval.service.duty import ANNOUNCED, Tick
from clara_eval.store.sql_store import SignedTransactions

STEP_BACK_BLOCKS = 1_000
"""How far a reorg sends the reader back: far beyond any seen on a rollup, and cheap to read again."""


async def discover(tick: Tick) -> None:
    app = tick.app

    async def keep(new: NewChallenge) -> None:
        created = Created(at=new.created_at or None, txHash=new.tx_hash, block=new.block_number)
        pairs = [(ANNOUNCED + new.address, str(new.block_number))]
        pairs += [(created_key(new.address), plain_json(created.model_dump()))] if new.tx_hash else []
        await app.store.put_many(app.chain_id, pairs)

    factory = to_address(app.settings.factory)
    try:
        await find_challenges(app.chain.events, app.store, factory, app.settings.first_block, keep)
    except StoreDown:
        raise
    except Exception as bad:
        tick.alerts.raise_alert(Alert("DiscoveryFailing", "critical", reason_of(bad)))
        raise


async def find_challenges(
    events: ChallengeEvents,
    store: SignedTransactions,
    factory: Address,
    first_block: int,
    keep: Callable[[NewChallenge], Awaitable[None]],
) -> int:
    """Hand every challenge created since the last call to `keep`; return how many."""
    blocks = events.blocks
    name = f"challenges:{blocks.rpc.chain_id}:{factory}"
    first, last, place = first_block, await blocks.safe_block(), await store.checkpoint(name)
    if place is not None:
        is_replaced = place.number <= last.number and not await blocks.is_canonical(place)
        first = max(first_block, place.number - STEP_BACK_BLOCKS) if is_replaced else place.number + 1
    kept = 0
    async for announced, upto in events.challenges_created(factory, first, last):
        for new in announced:
            await keep(new)
            kept += 1
        await store.save_checkpoint(name, upto)
    return kept
