"""`status`: how far the evaluation of a challenge has come."""

from __future__ import annotations

import asyncio
from typing import Any

from clara_eval.challenge.model import Address, to_address
from clara_eval.cli.options import AddressArgument, JsonFlag
from clara_eval.cli.output import emit_json, fail
from clara_eval.cli.screen import console, safe
from clara_eval.settings import Settings
from clara_eval.store.open import opened_store
from clara_eval.use_cases.status import evaluation_status


def status(address: AddressArgument, *, json: JsonFlag = False) -> None:
    """Show how far the evaluation of a challenge has come."""
    target = to_address(address)
    document = asyncio.run(_status(Settings.from_env(), target))
    if document is None:
        fail(
            f"No evaluation of {target} is known in this store. `clara-eval evaluate {target}` starts one.",
            code=1,
            as_json=json,
        )
    if json:
        emit_json({"challenge": target, **document})
    else:
        screen = console(stderr=False)
        screen.print(f"{target}  {document['status']}  {document['progress']} %")
        if document.get("reason"):
            screen.print(safe(str(document["reason"]), 1000), soft_wrap=True)


async def _status(settings: Settings, target: Address) -> dict[str, Any] | None:
    async with opened_store(settings.database_url) as store:
        return await evaluation_status(store, settings.network.chain_id, target)
