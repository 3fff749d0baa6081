"""Publish posted results at every configured place: after the post, and later what is missing there."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import structlog

from clara_eval.app import App, open_app
from clara_eval.challenges.challenge_index import read_document, summaries
from clara_eval.challenges.status import shown_to_all
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError, ConfigError, NotFound, Temporary
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import EvalStatus, read
from clara_eval.documents.store_keys import features_key, scores_key, status_key
from clara_eval.store.leases import Busy, evaluation_lease, held
from clara_eval.store.publication.publish_documents import (
    Publication,
    Refused,
    forget_published,
    publish_documents,
    unpublished,
)

_log = structlog.get_logger(__name__)
AFTER_POST_SECONDS = 60.0
"""For all places; what is not out by then goes on at the next tick."""
_LEASE_SECONDS = 30.0
LIVE_SECONDS = 30.0
"""Between two looks at a running round: at most 120 writes of its status an hour, for $0.0006 at Cloudflare."""
LIVE_PUT_SECONDS = 10.0
"""For one look: a place that hangs keeps nothing waiting for longer."""


class NotTried(Temporary):
    """The place failed for another challenge a moment ago."""


@dataclass(frozen=True, slots=True)
class Published:
    """The end of one publication; `error` is None if the place has everything."""

    place: str
    address: Address
    error: ClaraError | None = None

    @property
    def problem(self) -> str | None:
        return str(self.error) if self.error else None

    @property
    def is_outage(self) -> bool:
        """Whether the place itself failed, and is not asked again in this round."""
        return self.error is not None and not isinstance(self.error, (Refused, Busy, NotFound))


async def publish_after_post(app: App, address: Address) -> None:
    """Publish at every place; failures are logged, because the post cannot be undone."""
    for place in app.places:
        try:
            await _within(AFTER_POST_SECONDS / len(app.places), app, place, address)
        except Exception:  # noqa: BLE001 - a bug of ours does not make a failure of what is posted
            _log.exception("publication_broke", challenge=address, place=place.name)


@asynccontextmanager
async def published_live(app: App, address: Address) -> AsyncIterator[None]:
    """Show status and facts where keys are published each half minute while the body runs, until scores are posted."""
    places = [place for place in app.places if place.takes_keys]
    if not places:
        yield
        return
    shown: dict[str, dict[str, str]] = {place.name: {} for place in places}

    async def show() -> None:
        """Put what changed; a place that fails gets it the next time, and the evaluation goes on."""
        for place in places:
            try:
                async with asyncio.timeout(LIVE_PUT_SECONDS):
                    pairs = (await _live_pairs(app, address)).items() - shown[place.name].items()
                    if pairs:
                        await place.put_keys(app.chain_id, sorted(pairs))
                        shown[place.name] |= pairs
            except Exception as bad:  # noqa: BLE001 - what is shown, or a bug of ours, ends no evaluation
                _log.warning("not_shown_live", challenge=address, place=place.name, problem=repr(bad))

    async def keep_showing() -> None:
        while True:
            await asyncio.sleep(LIVE_SECONDS)
            await show()

    showing = asyncio.create_task(keep_showing())
    try:
        yield
    finally:
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing
        await show()


async def _live_pairs(app: App, address: Address) -> dict[str, str]:
    scores = await read_document(app.store, app.chain_id, scores_key(address)) or {}
    status = await read(app.store, app.chain_id, EvalStatus, status_key(address))
    if status is None or scores.get("postedBy"):
        return {}
    facts = await app.store.items(app.chain_id, features_key(address, "")) if _is_public(app) else []
    return {**dict(facts), status_key(address): plain_json(shown_to_all(status).model_dump())}


async def publish_missing(app: App, seconds: float | None = None, *, again: bool = False) -> AsyncIterator[Published]:
    """Publish what we posted and a place lacks, within so many seconds; `again` rewrites everything."""
    index = await summaries(app.store, app.chain_id) if app.places else {}
    posted = [address for address, summary in index.items() if summary.postedBy == "evaluator"]
    async for told in publish_named(app, posted, seconds, again=again):
        if not isinstance(told.error, NotFound):
            yield told


async def publish_all(
    settings: Settings, wanted: Sequence[Address], *, again: bool
) -> tuple[list[str], list[Published]]:
    """Publish these challenges, or everything of ours: the places, and how each publication ended."""
    async with open_app(settings) as app:
        if not app.places:
            raise ConfigError(
                "No place of publication is set.",
                remedy="Set CLARA_KV_ACCOUNT, _NAMESPACE and _TOKEN, or CLARA_IPFS_API.",
            )
        found = publish_named(app, wanted, again=again) if wanted else publish_missing(app, again=again)
        return [place.name for place in app.places], [one async for one in found]


async def publish_named(
    app: App, addresses: Sequence[str], seconds: float | None = None, *, again: bool = False
) -> AsyncIterator[Published]:
    """Publish these challenges, known to the service or not."""
    down: set[str] = set()
    share = seconds / len(app.places) if seconds is not None and app.places else None
    left = {place.name: share for place in app.places}
    if again:
        wanted = [(place, address) for place in app.places for address in addresses]
    else:
        wanted = await unpublished(app.store, app.places, app.chain_id, addresses, traces_public=_is_public(app))
    for place, found in wanted:
        address = Address(found)
        if place.name in down:
            yield Published(place.name, address, NotTried(f"Not tried: {place.name} does not work now."))
            continue
        lease, holder = evaluation_lease(app.chain_id, address), f"{os.getpid()}:{uuid.uuid4().hex}"
        began = time.monotonic()
        try:
            async with held(app.store, lease, holder, _LEASE_SECONDS):
                if again:
                    await forget_published(app.store, place, app.chain_id, address)
                told = await _within(left[place.name], app, place, address)
        except Busy as busy:  # the evaluation that holds the lease publishes it
            told = Published(place.name, address, busy)
        rest = left[place.name]
        left[place.name] = None if rest is None else max(0.0, rest - (time.monotonic() - began))
        if told.is_outage:
            down.add(place.name)
        yield told


async def _within(seconds: float | None, app: App, place: Publication, address: Address) -> Published:
    try:
        async with asyncio.timeout(seconds):
            is_out = await publish_documents(app.store, place, app.chain_id, address, traces_public=_is_public(app))
    except TimeoutError:
        late = Temporary(f"{place.name} did not take everything in time.", remedy="It goes on at the next tick.")
        _log.warning("publication_goes_on_later", challenge=address, place=place.name, seconds=seconds)
        return Published(place.name, address, late)
    except ClaraError as bad:
        _log.warning("publication_failed", challenge=address, place=place.name, problem=str(bad))
        return Published(place.name, address, bad)
    if is_out:
        return Published(place.name, address)
    return Published(place.name, address, NotFound(f"No result of ours is posted for {address}."))


def _is_public(app: App) -> bool:
    return app.settings.traces_public != "never"
