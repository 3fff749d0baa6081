"""Reveal a hidden harness: the poster signs, the service checks signature, hash and time, and keeps the document.

In: the document's bytes and a signature over the challenge and its `privateSetHash`. Out: the hash that was revealed.
Refused, with the reason: before the deadline, by anybody but the poster, and whatever does not hash to the commitment.
The first right document stays: there is only one, because the hash fixes it.
"""

from __future__ import annotations

from http import HTTPStatus

import aiohttp
from eth_account import Account
from eth_account.messages import encode_defunct
from pydantic import SecretStr

from clara_eval.chain.model import Challenge
from clara_eval.challenges.context import Ports
from clara_eval.challenges.read import look_at_challenge
from clara_eval.config.eval_config import read_metadata
from clara_eval.core.address import Address
from clara_eval.core.eip191 import signer_of
from clara_eval.core.errors import BadInput, NotYet, Temporary
from clara_eval.core.http_body import TooLong, read_at_most
from clara_eval.documents.store_keys import harness_key
from clara_eval.evaluation.harness import revealed_document
from clara_eval.harness.hidden import MAX_DOCUMENT_BYTES

MAX_ANSWER_BYTES = 65_536


def reveal_message(chain_id: int, address: str, private_set_hash: str) -> str:
    """What the poster signs (EIP-191), so that a signature is of use for this reveal and nothing else."""
    return (
        f"Clara Eval: reveal the harness\nchain: {chain_id}\nchallenge: {address}\nprivateSetHash: {private_set_hash}"
    )


def sign_reveal(key: SecretStr, chain_id: int, address: str, private_set_hash: str) -> str:
    message = encode_defunct(text=reveal_message(chain_id, address, private_set_hash))
    signed = Account.sign_message(message, key.get_secret_value())
    return "0x" + bytes(signed.signature).hex()


async def reveal_harness(ports: Ports, address: Address, document: str, signature: str) -> str:
    """Keep the harness that this challenge committed to; raises BadInput or NotYet with the reason."""
    challenge = await look_at_challenge(ports.chain, address)
    if challenge.block.timestamp < challenge.deadline:
        raise NotYet(
            f"Submissions to {address} are open until {challenge.deadline}; a harness revealed now would be no secret.",
            remedy="Reveal it after the deadline.",
        )
    if len(document.encode()) > MAX_DOCUMENT_BYTES:
        raise BadInput(f"The harness document is larger than {MAX_DOCUMENT_BYTES:,} bytes.", path="document")
    _check_signer(challenge, signature)
    fetched = await ports.fetch.fetch(challenge.challenge_uri)
    spec = read_metadata(fetched.content, challenge.eval_config_hash).config.harness
    if spec is None or not spec.hidden:
        raise BadInput(f"The config of {address} has no hidden harness.", remedy="There is nothing to reveal.")
    found = revealed_document(document.encode(), challenge.private_set_hash, spec)
    await ports.store.put(challenge.chain_id, harness_key(address), document)
    return found.private_set_hash


def _check_signer(challenge: Challenge, signature: str) -> None:
    text = reveal_message(challenge.chain_id, challenge.address, challenge.private_set_hash.lower())
    if signer_of(text, signature) != challenge.poster:
        raise BadInput(
            "The reveal is not signed by the poster of the challenge.",
            path="signature",
            remedy=f"Sign with the key of {challenge.poster}: `clara-eval harness reveal`.",
        )


async def send_reveal(api_url: str, address: Address, document: str, signature: str) -> None:
    """The same through the service's REST door."""
    url = f"{api_url.rstrip('/')}/api/v1/challenges/{address}/harness"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            session.post(url, json={"document": document, "signature": signature}, allow_redirects=False) as answer,
        ):
            text = (await read_at_most(answer, MAX_ANSWER_BYTES)).decode("utf-8", "replace")
    except (aiohttp.ClientError, TimeoutError, OSError, TooLong) as bad:
        raise Temporary(f"The service at {api_url} does not answer ({type(bad).__name__}).") from bad
    if answer.status != HTTPStatus.OK:
        raise BadInput(f"The service refuses the reveal ({answer.status}): {text}")
