"""`challenge object`: dispute an announced result before it is posted, signed by the submitting key."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from clara_eval.actions.announced import ObjectionInput, ObjectionResult, object_or_show
from clara_eval.app import open_caller
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.core.errors import ConfigError
from clara_eval.interfaces.cli.options import AddressArgument, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console


def object_(
    address: AddressArgument,
    *,
    about: Annotated[str, typer.Option(help="What is wrong: rejected, copy, feature:NAME or game:ADDRESS.")],
    reason: Annotated[str, typer.Option(help="Why, in a sentence or two; it becomes public with the trace.")],
    json: JsonFlag = False,
) -> None:
    """Object to an announced result, signed by CLARA_WALLET_KEY, at CLARA_API_URL or in the local store."""
    settings, target = Settings.from_env(), to_address(address)
    if settings.wallet_key is None:
        raise ConfigError(
            "An objection is signed by the submitter.", remedy="Set CLARA_WALLET_KEY or CLARA_WALLET_KEY_FILE."
        )
    digest = asyncio.run(_object(settings, ObjectionInput(target, about, reason)))["traceDigest"]
    if json:
        emit_json({"challengeAddress": target, "traceDigest": digest, "about": about.lower(), "reason": reason})
    else:
        console(stderr=False).print(f"Objected to {digest} of {target}.", markup=False, soft_wrap=True)


async def _object(settings: Settings, wanted: ObjectionInput) -> ObjectionResult:
    async with open_caller(settings) as caller:
        return await object_or_show(caller, wanted, confirmed="yes")
