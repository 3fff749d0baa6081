"""Evaluate a challenge: one attempt at a time, ours alone, with a status that says how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from clara_eval.actions.attempt import EvaluationRequest, Observer, attempt
from clara_eval.actions.publication import publish_after_post
from clara_eval.app import App, open_app
from clara_eval.chain.sender import SendOutcome
from clara_eval.challenges.evaluate import Evaluation, read_scores
from clara_eval.challenges.public_documents import is_posted
from clara_eval.challenges.status import StatusWriter, gravest
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import NotFound, Temporary
from clara_eval.documents.results import EvalStatus
from clara_eval.documents.store_keys import index_key
from clara_eval.store.leases import evaluation_lease, held

__all__ = ["Evaluation", "EvaluationRequest", "Observer"]
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """How an evaluation by hand ended."""

    outcome: str
    """`review`, or how the transaction ended."""
    detail: str
    is_done: bool
    """Whether nothing is left to wait for: a person, the chain or a new attempt."""
    waits_for: tuple[str, ...]
    """What a person has to decide about."""
    scores: dict[str, object]


async def evaluate_now(
    settings: Settings,
    address: Address,
    *,
    dry_run: bool,
    restart: bool,
    schedule: str,
    max_games: int | None,
    progress: Callable[[EvalStatus], None],
) -> EvaluationReport:
    """Evaluate a challenge that a person named, and read its scores."""
    async with open_app(settings) as app:
        plan = app.plan(schedule=schedule, max_games=max_games)
        request = EvaluationRequest(
            is_named=True, plan=plan, dry_run=dry_run, restart=restart, observer=Observer(progress)
        )
        done = await evaluate(app, address, request)
        scores = await read_scores(app.store, app.chain_id, address) or {}
    return report_of(done, scores)


def report_of(done: Evaluation, scores: dict[str, object]) -> EvaluationReport:
    receipt, review = done.receipt, done.review
    waits = (review.unless_decided, *review.reasons) if review is not None and receipt is None else ()
    outcome = "review" if receipt is None else receipt.outcome.value
    is_done = receipt is not None and receipt.outcome not in {SendOutcome.REVERTED, SendOutcome.UNKNOWN}
    document = {"challenge": done.challenge.address, "status": outcome, **scores}
    return EvaluationReport(outcome, receipt.detail if receipt else "", is_done, waits, document)


async def evaluate(app: App, address: Address, request: EvaluationRequest | None = None) -> Evaluation:
    """Judge one challenge and post its winners; a second call continues the first."""
    request = request or EvaluationRequest()
    if request.is_named:
        app.sender.account.trust(address)
    else:
        await check_known(app, address)
    lease = evaluation_lease(app.chain_id, address)
    async with held(app.store, lease, request.holder, request.lease_seconds):
        status = await StatusWriter.resumed(app.store, app.chain_id, address, listener=request.observer.progress)
        try:
            done = await attempt(app, address, request, status)
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
    """Write the error as status; a store that fails too does not hide it."""
    try:
        await status.say_error(bad)
    except Temporary as away:
        _log.warning("status_not_written", problem=str(away))
