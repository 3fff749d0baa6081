"""Publishing posted results at every place that is configured: right after the post, and whatever is still missing.

Comes in: an open app. Goes out: what each place took, or why it did not. Must hold: a place that is down keeps neither
the post, nor another place, nor another challenge waiting, and is simply tried again; one process at a time publishes
one challenge, by the lease of its evaluation; nothing that is there already is put again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import structlog

from clara_eval.app import App
from clara_eval.challenge.model import Address
from clara_eval.errors import ClaraError
from clara_eval.pipeline.leases import Busy, evaluation_lease, held
from clara_eval.processes import this_process
from clara_eval.publication.port import Publication
from clara_eval.publication.publish_documents import publish_documents, unpublished
from clara_eval.records.challenge_index import summaries

_log = structlog.get_logger(__name__)
AFTER_POST_SECONDS = 60.0
"""What is not out by then goes on at the next tick."""
_LEASE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one challenge at one place; `problem` is None where everything is there."""

    place: str
    address: Address
    problem: str | None = None
    is_outage: bool = False
    """Whether the place is to blame: it is not asked again in this round."""


async def publish_after_post(app: App, address: Address) -> None:
    """At every place, by whoever holds the evaluation's lease; the post stands already, so nothing is raised."""
    try:
        async with asyncio.timeout(AFTER_POST_SECONDS):
            for place in app.places:
                await _published(app, place, address)
    except TimeoutError:
        _log.warning("publication_goes_on_later", challenge=address, seconds=AFTER_POST_SECONDS)


async def publish_missing(app: App) -> AsyncIterator[Published]:
    """What is posted by us and not everywhere yet, also from before a place was configured.

    A place that failed is not asked again in this round.
    """
    if not app.places:
        return
    index = await summaries(app.store, app.chain_id)
    posted = [address for address, summary in index.items() if summary.postedBy == "evaluator"]
    async for told in _publish_all(app, await unpublished(app.store, app.places, app.chain_id, posted)):
        yield told


async def publish_named(app: App, addresses: Sequence[Address]) -> AsyncIterator[Published]:
    """The same for these challenges, whether the service knows them or not; one without a posted result is told."""
    wanted = await unpublished(app.store, app.places, app.chain_id, addresses)
    async for told in _publish_all(app, wanted):
        yield told


async def _publish_all(app: App, wanted: Sequence[tuple[Publication, str]]) -> AsyncIterator[Published]:
    down: set[str] = set()
    for place, found in wanted:
        if place.name in down:
            continue
        address = Address(found)
        lease, holder = evaluation_lease(app.chain_id, address), f"{this_process()}:{uuid.uuid4().hex}"
        try:
            async with held(app.store, lease, holder, _LEASE_SECONDS):
                told = await _published(app, place, address)
        except Busy:
            continue  # whoever evaluates it publishes it, too
        if told.problem is not None and told.is_outage:
            down.add(place.name)
        yield told


async def _published(app: App, place: Publication, address: Address) -> Published:
    is_public = app.settings.traces_public != "never"
    try:
        is_out = await publish_documents(app.store, place, app.chain_id, address, traces_public=is_public)
    except ClaraError as bad:
        _log.warning("publication_failed", challenge=address, place=place.name, problem=str(bad))
        return Published(place.name, address, str(bad), is_outage=True)
    return Published(place.name, address, None if is_out else "No result of ours is posted.")
