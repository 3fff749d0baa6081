"""Note every challenge that the factory announced, from the event alone: the challenge itself is not asked."""

from __future__ import annotations

from clara_eval.chain.ethereum import find_challenges
from clara_eval.chain.model import NewChallenge
from clara_eval.challenges.status import reason_of
from clara_eval.core.address import to_address
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import Created
from clara_eval.documents.store_keys import created_key
from clara_eval.service.alerts import Alert
from clara_eval.service.duty import ANNOUNCED, Tick


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
    except Exception as bad:
        tick.alerts.raise_alert(Alert("DiscoveryFailing", "critical", reason_of(bad)))
        raise
