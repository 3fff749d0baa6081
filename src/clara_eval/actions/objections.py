"""Object to an announced result: the submitter signs what is wrong, the service checks and keeps it.

In: what is disputed (a rejection, a measured or read feature, a copy verdict, a game), why, and a signature of the
submitting address over the draft's digest. Out: the objection as kept. Refused, with the reason: outside the window,
from anybody who did not submit, about nothing that can be done again, and a second one. Must hold: what was accepted is
in the journal before anybody is told so, and the evaluation that closes the window sees it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import aiohttp
from eth_account import Account
from eth_account.messages import encode_defunct
from pydantic import SecretStr

from clara_eval.chain.ethereum import EthereumChain
from clara_eval.challenges.read import look_at_challenge
from clara_eval.core.address import Address
from clara_eval.core.eip191 import normal_signature, signer_of
from clara_eval.core.errors import BadInput, NotFound, NotYet, Temporary
from clara_eval.core.http_body import TooLong, read_at_most
from clara_eval.core.untrusted import escaped
from clara_eval.documents.store_keys import draft_key
from clara_eval.evaluation.objections import (
    ABOUT,
    ABOUT_WORDS,
    DRAFT_FORM,
    MAX_REASON,
    OBJECTION_FORM,
    AnnouncedDraft,
    DraftPlace,
    Objection,
    objection_message,
    raised_key,
)
from clara_eval.store.leases import evaluation_lease, held
from clara_eval.store.ports import KeyedDocuments, Store

MAX_ANSWER_BYTES = 4 * 2**20
"""More than the draft of ten thousand submitters has."""


class StoreAndChain(Protocol):
    """Where objections are kept, and the chain whose clock counts."""

    @property
    def store(self) -> Store: ...

    @property
    def chain(self) -> EthereumChain: ...

    @property
    def chain_id(self) -> int: ...


async def read_draft(store: KeyedDocuments, chain_id: int, address: Address) -> AnnouncedDraft:
    """The announced result; NotFound where none is."""
    text = await store.get(chain_id, draft_key(address))
    if text is None:
        raise NotFound(f"No result of {address} is announced.", remedy="Follow its eval-status.")
    return DRAFT_FORM.read_text(text)


def sign_objection(key: SecretStr, chain_id: int, address: str, digest: str, about: str, reason: str) -> str:
    message = encode_defunct(text=objection_message(chain_id, address, digest, about, reason))
    return "0x" + bytes(Account.sign_message(message, key.get_secret_value()).signature).hex()


async def object_to_draft(where: StoreAndChain, address: Address, about: str, reason: str, signature: str) -> Objection:
    """Keep the first objection of whoever signed; BadInput, NotFound or NotYet with the reason."""
    about = about.lower()
    ours = await _checked(where, address, about, reason, signature)
    run, key = f"{where.chain_id}:{address}", raised_key(ours.of, ours.objection.submitter)
    if (earlier := await where.store.entry(run, key)) is not None:
        return _same(OBJECTION_FORM.read_text(earlier), ours.objection)
    # Whoever closes the window holds the lease: nothing is accepted that it does not see. It is taken only for what
    # would be kept: else strangers could hold it all the time, and the result would never be posted.
    holder = f"{os.getpid()}:{uuid.uuid4().hex}"
    async with held(where.store, evaluation_lease(where.chain_id, address), holder, 30):
        ours = await _checked(where, address, about, reason, signature)
        kept = await where.store.add_entry(run, key, OBJECTION_FORM.text(ours.objection))
    return _same(OBJECTION_FORM.read_text(kept), ours.objection)


@dataclass(frozen=True, slots=True)
class _Signed:
    of: str
    """The digest of the draft."""
    objection: Objection


async def _checked(where: StoreAndChain, address: Address, about: str, reason: str, signature: str) -> _Signed:
    """The objection, if it is about the draft as announced now, in time, and by one of its submitters."""
    check_words(about, reason)
    draft = await read_draft(where.store, where.chain_id, address)
    challenge = await look_at_challenge(where.chain, address)
    if challenge.score_posted_at or challenge.block.timestamp >= draft.until:
        raise NotYet(
            f"Objections to the result of {address} were taken until {draft.until}.",
            remedy="Nothing is to be done: the window is over.",
        )
    signed = normal_signature(signature)
    message = objection_message(where.chain_id, address, draft.digest, about, reason)
    signer = signer_of(message, signed) if signed is not None else None
    places: dict[str, DraftPlace] = {place.address: place for place in draft.places}
    if signed is None or signer is None or signer not in places:
        raise BadInput(
            "The objection is not signed by an address that submitted to this challenge.",
            path="signature",
            remedy="Sign its six lines with the submitting key (EIP-191, 65 bytes), about the draft as announced now.",
        )
    _check_about(about, signer, places)
    return _Signed(draft.digest, Objection(Address(signer), about, reason, signed))


def check_words(about: str, reason: str) -> None:
    if not ABOUT.fullmatch(about):
        raise BadInput(f"An objection is about {ABOUT_WORDS}.", path="about", value=about)
    if not reason.strip() or len(reason) > MAX_REASON:
        raise BadInput(f"The reason has to have 1 to {MAX_REASON} characters.", path="reason")
    if escaped(reason) != reason:
        raise BadInput(
            "The reason holds characters that cannot be seen, or that turn the direction of text.",
            path="reason",
            remedy="Write it in one line, without control and formatting characters.",
        )


def _check_about(about: str, signer: str, places: Mapping[str, DraftPlace]) -> None:
    kind, _, what = about.partition(":")
    if kind == "game" and (what not in places or what == signer):
        raise BadInput(f"{what} is not another submitter of this challenge.", path="about", value=about)
    if kind in {"rejected", "copy"} and places[signer].status != "rejected":
        raise BadInput("Your submission is ranked: there is no rejection to object to.", path="about", value=about)


def _same(kept: Objection, ours: Objection) -> Objection:
    """Said twice is said once; a second one is refused."""
    if (kept.about, kept.reason) != (ours.about, ours.reason):
        raise BadInput(
            f"{ours.submitter} has objected already, about {kept.about}.",
            path="signature",
            remedy="One objection each counts.",
        )
    return kept


async def fetch_draft(api_url: str, address: Address) -> AnnouncedDraft:
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
            return answer.status, (await read_at_most(answer, MAX_ANSWER_BYTES)).decode("utf-8", "replace")
    except (aiohttp.ClientError, TimeoutError, OSError, TooLong) as bad:
        raise Temporary(f"The service at {api_url} does not answer ({type(bad).__name__}).") from bad
