"""Object to an announced result: the submitter signs what is wrong, the service checks and keeps it.

In: what is disputed (a rejection, a measured or read feature, a copy verdict, a game), why, and a signature of the
submitting address over the draft's digest. Out: the objection as kept. Refused, with the reason: outside the window,
from anybody who did not submit, about nothing that can be done again, and a second one. Must hold: what was accepted is
in the journal before anybody is told so, and the evaluation that closes the window sees it.
"""

from __future__ import annotations

import uuid
from http import HTTPStatus

import aiohttp
from eth_account import Account
from eth_account.messages import encode_defunct
from pydantic import SecretStr

from clara_eval.app import App
from clara_eval.attestation.eip191 import signer_of
from clara_eval.challenge.model import Address, Challenge
from clara_eval.challenge.read import look_at_challenge
from clara_eval.errors import BadInput, NotFound, NotYet, Temporary
from clara_eval.pipeline.leases import evaluation_lease, held
from clara_eval.pipeline.objections import (
    ABOUT,
    ABOUT_WORDS,
    DRAFT_FORM,
    MAX_REASON,
    OBJECTION_FORM,
    RAISED,
    Draft,
    DraftPlace,
    Objection,
    objection_message,
)
from clara_eval.processes import this_process
from clara_eval.trace.store import KeyedDocuments
from clara_eval.trace.store_keys import draft_key

MAX_ANSWER_BYTES = 65_536


async def read_draft(store: KeyedDocuments, chain_id: int, address: Address) -> Draft:
    """The announced result; NotFound where none is."""
    text = await store.get(chain_id, draft_key(address))
    if text is None:
        raise NotFound(f"No result of {address} is announced.", remedy="Follow its eval-status.")
    return DRAFT_FORM.read_text(text)


def sign_objection(key: SecretStr, chain_id: int, address: str, digest: str, about: str, reason: str) -> str:
    message = encode_defunct(text=objection_message(chain_id, address, digest, about, reason))
    return "0x" + bytes(Account.sign_message(message, key.get_secret_value()).signature).hex()


async def object_to_draft(app: App, address: Address, about: str, reason: str, signature: str) -> Objection:
    """Keep the first objection of whoever signed; BadInput, NotFound or NotYet with the reason."""
    about = about.lower()
    if not ABOUT.fullmatch(about):
        raise BadInput(f"An objection is about {ABOUT_WORDS}.", path="about", value=about)
    if not reason.strip() or len(reason) > MAX_REASON:
        raise BadInput(f"The reason has to have 1 to {MAX_REASON} characters.", path="reason")
    # Whoever closes the window holds the lease: nothing is accepted that it does not see.
    async with held(app.store, evaluation_lease(app.chain_id, address), f"{this_process()}:{uuid.uuid4().hex}", 30):
        challenge = await look_at_challenge(app.chain, address)
        draft = await read_draft(app.store, app.chain_id, address)
        if challenge.score_posted_at or challenge.block.timestamp >= draft.until:
            raise NotYet(
                f"Objections to the result of {address} were taken until {draft.until}.",
                remedy="Nothing is to be done: the window is over.",
            )
        return await _keep(app, challenge, draft, about, reason, signature)


async def _keep(app: App, challenge: Challenge, draft: Draft, about: str, reason: str, signature: str) -> Objection:
    message = objection_message(app.chain_id, challenge.address, draft.digest, about, reason)
    signer = signer_of(message, signature)
    places: dict[str, DraftPlace] = {place.address: place for place in draft.places}
    if signer is None or signer not in places:
        raise BadInput(
            "The objection is not signed by an address that submitted to this challenge.",
            path="signature",
            remedy="Sign with the submitting key: `clara-eval challenge object`.",
        )
    kind, _, what = about.partition(":")
    if kind == "game" and (what not in places or what == signer):
        raise BadInput(f"{what} is not another submitter of this challenge.", path="about", value=about)
    if kind in {"rejected", "copy"} and places[signer].status != "rejected":
        raise BadInput("Your submission is ranked: there is no rejection to object to.", path="about", value=about)
    ours = Objection(Address(signer), about, reason, signature)
    kept = OBJECTION_FORM.read_text(
        await app.store.add_entry(challenge.run, RAISED + signer, OBJECTION_FORM.text(ours))
    )
    if (kept.about, kept.reason) != (about, reason):
        raise BadInput(
            f"{signer} has objected already, about {kept.about}.", path="signature", remedy="One objection each counts."
        )
    return kept


async def fetch_draft(api_url: str, address: Address) -> Draft:
    """The announced result, from a service."""
    status, text = await _ask(api_url, address, "draft", None)
    if status != HTTPStatus.OK:
        raise NotFound(f"No result of {address} is announced at {api_url}.", remedy="Follow its eval-status.")
    try:
        return DRAFT_FORM.read_text(text)
    except ValueError as bad:
        raise Temporary(f"The service at {api_url} answered with something other than a draft.") from bad


async def send_objection(api_url: str, address: Address, about: str, reason: str, signature: str) -> None:
    """The same through the service's REST door."""
    body = {"about": about, "reason": reason, "signature": signature}
    status, text = await _ask(api_url, address, "objections", body)
    if status != HTTPStatus.OK:
        raise BadInput(f"The service refuses the objection ({status}): {text[:1000]}")


async def _ask(api_url: str, address: Address, what: str, body: dict[str, str] | None) -> tuple[int, str]:
    url = f"{api_url.rstrip('/')}/api/v1/challenges/{address}/{what}"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            session.request("GET" if body is None else "POST", url, json=body, allow_redirects=False) as answer,
        ):
            return answer.status, (await answer.content.read(4 * MAX_ANSWER_BYTES)).decode("utf-8", "replace")
    except (aiohttp.ClientError, TimeoutError, OSError) as bad:
        raise Temporary(f"The service at {api_url} does not answer ({type(bad).__name__}).") from bad
