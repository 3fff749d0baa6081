"""Publish posted results at every place, and give feedback on agents once, within a gas budget."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field

import structlog
from pydantic import TypeAdapter

from clara_eval.app import App, open_app, reputation_registry
from clara_eval.chain.account import ContractRefused, estimate_gas
from clara_eval.chain.model import ChallengeStatus
from clara_eval.chain.sender import Receipt, SendOutcome
from clara_eval.challenges.calls import EarnedFeedback, give_feedback
from clara_eval.challenges.challenge_index import inline_metadata, read_document, skills_in, summaries
from clara_eval.challenges.status import shown_to_all
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, ClaraError, ConfigError, NotFound, Temporary
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import EvalStatus, Scores, read
from clara_eval.documents.store_keys import features_key, scores_key, status_key
from clara_eval.store.leases import Busy, evaluation_lease, held
from clara_eval.store.publication.publish_documents import (
    Publication,
    Refused,
    forget_published,
    publish_documents,
    trace_uri,
    unpublished,
)
from clara_eval.store.trace_archive import archived_trace, trace_keccak

_log = structlog.get_logger(__name__)
AFTER_POST_SECONDS = 60.0  # for all places together; the rest is published at the next tick
_LEASE_SECONDS = 30.0
LIVE_SECONDS = 30.0  # interval of live updates: at most 120 status writes per hour, $0.0006 at Cloudflare
LIVE_PUT_SECONDS = 10.0  # timeout of one live update at one place
FEEDBACK_PREFIX = "feedback:"  # of the store keys of feedback plans, before the challenge's address
MAX_REFUSALS = 3  # per agent: a call that passes the dry run and reverts in a block costs gas each time


class NotTried(Temporary):
    """The place failed for another challenge a moment ago."""


@dataclass(frozen=True, slots=True)
class Published:
    """How one publication ended; `error` is None if the place has everything."""

    place: str
    address: Address
    error: ClaraError | None = None

    @property
    def problem(self) -> str | None:
        return str(self.error) if self.error else None

    @property
    def is_outage(self) -> bool:
        """Return whether the place itself failed, so that it is not tried again in this round."""
        return self.error is not None and not isinstance(self.error, (Refused, Busy, NotFound))


async def publish_after_post(app: App, address: Address) -> None:
    """Publish at every place; failures are only logged, because the post cannot be undone."""
    for place in app.places:
        try:
            await _publish_within(AFTER_POST_SECONDS / len(app.places), app, place, address)
        except Exception:  # noqa: BLE001 - the post succeeded, and a bug here must not fail it
            _log.exception("publication_broke", challenge=address, place=place.name)


@asynccontextmanager
async def publish_live(app: App, address: Address) -> AsyncIterator[None]:
    """Publish status and facts every `LIVE_SECONDS` while the body runs, until scores are posted."""
    places = [place for place in app.places if place.takes_keys]
    if not places:
        yield
        return
    shown: dict[str, dict[str, str]] = {place.name: {} for place in places}

    async def show() -> None:
        for place in places:
            try:
                async with asyncio.timeout(LIVE_PUT_SECONDS):
                    pairs = (await _live_pairs(app, address)).items() - shown[place.name].items()
                    if pairs:
                        await place.put_keys(app.chain_id, sorted(pairs))
                        shown[place.name] |= pairs
            except Exception as bad:  # noqa: BLE001 - a failed live update must not end the evaluation
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


async def publish_missing(
    app: App, seconds: float | None = None, *, only: Sequence[str] = (), again: bool = False
) -> AsyncIterator[Published]:
    """Publish what we posted and a place lacks; `only` names challenges, known to the service or not.

    `seconds` is for all places, in equal shares; `again` rewrites everything.
    """
    index = await summaries(app.store, app.chain_id) if app.places and not only else {}
    addresses = only or [address for address, summary in index.items() if summary.postedBy == "evaluator"]
    down, ends = set[str](), dict[str, float]()
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
        end = ends.setdefault(place.name, time.monotonic() + (seconds or 0.0) / len(app.places))
        try:
            async with held(app.store, lease, holder, _LEASE_SECONDS):
                if again:
                    await forget_published(app.store, place, app.chain_id, address)
                left = None if seconds is None else max(0.0, end - time.monotonic())
                result = await _publish_within(left, app, place, address)
        except Busy as busy:  # the evaluation that holds the lease publishes it
            result = Published(place.name, address, busy)
        if result.is_outage:
            down.add(place.name)
        if only or not isinstance(result.error, NotFound):
            yield result


async def publish_all(
    settings: Settings, wanted: Sequence[Address], *, again: bool
) -> tuple[list[str], list[Published]]:
    """Publish these challenges, or all of ours; return the places and how each publication ended."""
    async with open_app(settings) as app:
        if not app.places:
            raise ConfigError(
                "No place of publication is set.",
                remedy="Set CLARA_KV_ACCOUNT, _NAMESPACE and _TOKEN, or CLARA_IPFS_API.",
            )
        found = [one async for one in publish_missing(app, only=wanted, again=again)]
        return [place.name for place in app.places], found


async def _publish_within(seconds: float | None, app: App, place: Publication, address: Address) -> Published:
    try:
        async with asyncio.timeout(seconds):
            is_done = await publish_documents(app.store, place, app.chain_id, address, traces_public=_is_public(app))
    except TimeoutError:
        late = Temporary(f"{place.name} did not take everything in time.", remedy="It is tried again at the next tick.")
        _log.warning("publication_goes_on_later", challenge=address, place=place.name, seconds=seconds)
        return Published(place.name, address, late)
    except ClaraError as bad:
        _log.warning("publication_failed", challenge=address, place=place.name, problem=str(bad))
        return Published(place.name, address, bad)
    if is_done:
        return Published(place.name, address)
    return Published(place.name, address, NotFound(f"No result of ours is posted for {address}."))


def _is_public(app: App) -> bool:
    return app.settings.traces_public != "never"


@dataclass(slots=True)
class FeedbackPlan:
    planned: list[EarnedFeedback]
    skipped: list[int]  # agents that the evaluator owns or acts for, or that are gone
    given: dict[str, str | None]  # by agent, the transaction
    refused: dict[str, int] = field(default_factory=dict)  # by agent, how often the registry refused
    last_block: int = 0  # the latest block with feedback of this plan
    is_settled: bool = False  # the safe block has all of it: no reorg can remove it

    @property
    def left(self) -> list[EarnedFeedback]:
        return [one for one in self.wanted if str(one.agent_id) not in self.given]

    @property
    def wanted(self) -> list[EarnedFeedback]:
        """Return all but those that the registry refused too often."""
        return [one for one in self.planned if self.refused.get(str(one.agent_id), 0) < MAX_REFUSALS]

    def refuse(self, agent: str, problem: str) -> None:
        _log.warning("feedback_refused", agent=agent, problem=problem)
        self.refused[agent] = self.refused.get(agent, 0) + 1

    @property
    def text(self) -> str:
        rows = [{**asdict(one), "agent_id": str(one.agent_id)} for one in self.planned]
        return plain_json({**asdict(self), "planned": rows, "isDone": self.is_settled and not self.left})


_PLAN = TypeAdapter(FeedbackPlan)


async def give_missing_feedback(app: App) -> AsyncIterator[Receipt]:
    """Give the feedback that our final challenges lack, oldest first, within one tick's gas."""
    registry = reputation_registry(app.settings)
    if registry is None or not app.sender.can_sign:
        return
    gas = app.settings.reputation_gas
    rows = await app.store.items(app.chain_id, FEEDBACK_PREFIX)
    done = {key.removeprefix(FEEDBACK_PREFIX) for key, text in rows if json.loads(text)["isDone"]}
    final = [
        (summary.scorePostedAt or 0, address)
        for address, summary in (await summaries(app.store, app.chain_id)).items()
        if summary.chainStatus == "finalized" and summary.postedBy == "evaluator" and address not in done
    ]
    for _, address in sorted(final):
        plan = await _read_or_make_plan(app, registry, address)
        if plan is None:
            continue
        await _settle(app, address, plan)
        for earned in plan.left:
            agent = str(earned.agent_id)
            try:
                used = await estimate_gas(app.chain, earned.call(), app.sender.address)
                if gas < used <= app.settings.reputation_gas:
                    _log.info("feedback_goes_on_later", challenge=address, left=len(plan.left))
                    return
                if used > app.settings.reputation_gas:
                    plan.refuse(agent, f"It would use {used} gas, more than CLARA_REPUTATION_GAS allows a tick.")
                else:
                    gas -= used
                    yield await _give(app, earned, plan)
            except ContractRefused as bad:
                plan.refuse(agent, str(bad))
            await app.store.put(app.chain_id, FEEDBACK_PREFIX + address, plan.text)


async def _give(app: App, earned: EarnedFeedback, plan: FeedbackPlan) -> Receipt:
    agent = str(earned.agent_id)
    receipt = await give_feedback(earned, sender=app.sender)
    if receipt.outcome in (SendOutcome.CONFIRMED, SendOutcome.ALREADY_DONE):
        plan.given[agent] = receipt.tx_hash
        plan.last_block, plan.is_settled = max(plan.last_block, receipt.block_number or 0), False
    elif receipt.outcome is SendOutcome.REVERTED:
        plan.refuse(agent, "It was mined and reverted.")
    return receipt


async def _settle(app: App, address: Address, plan: FeedbackPlan) -> None:
    """Check feedback once the safe block has it; what a reorg removed will be given again."""
    if plan.is_settled or plan.left or (await app.chain.blocks.safe_block()).number < plan.last_block:
        return
    for earned in plan.wanted:
        found = await app.chain.agents.feedback_since(
            earned.registry, earned.agent_id, app.sender.address, earned.posted_at
        )
        if not any(one.endpoint == earned.endpoint for one in found):
            _log.warning("feedback_gone", agent=earned.agent_id, challenge=address)
            del plan.given[str(earned.agent_id)]
    plan.is_settled = not plan.left
    await app.store.put(app.chain_id, FEEDBACK_PREFIX + address, plan.text)


async def _read_or_make_plan(app: App, registry: Address, address: Address) -> FeedbackPlan | None:
    """Return the stored plan, else make and store it; None while the result is not final."""
    text = await app.store.get(app.chain_id, FEEDBACK_PREFIX + address)
    if text is not None:
        return _PLAN.validate_json(text)
    safe = await app.chain.blocks.safe_block()
    challenge = (await app.chain.challenges.challenges_at([address], safe))[0]
    scores = await read(app.store, app.chain_id, Scores, scores_key(address))
    archived = await archived_trace(app.store, app.chain_id, address)
    if challenge.status is not ChallengeStatus.FINALIZED or scores is None:
        return None
    if archived is None or scores.traceDigest != archived.digest or scores.postedBy != "evaluator":
        plan = FeedbackPlan([], [], {})  # this store does not have the posted trace, to which feedback points
    else:
        if await app.chain.agents.reputation(registry).one(safe, "getIdentityRegistry") != challenge.identity_registry:
            raise BadInput(
                f"The registry of feedback {registry} is about other agents than those of {address}.",
                remedy="Check CLARA_REPUTATION_REGISTRY.",
            )
        paid = {winner.account for winner in scores.winners}
        best: dict[int, int] = {}
        for row in scores.rankings:
            is_meant = row.status == "ranked" and (app.settings.reputation != "winners" or row.address in paid)
            if is_meant and row.agentId is not None and row.score is not None:
                best.setdefault(row.agentId, row.score)
        identity = app.chain.agents.identity(challenge.identity_registry)
        asked = [identity.view("isAuthorizedOrOwner", app.sender.address, agent) for agent in best]
        are_ours = await identity.each(safe, asked)
        skipped = [agent for agent, is_ours in zip(best, are_ours, strict=True) if is_ours is not False]
        uri = await trace_uri(app.store, app.chain_id, address, archived.digest) or ""
        place = (uri, await trace_keccak(app.store, app.chain_id, address))
        skill = next(iter(skills_in(inline_metadata(challenge.challenge_uri))), "")
        where = f"eip155:{app.chain_id}:{address}"
        planned = [
            EarnedFeedback(challenge.run, registry, agent, score, skill, where, *place, challenge.score_posted_at)
            for agent, score in best.items()
            if agent not in skipped
        ]
        plan = FeedbackPlan(planned, skipped, {})
    await app.store.put(app.chain_id, FEEDBACK_PREFIX + address, plan.text)
    return plan
