"""Evaluate a challenge and post its winners; a second call continues the first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from clara_eval.chain.model import Challenge
from clara_eval.chain.sender import Receipt
from clara_eval.chain.winners import MIN_SUBMISSIONS, Winners, check_scorable
from clara_eval.challenges.before_post import before_post
from clara_eval.challenges.calls import advance, post_result, read_scores, save_scores
from clara_eval.challenges.context import Options, Ports
from clara_eval.challenges.prepare import RoundCase, open_case, prepare
from clara_eval.challenges.recorded import RecordedResult, record_result, recorded_result, save_features
from clara_eval.challenges.review import AnnouncedDraft, Review
from clara_eval.challenges.status import StatusWriter
from clara_eval.core.errors import Unscorable
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.round import ruled_plan
from clara_eval.evaluation.run import evaluate_round
from clara_eval.evaluation.sources import LiveSources, left_unanswered

__all__ = ["Evaluation", "evaluate_challenge", "read_scores"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How an evaluation ended. `receipt` is None only while a review or the window for objections is waited for."""

    challenge: Challenge
    ran: EvaluationResult | None
    """None if nothing was run: the result was found on the chain, or is the recorded one."""
    digest: str | None
    receipt: Receipt | None
    review: Review | None
    draft: AnnouncedDraft | None = None  # Announced and open for objections; then `receipt` is None, too
    retry_seconds: float | None = None  # When to look again, if time alone changes something
    winners_found: Winners | None = None  # None if the result was found on the chain

    @property
    def result(self) -> EvaluationResult:
        assert self.ran is not None, "nothing was run here"
        return self.ran

    @property
    def winners(self) -> Winners:
        assert self.winners_found is not None, "the result was found on the chain"
        return self.winners_found


async def evaluate_challenge(
    challenge: Challenge, ports: Ports, options: Options, status: StatusWriter, *, is_open: bool, now: int
) -> Evaluation:
    """Evaluate a challenge that `pin_challenge` read, and post the result unless somebody is waited for."""

    async def explain(reason: str) -> None:
        await status.say(status.status.status, reason=reason)

    ports = replace(ports, sender=replace(ports.sender.with_notice(explain), is_dry=options.dry_run))
    if is_open and ports.sender.can_sign:
        # Past its deadline and still open: it is moved on to scoring before anything is paid for.
        options.sent(await advance(challenge, sender=ports.sender, results=ports.chain.results, is_seen_open=True))
        if challenge.submission_count < MIN_SUBMISSIONS:
            raise Unscorable("Fewer than two agents submitted: the contract cancelled the challenge and refunded it.")
    check_scorable(challenge)
    case = await open_case(challenge, ports, options, is_open=is_open)
    while True:
        found = await recorded_result(case) or await _run(case, status, now)
        decision = await before_post(case, found, status)
        if decision.then != "run again":
            receipt = await post_result(case, found, status) if decision.then == "post" else None
            waits = (decision.review, decision.draft, decision.retry_seconds)
            return Evaluation(challenge, found.result, found.digest, receipt, *waits, found.winners)
        now = await case.chain_now()


async def _run(case: RoundCase, status: StatusWriter, now: int) -> RecordedResult:
    prepared = await prepare(case, status, now)
    ports, options, plan = case.ports, case.options, ruled_plan(prepared.plan, prepared.rulings)
    async with ports.models.open_run(case.challenge, case.given.config, plan, options.seconds) as models:
        status.meter = models.meter
        status.expect(models.estimate_usd)
        for line in models.lines.values():
            line.admission.tell = status.tell_trouble
        sources = LiveSources(
            case.journal,
            ports.fetch,
            models,
            ports.machine,
            await left_unanswered(case.journal),
            options.gives_up,
            prepared.rulings,
            prepared.reveal,
            prepared.tries_again,
        )
        result = await evaluate_round(case.given, plan, sources, status, partial(save_features, case))
    found = await record_result(case, prepared, result)
    await save_scores(case, found)
    return found
