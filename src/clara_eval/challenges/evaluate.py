"""Evaluate a challenge and post its winners; a repeated call continues the first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from clara_eval.chain.model import MIN_SUBMISSIONS, Challenge, Winners, check_scorable
from clara_eval.chain.sender import Receipt, SendOutcome
from clara_eval.challenges import review as reviews
from clara_eval.challenges.calls import advance, post_result, save_scores
from clara_eval.challenges.context import Options, Ports
from clara_eval.challenges.prepare import RoundCase, open_case, prepare
from clara_eval.challenges.public_documents import calibrations, prize_usd
from clara_eval.challenges.recorded import RecordedResult, record_result, recorded_result, save_features
from clara_eval.challenges.status import StatusWriter
from clara_eval.core.errors import NeedsReview, Unscorable
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.review_rules import ReviewTerms, default_moment, place, review_reasons
from clara_eval.evaluation.round import CLOCK, rule_by_clock, ruled_plan
from clara_eval.evaluation.run import evaluate_round
from clara_eval.evaluation.sources import UNANSWERED, LiveSources
from clara_eval.judge.calibration_gate import why_not_alone


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The end of an evaluation; `receipt` is None only during a review or the window for objections."""

    challenge: Challenge
    ran: EvaluationResult | None  # None if the result was found on the chain or in the archive
    digest: str | None
    receipt: Receipt | None
    review: reviews.Review | None
    draft: reviews.AnnouncedDraft | None = None  # Announced and open for objections; then `receipt` is None, too
    retry_seconds: float | None = None  # When to evaluate again, if time alone changes something
    winners_found: Winners | None = None  # None if the result was found on the chain

    @property
    def result(self) -> EvaluationResult:
        assert self.ran is not None, "nothing was run here"
        return self.ran

    @property
    def winners(self) -> Winners:
        assert self.winners_found is not None, "the result was found on the chain"
        return self.winners_found

    @property
    def outcome(self) -> str:
        """The outcome of the transaction; `review` without one."""
        return self.receipt.outcome.value if self.receipt else "review"

    @property
    def is_done(self) -> bool:
        """Whether neither a person, the chain nor a new attempt is waited for."""
        return self.outcome not in {"review", SendOutcome.REVERTED.value, SendOutcome.UNKNOWN.value}


@dataclass(frozen=True, slots=True)
class PostDecision:
    then: Literal["post", "wait", "run again"]
    review: reviews.Review | None = None
    draft: reviews.AnnouncedDraft | None = None
    retry_seconds: float | None = None


async def evaluate_challenge(
    challenge: Challenge, ports: Ports, options: Options, status: StatusWriter, *, is_open: bool, now: int
) -> Evaluation:
    """Evaluate a challenge from `pin_challenge`, and post the result unless a review or objections wait."""

    async def explain(reason: str) -> None:
        await status.say(status.status.status, reason=reason)

    sender = replace(ports.sender, notices=[*ports.sender.notices, explain], is_dry=options.dry_run)
    ports = replace(ports, sender=sender)
    if is_open and sender.can_sign:
        # Past its deadline and still open: move it on to scoring before anything is paid for.
        options.sent(await advance(challenge, sender=ports.sender, is_seen_open=True))
        if challenge.submission_count < MIN_SUBMISSIONS:
            raise Unscorable("Fewer than two agents submitted: the contract cancelled the challenge and refunded it.")
    check_scorable(challenge)
    case = await open_case(challenge, ports, options, is_open=is_open)
    while True:
        found = await recorded_result(case) or await _run(case, status, now)
        decision = await before_post(case, found, status)
        if decision.then != "run again":
            receipt = await post_result(case, found, status) if decision.then == "post" else None
            waiting = (decision.review, decision.draft, decision.retry_seconds)
            return Evaluation(challenge, found.result, found.digest, receipt, *waiting, found.winners)
        now = await case.chain_now()


async def _run(case: RoundCase, status: StatusWriter, now: int) -> RecordedResult:
    prepared = await prepare(case, status, now)
    ports, options, plan = case.ports, case.options, ruled_plan(prepared.plan, prepared.rulings)
    async with ports.models.open_run(case.challenge, case.given.config, plan, options.seconds) as models:
        status.meter = models.meter
        status.note(estimateUsd=models.estimate_usd)
        for line in models.lines.values():
            line.llm.on_outage = status.tell_trouble
        unanswered = await case.journal.saved("unanswered", UNANSWERED) or {}
        settled = (prepared.rulings, prepared.reveal, prepared.tries_again)
        sources = LiveSources(case.journal, ports.fetch, models, ports.machine, unanswered, options.gives_up, *settled)
        result = await evaluate_round(case.given, plan, sources, status, partial(save_features, case))
    found = await record_result(case, prepared, result)
    await save_scores(case, found)
    return found


async def before_post(case: RoundCase, found: RecordedResult, status: StatusWriter) -> PostDecision:
    """Decide whether this result is posted now; "run again" means that its evidence has changed."""
    review = found.review if found.result is None else await _review(case, found, found.result)
    if case.options.dry_run:
        return PostDecision("post", review)
    if review is not None and review.state != "approved":
        return await _wait_for_review(case, found, review, status)
    can_object = case.options.settings.objection_window and found.disputed is None
    return (await _await_objections(case, found, status) if can_object else None) or PostDecision("post", review)


async def _wait_for_review(
    case: RoundCase, found: RecordedResult, review: reviews.Review, status: StatusWriter
) -> PostDecision:
    """Wait for a reviewer; after `posts_at` apply the default ruling and run the round again."""
    now = await case.chain_now()
    if review.posts_at is not None and now >= review.posts_at:
        await case.journal.drop("digest")
        await rule_by_clock(case.journal, review.digest, review.posts_at)
        lapsed = replace(review, state="lapsed", decided_at=review.posts_at, by=CLOCK)
        await reviews.save_review(case.ports.store, case.challenge.chain_id, lapsed)
        return PostDecision("run again")
    await status.say("review", 90, reason=review.waits_for, postsAt=review.posts_at)
    waits = [] if review.posts_at is None else [float(review.posts_at - now)]
    if found.tries_again and found.result and any(one.is_outage for one in found.result.rejected):
        waits.append(case.window.recheck_seconds)
    return PostDecision("wait", review, retry_seconds=min(waits, default=None))


async def _review(case: RoundCase, found: RecordedResult, result: EvaluationResult) -> reviews.Review | None:
    """Request a review if there is a reason for one; None without a reason."""
    challenge, disputed, earlier = case.challenge, found.disputed, found.review
    if earlier is not None and earlier.state == "rejected":
        raise NeedsReview(f"The result was rejected in review: {earlier.note or 'no note'}.")
    is_due = disputed is not None and case.window.at(await case.chain_now()).must_post
    reasons = review_reasons(result.flags, result.rulings, await _terms(case, result, None if is_due else disputed))
    if not reasons or (is_due and disputed is not None and disputed.changes_nothing(result)):
        return None  # a draft is announced only after its approval, which an objection does not undo
    if earlier is not None and earlier.state != "waiting":
        return earlier
    since = earlier.requested_at if earlier is not None else await case.chain_now()
    posts_at = default_moment(case.window, [reason.code for reason in reasons], since) if result.ranking else None
    then = "it is posted as it is ranked"
    if behind := result.behind_by_default:
        named = ", ".join(f"{account} ({code})" for account, code in sorted(behind.items()))
        paid = [one.account for one in place(result.ranking, result.rejected, behind, by_default=True)]
        then = f"{named} gives way, and {', '.join(paid[: result.given.winner_count])} are paid"
    sentences, default = tuple(reason.sentence for reason in reasons), "" if posts_at is None else then
    review = reviews.Review(challenge.address, found.digest, "waiting", sentences, since, posts_at=posts_at)
    review = replace(review, default=default, scoring_deadline=challenge.scoring_deadline)
    return await reviews.save_review(case.ports.store, challenge.chain_id, review)


async def _terms(case: RoundCase, result: EvaluationResult, disputed: reviews.Disputed | None) -> ReviewTerms:
    settings, judges = case.options.settings, await calibrations(case, result)
    mode, floor = settings.calibration, settings.calibration_floor
    chance = result.ranking.margin.probability if result.ranking else 1.0
    uncalibrated = why_not_alone(list(judges), judges.values(), mode, floor, chance)
    raised_now = disputed.raised if disputed is not None and disputed.needs_person else ()
    objections = tuple(f"{one.submitter} objects ({one.about}): {one.reason}" for one in raised_now)
    share = result.ranking.misallocation if result.ranking else 0.0
    doubt = (share, settings.review_doubt_usd, settings.review_doubt_share)
    return ReviewTerms(prize_usd(case), settings.review_above_usd, *doubt, uncalibrated, objections)


async def _await_objections(case: RoundCase, found: RecordedResult, status: StatusWriter) -> PostDecision | None:
    """Announce the result, wait for the end of the window for objections, and reopen disputed steps."""
    now = await case.chain_now()
    store, window, seconds = case.ports.store, case.window.at(now), case.options.settings.objection_window
    draft = await reviews.announce(store, window, case.challenge, found.digest, found.result, seconds)
    if now < draft.until:
        text = "The result is announced; its submitters may object before it is posted."
        await status.say("publishing", 91, reason=text, objectionsUntil=draft.until)
        return PostDecision("wait", draft=draft, retry_seconds=float(draft.until - now))
    objections = await reviews.read_objections(case.journal, draft.digest)
    if not objections:
        return None
    judge = case.options.settings.objection_judge or None
    await reviews.reopen(reviews.Disputed(draft.digest, draft.until, draft.places, objections, judge), case.journal)
    return PostDecision("run again")
