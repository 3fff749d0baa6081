"""`review list|show|approve|reject|rule`: a person's word before money moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, TypeVar, cast

import typer

from clara_eval.actions import review as use_case
from clara_eval.actions.review import Decree
from clara_eval.actions.review_sheet import review_sheet
from clara_eval.challenges.review import Review
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.documents.review import RulingKind
from clara_eval.interfaces.cli.options import AddressArgument, JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.review_sheet import print_sheet
from clara_eval.interfaces.cli.screen import console, safe
from clara_eval.store.open import existing_store, is_there
from clara_eval.store.ports import Store

Digest = Annotated[str | None, typer.Option(help="The digest of the trace you reviewed; any other result is refused.")]
Note = Annotated[str, typer.Option(help="Why; it is kept with the decision.")]
By = Annotated[str, typer.Option(help="Who decides; it stands in the public trace.")]
T = TypeVar("T")


class Stage(StrEnum):
    reading = "reading"
    comparing = "comparing"


def list_waiting(*, json: JsonFlag = False) -> None:
    """List every review of this network, waiting ones first."""
    settings = Settings.from_env()
    reviews = asyncio.run(_with_store(use_case.list_reviews)) if is_there(settings.database_url) else []
    if json:
        emit_json({"reviews": [review.to_json() for review in reviews]})
        return
    if not reviews:
        console(stderr=False).print("Nothing is waiting for review. Results above CLARA_REVIEW_ABOVE_USD will.")
    for review in reviews:
        _print(review)


def show(address: AddressArgument, *, json: JsonFlag = False) -> None:
    """One result that waits: the money, the time, the ranking, what is doubtful, facts and games at the pay line."""
    target = to_address(address)
    sheet = asyncio.run(_with_store(lambda store, chain_id: review_sheet(store, chain_id, target)))
    if json:
        emit_json(sheet.model_dump(mode="json"))
    else:
        print_sheet(sheet)


def approve(
    address: AddressArgument,
    *,
    note: Annotated[str, typer.Option(help="Why; it stands in the public trace.")] = "",
    by: By = "",
    digest: Digest = None,
    json: JsonFlag = False,
) -> None:
    """Let the service post exactly the result you reviewed."""
    target = to_address(address)
    _decided(
        lambda store, chain_id: use_case.approve(store, chain_id, target, note=note, digest=digest, by=by),
        "The service posts it with its next tick.",
        json=json,
    )


def reject(
    address: AddressArgument, *, note: Note = "", by: By = "", digest: Digest = None, json: JsonFlag = False
) -> None:
    """End the evaluation as failed; the poster may still post."""
    target = to_address(address)
    _decided(
        lambda store, chain_id: use_case.reject(store, chain_id, target, note=note, digest=digest, by=by),
        "Nothing is posted.",
        json=json,
    )


def rule(
    address: AddressArgument,
    *,
    digest: Annotated[str, typer.Option(help="The digest of the result that you looked at, as `review show` says.")],
    exclude: Annotated[str | None, typer.Option(help="The address of an entry that is not to be ranked.")] = None,
    original: Annotated[str | None, typer.Option(help="The address that is the original of a copied work.")] = None,
    judge: Annotated[str | None, typer.Option(help="A judge, as in CLARA_JUDGES, to be asked instead.")] = None,
    stage: Annotated[Stage, typer.Option(help="What the judge is asked for.")] = Stage.comparing,
    note: Note = "",
    by: By = "",
    json: JsonFlag = False,
) -> None:
    """Exclude an entry, say who is the original, or ask another judge; the round is then walked again."""
    given = [kind for kind, value in (("exclude", exclude), ("original", original), ("judge", judge)) if value]
    if len(given) != 1:
        raise BadInput("A ruling is exactly one of --exclude, --original and --judge.", path="ruling")
    account = exclude or original
    kind = cast("RulingKind", given[0])
    decree = Decree(kind, to_address(account) if account else None, judge, stage.value if judge else None, note, by)
    target = to_address(address)
    _decided(
        lambda store, chain_id: use_case.rule(store, chain_id, target, decree, digest=digest),
        "It is walked again under the ruling, and the result waits for you again.",
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
    if review.state == "waiting":
        screen.print(f"          {safe(review.unless_decided, 1000)}", soft_wrap=True)
    for reason in review.reasons:
        screen.print(f"          {safe(reason)}", soft_wrap=True)
    if review.note:
        screen.print(f"          note: {safe(review.note)}", soft_wrap=True)


async def _with_store(use: Callable[[Store, int], Awaitable[T]]) -> T:
    settings = Settings.from_env()
    async with existing_store(settings.database_url) as store:
        if store is None:
            raise NotFound(
                "No store is here yet: nothing was evaluated, and nothing is waiting for review.",
                remedy="Set CLARA_DATABASE_URL to the service's store.",
            )
        return await use(store, settings.network.chain_id)
