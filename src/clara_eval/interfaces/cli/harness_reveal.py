"""`harness reveal`: hand in a hidden harness after the deadline, signed by the poster's key."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from clara_eval.actions.reveal import reveal_harness, send_reveal, sign_reveal
from clara_eval.app import open_app
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.interfaces.cli.harness import HarnessFile, InLanguage, harness_document, is_document
from clara_eval.interfaces.cli.options import AddressArgument, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console


def reveal(
    address: AddressArgument,
    file: HarnessFile,
    salt: Annotated[str, typer.Option(help="The salt, where H is the source.")] = "",
    language: InLanguage = "",
    as_json: JsonFlag = False,
) -> None:
    """Reveal a hidden harness, signed by CLARA_WALLET_KEY, to the service at CLARA_API_URL or to the local store."""
    if not is_document(file) and not salt:
        raise BadInput(f"{file} has no salt.", remedy="Give the document that was hashed, or --salt.")
    settings, document = Settings.from_env(), harness_document(file, salt, language)
    if settings.wallet_key is None:
        raise ConfigError("A reveal is signed by the poster.", remedy="Set CLARA_WALLET_KEY or CLARA_WALLET_KEY_FILE.")
    target, text = to_address(address), document.content.decode()
    committed = document.private_set_hash
    signature = sign_reveal(settings.wallet_key, settings.network.chain_id, target, committed)
    asyncio.run(_hand_in(settings, target, text, signature))
    if as_json:
        emit_json({"challengeAddress": target, "privateSetHash": committed})
    else:
        console(stderr=False).print(f"Revealed {committed} for {target}.", markup=False, soft_wrap=True)


async def _hand_in(settings: Settings, address: Address, document: str, signature: str) -> None:
    if settings.api_url:
        await send_reveal(settings.api_url, address, document, signature)
        return
    async with open_app(settings) as app:
        await reveal_harness(app.ports, address, document, signature)
