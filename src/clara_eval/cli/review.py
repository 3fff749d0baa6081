"""`review list|show|approve|reject`: a person's word before money moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from clara_eval.challenge.model import to_address
from clara_eval.cli.options import AddressArgument, JsonFlag
from clara_eval.cli.output import emit_json
from clara_eval.cli.screen import console, safe
from clara_eval.pipeline.review import Review
from clara_eval.settings import Settings
from clara_eval.store.open import opened_store
from clara_eval.trace.store import Store
from clara_eval.use_cases import review as use_case

Digest = Annotated[str | None, typer.Option(help="The digest of the trace you reviewed; any other result is refused.")]
Note = Annotated[str, typer.Option(help="Why; it is kept with the decision.")]
T = TypeVar("T")


def list_waiting(*, json: JsonFlag = False) -> None:
    """List every review of this network, waiting ones first."""
    reviews = asyncio.run(_with_store(use_case.list_reviews))
    if json:
        emit_json({"reviews": [review.to_json() for review in reviews]})
        return
    if not reviews:
        console(stderr=False).print("Nothing is waiting for review.")
    for review in reviews:
        _print(review)


def show(address: AddressArgument, *, json: JsonFlag = False) -> None:
    """One review: its state, the trace that was judged, and every reason."""
    target = to_address(address)
    review = asyncio.run(_with_store(lambda store, chain_id: use_case.known_review(store, chain_id, target)))
    if json:
        emit_json(review.to_json())
    else:
        _print(review)


def approve(address: AddressArgument, *, note: Note = "", digest: Digest = None, json: JsonFlag = False) -> None:
    """Let the service post exactly the result you reviewed."""
    target = to_address(address)
    _decided(
        lambda store, chain_id: use_case.approve(store, chain_id, target, note=note, digest=digest),
        "The service posts it with its next tick.",
        json=json,
    )


def reject(address: AddressArgument, *, note: Note = "", digest: Digest = None, json: JsonFlag = False) -> None:
    """End the evaluation as failed; the poster may still post."""
    target = to_address(address)
    _decided(
        lambda store, chain_id: use_case.reject(store, chain_id, target, note=note, digest=digest),
        "Nothing is posted.",
        json=json,
    )


def _decided(decide: Callable[[Store, int], Awaitable[Review]], follows: str, *, json: bool) -> None:
    review = asyncio.run(_with_store(decide))
    if json:
        emit_json(review.to_json())
    else:
        console(stderr=False).print(f"{review.address} is {review.state}. {follows}", soft_wrap=True)


def _print(review: Review) -> None:
    screen = console(stderr=False)
    screen.print(f"{review.state:<9} {review.address}  trace {review.digest}", soft_wrap=True)
    for reason in review.reasons:
        screen.print(f"          {safe(reason)}", soft_wrap=True)
    if review.note:
        screen.print(f"          note: {safe(review.note)}", soft_wrap=True)


async def _with_store(use: Callable[[Store, int], Awaitable[T]]) -> T:
    settings = Settings.from_env()
    async with opened_store(settings.database_url) as store:
        return await use(store, settings.network.chain_id)
