"""What a caller does about an announced result: look at it, and object to it before it is posted.

In: a caller, the challenge, and for an objection what is wrong and why. Out: one document with the draft and what
became of the objection. Without a local wallet the text to be signed comes back, and the signature is handed in by a
second call; with one, nothing is signed that its owner did not confirm. The draft is the store's, or the service's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from typing_extensions import TypedDict

from clara_eval.actions.objections import (
    check_words,
    fetch_draft,
    object_to_draft,
    read_draft,
    send_objection,
    sign_objection,
)
from clara_eval.actions.times import show_moment
from clara_eval.app import Caller
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.challenges.stored_results import ApiRecords
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.evaluation.objections import AnnouncedDraft, objection_message
from clara_eval.store.ports import Store

PLACES = 50
Confirmed = Literal["yes", "no", "unasked"]


class DraftRow(TypedDict):
    address: str
    rank: int
    score: int
    status: str


class ObjectionResult(TypedDict):
    address: str
    outcome: Literal["announced", "unsigned", "needs_confirmation", "declined", "objected"]
    traceDigest: str
    objectionsUntil: int
    places: list[DraftRow]
    """The first ones, best first."""
    total: int
    margin: str
    about: str | None
    message: str | None
    """What the submitting address signs (EIP-191)."""
    next: str


@dataclass(frozen=True, slots=True)
class ObjectionInput:
    """What a caller asks for; without `about` only the draft is shown."""

    address: str
    about: str = ""
    reason: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class _StoreAndChain:
    store: Store
    chain: EthereumChain
    chain_id: int


async def announced(caller: Caller, address: Address) -> AnnouncedDraft:
    """The draft as it is announced now; NotFound where none is."""
    if isinstance(caller.records, ApiRecords):
        return await fetch_draft(caller.settings.api_url or "", address)
    store = await caller.store.existing()
    if store is None:
        raise NotFound(
            f"No result of {address} is announced here.", remedy="Set CLARA_API_URL to the service that evaluates it."
        )
    return await read_draft(store, caller.chain_id, address)


async def question(caller: Caller, wanted: ObjectionInput) -> str | None:
    """What the owner of the local wallet is asked before it signs; None where it signs nothing."""
    if caller.account is None or not wanted.about or wanted.signature:
        return None
    address, draft = await _checked(caller, wanted)
    return (
        f"Sign an objection as {caller.account.address} to the announced result {draft.digest} of {address}, about "
        f"{wanted.about.lower()}? It counts once, and its reason becomes public with the trace: {wanted.reason}"
    )


async def object_or_show(caller: Caller, wanted: ObjectionInput, *, confirmed: Confirmed) -> ObjectionResult:
    """The draft; with `about` also the objection: handed in, or what is missing for that."""
    address, draft = await _checked(caller, wanted)
    if not wanted.about:
        return _document(address, draft, "announced", None, None)
    about = wanted.about.lower()
    message = objection_message(caller.chain_id, address, draft.digest, about, wanted.reason)
    signature, key = wanted.signature, caller.settings.wallet_key
    if not signature:
        if caller.account is None or key is None:
            return _document(address, draft, "unsigned", about, message)
        if confirmed != "yes":
            return _document(address, draft, "declined" if confirmed == "no" else "needs_confirmation", about, message)
        signature = sign_objection(key, caller.chain_id, address, draft.digest, about, wanted.reason)
    await _hand_in(caller, address, about, wanted.reason, signature)
    return _document(address, draft, "objected", about, None)


async def _checked(caller: Caller, wanted: ObjectionInput) -> tuple[Address, AnnouncedDraft]:
    """The draft; what could never be accepted is refused before anybody is asked to sign it."""
    address = to_address(wanted.address)
    if wanted.about:
        check_words(wanted.about.lower(), wanted.reason)
    draft = await announced(caller, address)
    account = caller.account if wanted.about and not wanted.signature else None
    if account is not None and account.address not in {place.address for place in draft.places}:
        raise BadInput(
            f"The local wallet {account.address} did not submit to {address}.",
            path="about",
            remedy="Only the submitting address can object.",
        )
    return address, draft


async def _hand_in(caller: Caller, address: Address, about: str, reason: str, signature: str) -> None:
    if isinstance(caller.records, ApiRecords):
        await send_objection(caller.settings.api_url or "", address, about, reason, signature)
    else:
        where = _StoreAndChain(await caller.store.opened(), caller.chain, caller.chain_id)
        await object_to_draft(where, address, about, reason, signature)


_NEXT = {
    "announced": "Call again with `about` and `reason` to object.",
    "unsigned": "Sign `message` with the submitting address (EIP-191), then call again with it and the same words.",
    "needs_confirmation": (
        "Nothing was signed. Show this to the wallet's owner, then call again with the same words and confirm: true."
    ),
    "declined": "Nothing was signed: it was declined.",
    "objected": "It is kept, and done again or looked at before the post; follow challenge_eval_status.",
}


def _document(
    address: Address,
    draft: AnnouncedDraft,
    outcome: Literal["announced", "unsigned", "needs_confirmation", "declined", "objected"],
    about: str | None,
    message: str | None,
) -> ObjectionResult:
    rows = [DraftRow(address=p.address, rank=p.rank, score=p.score, status=p.status) for p in draft.places[:PLACES]]
    return ObjectionResult(
        address=address,
        outcome=outcome,
        traceDigest=draft.digest,
        objectionsUntil=draft.until,
        places=rows,
        total=len(draft.places),
        margin=draft.margin,
        about=about,
        message=message,
        next=_NEXT[outcome],
    )


def in_words(found: ObjectionResult) -> str:
    """The document for a reader: our own words and values of ours."""
    until = show_moment(found["objectionsUntil"])
    lines = [
        f"The result of {found['address']} is announced: {found['traceDigest']}. Submitters may object until {until}."
    ]
    if found["outcome"] == "announced":
        lines += [f"{row['rank']}. {row['address']}: score {row['score']}, {row['status']}" for row in found["places"]]
        lines += [found["margin"]] if found["margin"] else []
    if found["outcome"] == "objected":
        lines.append(f"Objected, about {found['about']}.")
    return "\n".join([*lines, found["next"]])
