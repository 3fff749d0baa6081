"""`review list|approve|reject`: a person's word before money moves."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

import typer

from clara_eval.challenge.model import Address, to_address
from clara_eval.cli.options import AddressArgument, JsonFlag
from clara_eval.cli.output import emit_json
from clara_eval.cli.screen import console, safe
from clara_eval.engine.reviews import settle_review
from clara_eval.pipeline.review import Review, list_reviews
from clara_eval.settings import Settings
from clara_eval.store.open import opened_store

Digest = Annotated[str | None, typer.Option(help="The trace digest that was looked at; another result is refused.")]
Note = Annotated[str, typer.Option(help="Why; it is kept with the decision.")]


def list_waiting(*, json: JsonFlag = False) -> None:
    """Every review of this network, those that wait first."""
    reviews = asyncio.run(_list(Settings.from_env()))
    if json:
        emit_json({"reviews": [_wire(review) for review in reviews]})
        return
    if not reviews:
        console(stderr=False).print("Nothing waits for a review.")
    for review in reviews:
        console(stderr=False).print(f"{review.state:<9} {review.address}  trace {review.digest}", soft_wrap=True)
        for reason in review.reasons:
            console(stderr=False).print(f"          {safe(reason)}", soft_wrap=True)


def approve(address: AddressArgument, *, note: Note = "", digest: Digest = None, json: JsonFlag = False) -> None:
    """Let the service post exactly the result that was looked at."""
    _decide(address, note, digest, approve=True, json=json)


def reject(address: AddressArgument, *, note: Note = "", digest: Digest = None, json: JsonFlag = False) -> None:
    """End the evaluation as failed; the poster may still post."""
    _decide(address, note, digest, approve=False, json=json)


def _decide(address: str, note: str, digest: str | None, *, approve: bool, json: bool) -> None:
    review = asyncio.run(_settle(Settings.from_env(), to_address(address), note, digest, approve=approve))
    if json:
        emit_json(_wire(review))
    else:
        follows = "The service posts it with its next tick." if approve else "Nothing is posted."
        console(stderr=False).print(f"{review.address} is {review.state}. {follows}", soft_wrap=True)


async def _settle(settings: Settings, target: Address, note: str, digest: str | None, *, approve: bool) -> Review:
    async with opened_store(settings.database_url) as store:
        chain_id = settings.network.chain_id
        return await settle_review(store, chain_id, target, approve=approve, note=note, digest=digest)


async def _list(settings: Settings) -> list[Review]:
    async with opened_store(settings.database_url) as store:
        return await list_reviews(store, settings.network.chain_id)


def _wire(review: Review) -> dict[str, Any]:
    fields = asdict(review)
    return {
        "address": fields["address"],
        "traceDigest": fields["digest"],
        "state": fields["state"],
        "reasons": list(fields["reasons"]),
        "requestedAt": fields["requested_at"],
        "decidedAt": fields["decided_at"],
        "note": fields["note"],
    }
