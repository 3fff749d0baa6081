"""Evaluate a challenge: one attempt at a time, within its time and budget, with a recorded status."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import structlog

from clara_eval.actions.publication import publish_after_post, publish_live
from clara_eval.app import App, Options, plan_of
from clara_eval.chain.model import Block, Challenge, ChallengeStatus, worth_micro_usd
from clara_eval.chain.sender import Intention, Receipt, SendOutcome
from clara_eval.challenges.calls import record_posted
from clara_eval.challenges.evaluate import Evaluation, evaluate_challenge
from clara_eval.challenges.status import StatusWriter, gravest, read_attempts, save_attempts
from clara_eval.challenges.venue import look_at_challenge, pin_challenge, window_of
from clara_eval.core.address import ZERO_ADDRESS, Address, to_address
from clara_eval.core.errors import CannotPublish, NotFound, NotOurs, NotYet, Temporary, Unscorable
from clara_eval.documents.results import EvalStatus, Scores, read
from clara_eval.documents.store_keys import index_key, scores_key
from clara_eval.evaluation.result import PLAN
from clara_eval.evaluation.round import EvaluationPlan, Window, all_comparisons, expected_speed, how_degraded
from clara_eval.evaluation.trace import Journal
from clara_eval.judge.costs.budgets import check_prize
from clara_eval.store.leases import evaluation_lease, held

__all__ = ["Evaluation"]
_log = structlog.get_logger(__name__)
LEASE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    is_named: bool = False  # a person named this challenge, so the factory need not list it
    plan: EvaluationPlan | None = None  # None: the plan of the settings
    dry_run: bool = False
    restart: bool = False  # discard an unfinished evaluation and start again
    progress: Callable[[EvalStatus], None] | None = None  # called at every step: callbacks must be cheap
    sent: Callable[[Receipt], None] = lambda _receipt: None
    degraded: Callable[[str], None] = lambda _how: None
    speed: float | None = None  # measured model calls per second; None: expected from the settings
    budget_seconds: float | None = None  # for the whole attempt; None: what the scoring window leaves
    holder: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}")
    lease_seconds: float = LEASE_SECONDS


async def evaluate(app: App, address: Address, request: EvaluationRequest | None = None) -> Evaluation:
    """Judge one challenge and post its winners; a second call resumes the first."""
    request = request or EvaluationRequest()
    if request.is_named:
        app.sender.account.trust(address)
    else:
        await check_known(app, address)
    shown = nullcontext() if request.dry_run else publish_live(app, address)
    async with held(app.store, evaluation_lease(app.chain_id, address), request.holder, request.lease_seconds), shown:
        status = await StatusWriter.resumed(app.store, app.chain_id, address, listener=request.progress)
        try:
            is_listed = await app.store.get(app.chain_id, index_key(address)) is not None
            was_seen = is_listed or await app.store.transactions(f"{app.chain_id}:{address}", Intention.POST_SCORES)
            evaluating = _evaluate_now(app, address, request, status)
            done = await (_missing_challenge_is_outage(address, evaluating) if was_seen else evaluating)
        except Exception as bad:
            try:
                await status.say_error(gravest(bad))
                if request.is_named:  # the service counts its own attempts
                    attempts = await read_attempts(app.store, app.chain_id, address)
                    failed = replace(attempts, failures=attempts.failures + 1)
                    await save_attempts(app.store, app.chain_id, address, failed)
            except Temporary as away:  # a failing store must not hide the first error
                _log.warning("status_not_written", problem=str(away))
            raise
        if done.receipt is not None and done.receipt.outcome in {SendOutcome.CONFIRMED, SendOutcome.ALREADY_DONE}:
            await publish_after_post(app, address)
        return done


async def check_known(app: App, address: Address) -> None:
    """Raise NotFound if neither our index nor the factory lists the challenge."""
    if await app.store.get(app.chain_id, index_key(address)) is not None:
        return
    factory = to_address(app.settings.factory)
    if not await app.chain.challenges.is_challenge_of(factory, address):
        raise NotFound(f"{address} is not a challenge of the factory {factory}.", remedy="Check the network.")


async def _evaluate_now(app: App, address: Address, request: EvaluationRequest, status: StatusWriter) -> Evaluation:
    head = await app.chain.blocks.head()
    state = await app.chain.results.scoring_state(address, head)
    if state.score_posted_at and not request.dry_run:
        challenge = await look_at_challenge(app.chain, address)
        check_ours(challenge, app.evaluator)
        return await _record_existing_post(app, challenge)
    challenge = await _read_pinned(app, address, head, state.deadline, restart=request.restart)
    check_ours(challenge, app.evaluator)
    _check_open_to_scores(address, state.status)
    worth = worth_micro_usd(challenge.token, challenge.prize_pool, app.settings.network)
    check_prize(worth, app.settings.min_prize_usd, int(time.time()))
    window = window_of(challenge).at(head.timestamp)
    plan = await _fit_plan(app, challenge, window, request)
    options = Options(app.settings, plan, window.seconds_left, window.is_nearly_over, request.dry_run, request.sent)
    seconds = window.budget_seconds if request.budget_seconds is None else request.budget_seconds
    budget = asyncio.timeout(seconds)
    try:
        async with budget:
            is_open = state.status is ChallengeStatus.OPEN
            run = evaluate_challenge(challenge, app, options, status, is_open=is_open, now=head.timestamp)
            done = await _missing_challenge_is_outage(address, run)
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


async def _read_pinned(app: App, address: Address, head: Block, deadline: int, *, restart: bool) -> Challenge:
    """Read the challenge at its pinned block; one that is not ours is refused even before its deadline."""
    if restart:
        await _check_current_state(app, address)
        await Journal(app.store, f"{app.chain_id}:{address}").forget()
    try:
        return await pin_challenge(app.chain, app.store, address, head, deadline)
    except (NotYet, NotFound) as bad:
        await _check_current_state(app, address)
        if isinstance(bad, NotYet):
            raise
        raise NotYet(f"Challenge {address} is too new for any safe block.", remedy="Try again later.") from bad


async def _check_current_state(app: App, address: Address) -> None:
    challenge = await look_at_challenge(app.chain, address)
    check_ours(challenge, app.evaluator)
    _check_open_to_scores(address, challenge.status)


async def _missing_challenge_is_outage(address: Address, evaluating: Awaitable[Evaluation]) -> Evaluation:
    """Raise Temporary if a challenge that was seen is gone from the node, as in a reorg."""
    try:
        return await evaluating
    except NotFound as lost:
        raise Temporary(
            f"The node no longer shows challenge {address}, which was there: {lost}",
            remedy="It is retried automatically.",
        ) from lost


def check_ours(challenge: Challenge, evaluator: Address) -> None:
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


def _check_open_to_scores(address: Address, status: ChallengeStatus) -> None:
    if status is ChallengeStatus.CANCELLED:
        raise Unscorable(f"Challenge {address} was cancelled and its poster refunded.")
    if status is ChallengeStatus.EXPIRED:
        raise CannotPublish(f"Challenge {address} expired without scores: every submitter may claim an equal share.")


async def _record_existing_post(app: App, challenge: Challenge) -> Evaluation:
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


async def _fit_plan(app: App, challenge: Challenge, window: Window, request: EvaluationRequest) -> EvaluationPlan:
    plan = request.plan or plan_of(app.settings)
    count, judges = challenge.submission_count, len(plan.models)
    more = window.most_comparisons(count, judges, request.speed or expected_speed(app.settings.max_concurrency))
    how = how_degraded(more, count, judges)
    if more is None or how is None:
        return plan
    # Comparisons that are already answered take no more time.
    games = more + sum(purpose == "comparison" for _, purpose, _ in await app.store.calls_of(challenge.run))
    everything = plan.max_games or all_comparisons(count, judges)
    if games >= everything:
        return plan
    recorded = await app.store.entry(challenge.run, "plan")
    is_finished = await app.store.entry(challenge.run, "digest") is not None
    if recorded is not None and not is_finished and (PLAN.read_text(recorded).max_games or everything) > games:
        await app.store.forget_entry(challenge.run, "plan")
    request.degraded(how)
    _log.warning("evaluation_degraded", how=how, games=games, seconds_left=window.seconds_left)
    return replace(plan, max_games=games)
