"""Evaluate a challenge: the one way in for the service, the command, Python and the demo.

Comes in: an open app, an address, and what whoever asks may choose. Goes out: an `Evaluation`. Whoever asks, all of it
holds: only challenges of the factory or ones that a person named; one evaluation of a challenge at a time, by a lease;
only our own; what is posted already is recognised and not evaluated again; the minimum prize; a plan that fits the time
and the money that are left; an end before the scoring deadline; a status that says how it ended.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from clara_eval.actions.publication import publish_after_post
from clara_eval.app import App
from clara_eval.chain.dollars import worth_micro_usd
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.chain.sender import Intention, Receipt, SendOutcome
from clara_eval.challenges.evaluate import Evaluation, walk_and_publish
from clara_eval.challenges.post_recorder import record_posted
from clara_eval.challenges.public_documents import is_posted
from clara_eval.challenges.read import look_at_challenge
from clara_eval.challenges.status import StatusWriter, gravest
from clara_eval.core.address import ZERO_ADDRESS, Address, to_address
from clara_eval.core.errors import (
    CannotPublish,
    NotFound,
    NotOurs,
    NotYet,
    Temporary,
    Unscorable,
)
from clara_eval.documents.results import EvalStatus, Scores, read
from clara_eval.documents.store_keys import index_key, scores_key
from clara_eval.evaluation.plan import EvaluationPlan
from clara_eval.evaluation.record import PLAN
from clara_eval.evaluation.scoring_window import (
    Speed,
    Window,
    all_comparisons,
    how_degraded,
    most_comparisons,
)
from clara_eval.evaluation.trace.journal import Journal
from clara_eval.judge.costs.caps import check_prize
from clara_eval.store.leases import evaluation_lease, held

_log = structlog.get_logger(__name__)
LEASE_SECONDS = 30.0
T = TypeVar("T")


def _this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class Observer:
    """Told what happens on the way; must be cheap."""

    progress: Callable[[EvalStatus], None] | None = None
    sent: Callable[[Receipt], None] = lambda _receipt: None
    degraded: Callable[[str], None] = lambda _how: None


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """What whoever asks may choose; everything else is the same for all."""

    is_named: bool = False
    """A person named this very challenge, so it need not be in the factory's list."""
    plan: EvaluationPlan | None = None
    """None is the plan of the settings."""
    dry_run: bool = False
    restart: bool = False
    """Discard an unfinished evaluation and start again."""
    observer: Observer = field(default_factory=Observer)
    speed: Speed | None = None
    """Calls a second as seen before; None is what the settings let expect."""
    budget_seconds: float | None = None
    """For the whole attempt; None is what the scoring window leaves."""
    holder: str = field(default_factory=_this_process)
    lease_seconds: float = LEASE_SECONDS


async def evaluate(app: App, address: Address, request: EvaluationRequest | None = None) -> Evaluation:
    """Judge one challenge and post its winners; a second call continues the first and pays for nothing twice."""
    request = request or EvaluationRequest()
    if request.is_named:
        app.sender.account.trust(address)
    else:
        await check_known(app, address)
    lease = evaluation_lease(app.chain_id, address)
    async with held(app.store, lease, request.holder, request.lease_seconds):
        status = await StatusWriter.resumed(app.store, app.chain_id, address, listener=request.observer.progress)
        try:
            done = await _evaluate(app, address, request, status)
        except Exception as bad:
            await _say_error(status, gravest(bad))
            raise
        if is_posted(done.receipt):
            await publish_after_post(app, address)
        return done


async def check_known(app: App, address: Address) -> None:
    """Refuse what neither our list nor the factory knows."""
    if await app.store.get(app.chain_id, index_key(address)) is not None:
        return
    factory = to_address(app.settings.factory)
    if not await app.chain.challenges.is_challenge_of(factory, address):
        raise NotFound(f"{address} is not a challenge of the factory {factory}.", remedy="Check the network.")


async def _say_error(status: StatusWriter, bad: BaseException) -> None:
    """The error is what counts: a store that is away as well does not hide it."""
    try:
        await status.say_error(bad)
    except Temporary as away:
        _log.warning("status_not_written", problem=str(away))


async def _evaluate(app: App, address: Address, request: EvaluationRequest, status: StatusWriter) -> Evaluation:
    was_seen = await _was_seen(app, address)
    evaluating = _evaluate_now(app, address, request, status)
    return await (_while_there(address, evaluating) if was_seen else evaluating)


async def _evaluate_now(app: App, address: Address, request: EvaluationRequest, status: StatusWriter) -> Evaluation:
    challenge = await look_at_challenge(app.chain, address)
    check_ours(challenge, app.evaluator)
    if challenge.score_posted_at and not request.dry_run:
        return await _recognised(app, challenge)
    _check_open_to_scores(challenge)
    worth = worth_micro_usd(challenge.token, challenge.prize_pool, app.settings.network)
    check_prize(worth, app.settings.min_prize_usd, int(time.time()))
    window = Window.of(challenge)
    plan = await _fitting_plan(app, challenge, window, request)
    if request.restart:
        await Journal(app.store, challenge.run).forget()
    options = app.options(
        plan,
        seconds=window.seconds_left,
        dry_run=request.dry_run,
        gives_up=window.is_nearly_over,
        sent=request.observer.sent,
    )
    seconds = window.budget_seconds if request.budget_seconds is None else request.budget_seconds
    budget = asyncio.timeout(seconds)
    try:
        async with budget:
            done = await _while_there(address, walk_and_publish(address, app.ports, options, status))
    except TimeoutError:
        if not budget.expired():
            raise
        raise Temporary(
            f"The evaluation did not end within its {seconds:.0f} s.", remedy="It continues where it stopped."
        ) from None
    except Temporary as outage:
        if window.is_over:
            raise CannotPublish(
                f"The scoring deadline has passed, and the evaluation cannot end: {outage}",
                remedy="The poster may post scores until somebody expires the challenge.",
            ) from outage
        outage.longest_pause_seconds = window.longest_pause_seconds
        raise
    if done.receipt is not None and done.receipt.outcome is SendOutcome.ALREADY_DONE:
        await record_posted(app.store, app.chain.results, await look_at_challenge(app.chain, address))
    return done


async def _was_seen(app: App, address: Address) -> bool:
    """Whether it is listed, or something was sent about it: then it was there, and so was its factory."""
    run = f"{app.chain_id}:{address}"
    return await app.store.get(app.chain_id, index_key(address)) is not None or bool(
        await app.store.transactions(run, Intention.POST_SCORES)
    )


async def _while_there(address: Address, part: Awaitable[T]) -> T:
    """A challenge that was seen does not vanish: a node that lost it, as in the middle of a reorg, is an outage."""
    try:
        return await part
    except NotFound as lost:
        raise Temporary(
            f"The node no longer shows challenge {address}, which was there: {lost}",
            remedy="It is tried again by itself.",
        ) from lost


def check_ours(challenge: Challenge, evaluator: Address) -> None:
    """Refuse what somebody else has to judge."""
    if challenge.evaluator == ZERO_ADDRESS:
        raise NotOurs(
            f"Challenge {challenge.address} has no evaluator: its poster scores it.",
            remedy="Nothing is to be done here.",
        )
    if challenge.evaluator != evaluator:
        raise NotOurs(
            f"The evaluator of {challenge.address} is {challenge.evaluator}, not {evaluator}.",
            remedy="Check CLARA_EVALUATOR_KEY or CLARA_EVALUATOR_ADDRESS and the network.",
        )


def _check_open_to_scores(challenge: Challenge) -> None:
    """Nothing is paid for a contract that takes no scores any more."""
    if challenge.status is ChallengeStatus.CANCELLED:
        raise Unscorable(f"Challenge {challenge.address} was cancelled and its poster refunded.")
    if challenge.status is ChallengeStatus.EXPIRED:
        raise CannotPublish(
            f"Challenge {challenge.address} expired without scores: every submitter may claim an equal share."
        )


async def _recognised(app: App, challenge: Challenge) -> Evaluation:
    """Posted already, by us before a crash or by somebody else: written down, not evaluated again."""
    posted = await record_posted(app.store, app.chain.results, challenge)
    if posted is None:
        raise NotYet(f"Scores of {challenge.address} are posted, but no node shows the transaction deep enough yet.")
    scores = await read(app.store, app.chain_id, Scores, scores_key(challenge.address))
    receipt = Receipt(
        SendOutcome.ALREADY_DONE,
        Intention.POST_SCORES,
        "0x" + posted.calldata.hex(),
        tx_hash=posted.tx_hash,
        block_number=posted.block_number,
        posted_by=posted.by,
        detail=f"Scores were already posted, by the {posted.by} ({posted.sender}).",
    )
    return Evaluation(challenge, None, scores.traceDigest if scores else None, receipt, None)


async def _fitting_plan(app: App, challenge: Challenge, window: Window, request: EvaluationRequest) -> EvaluationPlan:
    """The plan that fits the time left; a recorded one that no longer fits is made anew, with fewer games."""
    plan = request.plan or app.plan()
    speed = request.speed or Speed.expected(app.settings.max_concurrency)
    count, judges = challenge.submission_count, len(plan.models)
    more = most_comparisons(window, count, judges, speed)
    how = how_degraded(more, count, judges)
    if more is None or how is None:
        return plan
    # What is paid for already costs no more time.
    games = more + sum([paid.purpose == "comparison" async for paid in app.store.answers_of(challenge.run)])
    everything = plan.max_games or all_comparisons(count, judges)
    if games >= everything:
        return plan
    await _forget_larger_plan(app, challenge.run, games, everything)
    request.observer.degraded(how)
    _log.warning("evaluation_degraded", how=how, games=games, seconds_left=window.seconds_left)
    return replace(plan, max_games=games)


async def _forget_larger_plan(app: App, run: str, games: int, everything: int) -> None:
    recorded = await app.store.entry(run, "plan")
    is_finished = await app.store.entry(run, "digest") is not None
    if recorded is None or is_finished:
        return
    if (PLAN.read_text(recorded).max_games or everything) > games:
        await app.store.forget_entry(run, "plan")
