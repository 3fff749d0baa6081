"""Object to an announced result, and send signed requests to a running service."""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

import aiohttp

from clara_eval.actions.amounts import show_moment
from clara_eval.app import Caller
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.challenges import review as objections
from clara_eval.challenges.stored_results import ApiRecords
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.core.address import Address, normal_signature, sign_text, signer_of, to_address
from clara_eval.core.errors import BadInput, ClaraError, NotFound, NotYet, Temporary
from clara_eval.core.untrusted import escaped
from clara_eval.core.web import TooLong, read_at_most
from clara_eval.documents.rest import DraftPlaceRecord
from clara_eval.documents.results import Document
from clara_eval.documents.store_keys import draft_key
from clara_eval.store.leases import evaluation_lease, held
from clara_eval.store.sql_store import PublicKeys, SqlStore

MAX_PLACES = 50
MAX_ANSWER_BYTES = 4 * 2**20  # a draft of 10,000 submitters is smaller


class ObjectionResult(Document):
    address: str
    outcome: Literal["announced", "unsigned", "needs_confirmation", "declined", "objected"]
    traceDigest: str
    objectionsUntil: int
    places: list[DraftPlaceRecord]  # the first ones, best first
    total: int
    margin: str
    about: str | None
    message: str | None  # what the submitting address signs (EIP-191)
    next: str = ""  # what to do next, in the words of the interface


@dataclass(frozen=True, slots=True)
class ObjectionInput:
    """A request to object; without `about` only the draft is shown."""

    address: str
    about: str = ""
    reason: str = ""
    signature: str = ""


async def objection_question(caller: Caller, wanted: ObjectionInput) -> str | None:
    """Return the question to confirm before the local wallet signs; None if it signs nothing."""
    if caller.account is None or not wanted.about or wanted.signature:
        return None
    address, draft = await _read_announced(caller, wanted)
    return (
        f"Sign an objection as {caller.account.address} to the announced result {draft.digest} of {address}, about "
        f"{wanted.about.lower()}? It counts once, and its reason becomes public with the trace: {wanted.reason}"
    )


async def object_or_show(
    caller: Caller, wanted: ObjectionInput, *, confirmed: Literal["yes", "no", "unasked"]
) -> ObjectionResult:
    """Return the draft; with `about` also object to it, or return the message to sign."""
    address, draft = await _read_announced(caller, wanted)
    about, signature = wanted.about.lower(), wanted.signature
    key = caller.settings.wallet_key if caller.account else None
    found = ObjectionResult(
        address=address,
        outcome="objected" if about else "announced",
        traceDigest=draft.digest,
        objectionsUntil=draft.until,
        places=list(draft.places[:MAX_PLACES]),
        total=len(draft.places),
        margin=draft.margin,
        about=about or None,
        message=None,
    )
    if not about:
        return found
    if not signature:
        message = objections.objection_message(caller.chain_id, address, draft.digest, about, wanted.reason)
        if key is None or confirmed != "yes":
            outcome = "unsigned" if key is None else "declined" if confirmed == "no" else "needs_confirmation"
            return found.model_copy(update={"outcome": outcome, "message": message})
        signature = sign_text(key, message)
    if isinstance(caller.records, ApiRecords):
        body = {"about": about, "reason": wanted.reason, "signature": signature}
        await send_to_service(caller.settings.api_url or "", address, "objections", body, "objection")
    else:
        await object_to_draft(await caller.store.opened(), caller.chain, address, about, wanted.reason, signature)
    return found


async def _read_announced(caller: Caller, wanted: ObjectionInput) -> tuple[Address, objections.AnnouncedDraft]:
    """Read the draft; refuse an objection that could not be accepted before it is signed."""
    address = to_address(wanted.address)
    if wanted.about:
        _check_text(wanted.about.lower(), wanted.reason)
    if isinstance(caller.records, ApiRecords):
        api_url = caller.settings.api_url or ""
        status, text = await ask_service(api_url, address, "draft")
        if status != HTTPStatus.OK:
            raise NotFound(f"No result of {address} is announced at {api_url}.", remedy="Follow its eval-status.")
        try:
            draft = objections.DRAFT_FORM.read_text(text)
        except ValueError as bad:
            raise Temporary(f"The service at {api_url} answered with something other than a draft.") from bad
    elif (store := await caller.store.existing()) is not None:
        draft = await read_draft(store, caller.chain_id, address)
    else:
        remedy = "Set CLARA_API_URL to the service that evaluates it."
        raise NotFound(f"No result of {address} is announced here.", remedy=remedy)
    account = caller.account if wanted.about and not wanted.signature else None
    if account is not None and account.address not in {place.address for place in draft.places}:
        raise BadInput(
            f"The local wallet {account.address} did not submit to {address}.",
            path="about",
            remedy="Only the submitting address can object.",
        )
    return address, draft


async def read_draft(store: PublicKeys, chain_id: int, address: Address) -> objections.AnnouncedDraft:
    """Read the announced result; NotFound if there is none."""
    text = await store.get(chain_id, draft_key(address))
    if text is None:
        raise NotFound(f"No result of {address} is announced.", remedy="Follow its eval-status.")
    return objections.DRAFT_FORM.read_text(text)


async def object_to_draft(
    store: SqlStore, chain: EthereumChain, address: Address, about: str, reason: str, signature: str
) -> objections.Objection:
    """Store the signer's objection; raise if it is refused, or if the signer sent another one before."""
    given, run = (store, chain, address, about.lower(), reason, signature), f"{chain.chain_id}:{address}"
    digest, ours = await _check_objection(*given)
    key = objections.raised_key(digest, ours.submitter)
    kept = await store.entry(run, key)
    if kept is None:
        # The evaluation that closes the window needs this lease. It is taken only for a valid objection: otherwise
        # anyone could hold it all the time, and the result would never be posted.
        async with held(store, evaluation_lease(chain.chain_id, address), f"{os.getpid()}:{uuid.uuid4().hex}", 30):
            _, ours = await _check_objection(*given)
            kept = await store.add_entry(run, key, objections.OBJECTION_FORM.text(ours))
    found = objections.OBJECTION_FORM.read_text(kept)
    if (found.about, found.reason) != (ours.about, ours.reason):
        raise BadInput(
            f"{ours.submitter} has objected already, about {found.about}.",
            path="signature",
            remedy="One objection each counts.",
        )
    return found


async def _check_objection(
    store: SqlStore, chain: EthereumChain, address: Address, about: str, reason: str, signature: str
) -> tuple[str, objections.Objection]:
    """Check text, window, signer and subject; return the draft's digest and the objection."""
    _check_text(about, reason)
    draft = await read_draft(store, chain.chain_id, address)
    challenge = await look_at_challenge(chain, address)
    if challenge.score_posted_at or challenge.block.timestamp >= draft.until:
        raise NotYet(
            f"Objections to the result of {address} were taken until {show_moment(draft.until)}.",
            remedy="Nothing is to be done: the window is over.",
        )
    signed = normal_signature(signature)
    message = objections.objection_message(chain.chain_id, address, draft.digest, about, reason)
    signer = signer_of(message, signed) if signed is not None else None
    places: dict[str, DraftPlaceRecord] = {place.address: place for place in draft.places}
    if signed is None or signer is None or signer not in places:
        raise BadInput(
            "The objection is not signed by an address that submitted to this challenge.",
            path="signature",
            remedy="Sign its six lines with the submitting key (EIP-191, 65 bytes), about the draft as announced now.",
        )
    kind, _, what = about.partition(":")
    if kind == "game" and (what not in places or what == signer):
        raise BadInput(f"{what} is not another submitter of this challenge.", path="about")
    if kind in {"rejected", "copy"} and places[signer].status != "rejected":
        raise BadInput("Your submission is ranked: there is no rejection to object to.", path="about")
    return draft.digest, objections.Objection(Address(signer), about, reason, signed)


def _check_text(about: str, reason: str) -> None:
    if not objections.ABOUT.fullmatch(about):
        raise BadInput(f"An objection is about {objections.ABOUT_WORDS}.", path="about")
    if not reason.strip() or len(reason) > objections.MAX_REASON:
        raise BadInput(f"The reason has to have 1 to {objections.MAX_REASON} characters.", path="reason")
    if escaped(reason) != reason:
        raise BadInput(
            "The reason holds characters that cannot be seen, or that turn the direction of text.",
            path="reason",
            remedy="Write it in one line, without control and formatting characters.",
        )


def refusal(what: str, status: int, text: str) -> ClaraError:
    """Return the service's refusal as one of our errors; the response may be malformed."""
    try:
        problem = json.loads(text)
        detail, remedy = str(problem["detail"])[:1000], str(problem.get("remedy") or "")[:300]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return BadInput(f"The service refuses the {what} ({status}).", remedy="Check CLARA_API_URL.")
    message = f"The service refuses the {what}: {detail}"
    if status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
        return (NotYet if status == HTTPStatus.CONFLICT else NotFound)(message, remedy=remedy)
    return BadInput(message, remedy=remedy)


async def ask_service(api_url: str, address: Address, path: str, body: dict[str, str] | None = None) -> tuple[int, str]:
    """Send a GET, or a POST if there is a body; return status and text."""
    url = f"{api_url.rstrip('/')}/api/v1/challenges/{address}/{path}"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            session.request("GET" if body is None else "POST", url, json=body, allow_redirects=False) as answer,
        ):
            return answer.status, (await read_at_most(answer, MAX_ANSWER_BYTES)).decode("utf-8", "replace")
    except (aiohttp.ClientError, TimeoutError, OSError, TooLong) as bad:
        raise Temporary(f"The service at {api_url} does not answer ({type(bad).__name__}).") from bad


async def send_to_service(api_url: str, address: Address, path: str, body: dict[str, str], what: str) -> None:
    status, text = await ask_service(api_url, address, path, body)
    if status != HTTPStatus.OK:
        raise refusal(what, status, text)
