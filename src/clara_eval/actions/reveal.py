"""Reveal a hidden harness after the deadline, signed by the poster."""

from __future__ import annotations

from clara_eval.actions.amounts import show_moment
from clara_eval.actions.service_client import send_to_service, sign_text
from clara_eval.app import open_app
from clara_eval.challenges.context import Ports
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.config.eval_config import read_metadata
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, signer_of
from clara_eval.core.errors import BadInput, ConfigError, NotYet
from clara_eval.documents.store_keys import harness_key
from clara_eval.evaluation.execution import revealed_document
from clara_eval.harness import HarnessDocument
from clara_eval.harness.model import MAX_DOCUMENT_BYTES


def reveal_message(chain_id: int, address: str, private_set_hash: str) -> str:
    """The EIP-191 text that the poster signs."""
    return (
        f"Clara Eval: reveal the harness\nchain: {chain_id}\nchallenge: {address}\nprivateSetHash: {private_set_hash}"
    )


async def reveal_harness(ports: Ports, address: Address, document: str, signature: str) -> str:
    """Keep the harness that this challenge committed to."""
    challenge = await look_at_challenge(ports.chain, address)
    if challenge.block.timestamp < challenge.deadline:
        raise NotYet(
            f"Submissions to {address} are open until {show_moment(challenge.deadline)}; "
            "a harness revealed now would be no secret.",
            remedy="Reveal it after the deadline.",
        )
    if len(document.encode()) > MAX_DOCUMENT_BYTES:
        raise BadInput(f"The harness document is larger than {MAX_DOCUMENT_BYTES:,} bytes.", path="document")
    message = reveal_message(challenge.chain_id, challenge.address, challenge.private_set_hash.lower())
    if signer_of(message, signature) != challenge.poster:
        raise BadInput(
            "The reveal is not signed by the poster of the challenge.",
            path="signature",
            remedy=f"Sign with the key of {challenge.poster}: `clara-eval harness reveal`.",
        )
    fetched = await ports.fetch.fetch(challenge.challenge_uri)
    spec = read_metadata(fetched.content, challenge.eval_config_hash).config.harness
    if spec is None or not spec.hidden:
        raise BadInput(f"The config of {address} has no hidden harness.", remedy="There is nothing to reveal.")
    found = revealed_document(document.encode(), challenge.private_set_hash, spec)
    await ports.store.put(challenge.chain_id, harness_key(address), document)
    return found.private_set_hash


async def reveal_document(settings: Settings, address: Address, document: HarnessDocument) -> None:
    """Sign with the wallet key, and reveal to the service of CLARA_API_URL or to the local store."""
    if settings.wallet_key is None:
        raise ConfigError("A reveal is signed by the poster.", remedy="Set CLARA_WALLET_KEY or CLARA_WALLET_KEY_FILE.")
    message = reveal_message(settings.network.chain_id, address, document.private_set_hash)
    text, signature = document.content.decode(), sign_text(settings.wallet_key, message)
    if settings.api_url is None:
        async with open_app(settings) as app:
            await reveal_harness(app.ports, address, text, signature)
    else:
        body = {"document": text, "signature": signature}
        await send_to_service(settings.api_url, address, "harness", body, "reveal")
