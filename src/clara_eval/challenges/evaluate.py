"""The corridor: one challenge from its pinned block to posted winners. A second call continues the first.

In: an address, the ports to the outside, options, and the writer of its status. Out: an `Evaluation` with a named end.
What the world said is journaled before it is used, so a restart asks and pays for nothing twice. Nothing is posted that
was not recorded, checked and, where doubt is left, approved by a person. Doors come in through `use_cases.evaluate`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from clara_eval.chain.calldata import post_scores_calldata
from clara_eval.chain.dollars import worth_micro_usd
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.chain.sender import Intention, Receipt, SendOutcome, TransactionSender
from clara_eval.chain.transaction import StoredTransaction, read_signed
from clara_eval.chain.winners import check_scorable
from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.guard import check_call
from clara_eval.challenges.keeper import advance
from clara_eval.challenges.post import publish
from clara_eval.challenges.public_documents import is_posted, plots_document, public_keys, scores_document
from clara_eval.challenges.read import read_challenge
from clara_eval.challenges.review import (
    Review,
    approvals_of,
    lapse,
    read_review,
    request_review,
)
from clara_eval.challenges.status import StatusWriter, review_meaning
from clara_eval.config.eval_config import EvalConfig, read_metadata
from clara_eval.config.networks import Network
from clara_eval.core.address import Address
from clara_eval.core.errors import Disagrees, NeedsReview, NotFound, Unscorable
from clara_eval.core.hashing import plain_json
from clara_eval.documents.store_keys import draft_key, plots_key, scores_key
from clara_eval.evaluation.harness import WITHHELD, pinned_reveal
from clara_eval.evaluation.objections import (
    DISPUTED,
    DISPUTED_FORM,
    DRAFT_FORM,
    AnnouncedDraft,
    Disputed,
    DraftPlace,
    must_post,
    raised,
    read_disputed,
    rulings_of,
    window_end,
)
from clara_eval.evaluation.plan import EvaluationPlan
from clara_eval.evaluation.record import CHALLENGE, PLAN, entries
from clara_eval.evaluation.review_defaults import (
    CALIBRATION,
    DOUBT,
    OBJECTION,
    PRIZE,
    decided_until,
    default_moment,
    place,
)
from clara_eval.evaluation.ruled import RuledComparisons
from clara_eval.evaluation.rulings import is_by_default, read_rulings, rule_by_clock, ruled_plan
from clara_eval.evaluation.run import EvaluationResult, walk
from clara_eval.evaluation.scoring_window import Window
from clara_eval.evaluation.sources import (
    LiveSources,
    ModelSource,
    any_missed,
    close_unanswered,
    journal_metadata,
    left_unanswered,
)
from clara_eval.evaluation.trace.journal import Journal
from clara_eval.harness import Machine
from clara_eval.judge.calibration.gate import (
    FLOOR,
    Mode,
    known,
    prompt_hash,
    why_not_alone,
)
from clara_eval.judge.calibration.labels import work_hash
from clara_eval.ranking import Ranking
from clara_eval.store.ports import Store
from clara_eval.store.trace_archive import drafted, keep_result, save_trace
from clara_eval.submissions import Fetch, SubmissionLimits

ANNOUNCED = "The result is announced; its submitters may object before it is posted."
AT_ONCE = 2000
"""Public keys in one write; a round of many games has more than memory should hold."""
SUPERSEDED = "superseded"
"""The journal's entry with the calldata that was signed about a block that is gone."""
ChainOfRecord = EthereumChain


class Models(Protocol):
    """Opens the models for one run: behind the answer book, within the run's budget and time."""

    def affordable(self, challenge: Challenge, config: EvalConfig, plan: EvaluationPlan) -> EvaluationPlan:
        """The plan with the limits of answers, and no more games than the budget of one challenge allows."""
        ...

    def open_run(
        self, challenge: Challenge, config: EvalConfig, plan: EvaluationPlan, seconds: float
    ) -> AbstractAsyncContextManager[MeteredModels]: ...


class MeteredModels(ModelSource, Protocol):
    def meter(self) -> tuple[int, float]:
        """Calls made and dollars spent so far."""
        ...

    @property
    def estimate_usd(self) -> float | None:
        """What the run is expected to cost; None where a price is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    chain: EthereumChain
    fetch: Fetch
    store: Store
    sender: TransactionSender
    models: Models
    machine: Machine = field(default_factory=Machine)
    """Where submissions are run."""


@dataclass(frozen=True, slots=True)
class Options:
    network: Network
    plan: EvaluationPlan
    seconds: float
    """How long the models may take."""
    review_above_usd: float | None = 1000.0
    review_doubt_usd: float | None = 50.0
    review_doubt_share: float = 0.2
    calibration: Mode = "known"
    calibration_floor: float = FLOOR
    objection_window: int = 0
    """Seconds between the announcement of a result and its post; 0 is none."""
    objection_judge: str = ""
    gives_up: bool = False
    """The scoring window is nearly over: what cannot be read now gets its verdict, and a person looks at it."""
    dry_run: bool = False
    retry_after_seconds: tuple[float, ...] = SubmissionLimits().retry_after_seconds
    """Waits between attempts to fetch a submission; what is accepted never depends on them."""
    sent: Callable[[Receipt], None] = lambda _receipt: None
    """Told of every transaction."""
    now: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How it ended. `receipt` is None only while a review or the window for objections is waited for."""

    challenge: Challenge
    walked: EvaluationResult | None
    """None where the result was found on the chain and nothing was walked here."""
    digest: str | None
    receipt: Receipt | None
    review: Review | None
    draft: AnnouncedDraft | None = None
    """Announced and open for objections; then `receipt` is None, too."""
    retry_seconds: float | None = None
    """When to look again, where time alone changes something."""

    @property
    def walk(self) -> EvaluationResult:
        if self.walked is None:
            raise NotFound(
                f"The result of {self.challenge.address} was found on the chain; nothing was walked here.",
                remedy="Read the scores, or evaluate it again as a dry run.",
            )
        return self.walked


async def walk_and_publish(address: Address, ports: Ports, options: Options, status: StatusWriter) -> Evaluation:
    """Walk one challenge through every room and publish the result; the status tells how far it came."""
    journal = Journal(ports.store, f"{options.network.chain_id}:{address}")
    ports = replace(ports, sender=ports.sender.with_notice(status.explain))
    challenge = await _pinned(address, ports, journal)
    await _advance(challenge, ports, options)
    check_scorable(challenge)
    config = read_metadata(await journal_metadata(journal, ports.fetch, challenge), challenge.eval_config_hash).config
    reveal = await pinned_reveal(journal, ports.store, challenge, config, (await ports.chain.blocks.head()).timestamp)
    status.warn(WITHHELD if reveal is not None and reveal.is_withheld else None)

    async def affordable() -> EvaluationPlan:
        return ports.models.affordable(challenge, config, options.plan)

    plan = await journal.once("plan", PLAN, affordable)
    disputed = await _disputed(challenge, journal, ports)
    ruled = await read_rulings(ports.store, journal.run)
    rulings = (*ruled, *rulings_of(disputed))
    tries_again = not is_by_default(ruled) and await _may_change(challenge, journal, ports)
    if tries_again and await any_missed(ports.store, journal.run):
        # An entry that can be read now changes the result; the earlier one was never signed or approved.
        await ports.store.forget_entry(journal.run, "digest")
    async with ports.models.open_run(challenge, config, ruled_plan(plan, rulings), options.seconds) as models:
        status.meter = models.meter
        status.expect(models.estimate_usd)
        unanswered = await left_unanswered(ports.store, journal.run)
        retries = options.retry_after_seconds
        sources = LiveSources(
            journal, ports.fetch, models, retries, unanswered, options.gives_up, rulings, reveal, ports.machine,
            disputed, tries_again,
        )  # fmt: skip
        walked = await walk(challenge, plan, sources, status)
    digest = await _file(challenge, plan, walked, ports, journal)
    await _save_scores(challenge, walked, digest, None, ports)
    review = await _review(challenge, walked, digest, ports, options)
    if review is not None and review.state != "approved" and not options.dry_run:
        now = (await ports.chain.blocks.head()).timestamp
        if review.posts_at is not None and now >= review.posts_at:
            await _post_default(review, challenge.chain_id, journal, ports)
            return await walk_and_publish(address, ports, options, status)
        await status.say("review", 90, reason=review_meaning(review.posts_at), posts_at=review.posts_at)
        is_missing = tries_again and any(one.is_outage for one in walked.rejected)
        waits = [float(review.posts_at - now)] if review.posts_at is not None else []
        waits += [Window.of(challenge).recheck_seconds] if is_missing else []
        return Evaluation(challenge, walked, digest, None, review, retry_seconds=min(waits, default=None))
    if options.objection_window and disputed is None and not options.dry_run:
        draft, now = await _announced(challenge, walked, digest, ports, options)
        if now < draft.until:
            await status.say("publishing", 91, reason=ANNOUNCED, objections_until=draft.until)
            return Evaluation(challenge, walked, digest, None, None, draft, float(draft.until - now))
        if await _dispute(draft, journal, ports, options):
            return await walk_and_publish(address, ports, options, status)
    await status.say("publishing", 92)
    receipt = await _publish(challenge, walked, digest, ports, options)
    options.sent(receipt)
    await _save_scores(challenge, walked, digest, receipt, ports)
    await _say_outcome(status, receipt)
    return Evaluation(challenge, walked, digest, receipt, review)


async def _pinned(address: Address, ports: Ports, journal: Journal) -> Challenge:
    """The challenge at its pinned block; a reorg that moved the block starts the run anew."""
    challenge = await journal.once("challenge", CHALLENGE, lambda: read_challenge(ports.chain, address))
    if await ports.chain.blocks.is_canonical(challenge.block):
        return challenge
    signed = {
        read_signed(row.raw).data.hex() for row in await ports.store.transactions(journal.run, Intention.POST_SCORES)
    }
    if signed:
        await keep_result(ports.store, challenge.chain_id, address)
    await journal.forget()
    if signed:
        # What was signed about the block that is gone is replaced on its own nonce, never sent again.
        await journal.note(SUPERSEDED, sorted(signed))
    return await journal.once("challenge", CHALLENGE, lambda: read_challenge(ports.chain, address))


async def is_meant(store: Store, chain: EthereumChain, tx: StoredTransaction) -> bool:
    """Whether a recorded post still says what its round found: the block that was read is there, and nothing newer took
    its place. Of other transactions there is nothing to ask.
    """
    if tx.intention != Intention.POST_SCORES:
        return True
    read = await store.entry(tx.run, "challenge")
    if read is None or read_signed(tx.raw).data in await _superseded(store, tx.run):
        return False
    return await chain.blocks.is_canonical(CHALLENGE.read_text(read).block)


async def _superseded(store: Store, run: str) -> frozenset[bytes]:
    recorded = await store.entry(run, SUPERSEDED)
    return frozenset(bytes.fromhex(data) for data in (json.loads(recorded) if recorded else ()))


async def _advance(challenge: Challenge, ports: Ports, options: Options) -> None:
    """Past the deadline and still open: move the contract on to scoring before anything is paid for."""
    sender, state = _sender(ports, options), await ports.chain.results.scoring_state(challenge.address)
    if state.status is not ChallengeStatus.OPEN or not sender.can_sign:
        return
    options.sent(await advance(challenge, sender=sender, results=ports.chain.results))
    if (await ports.chain.results.scoring_state(challenge.address)).status is ChallengeStatus.CANCELLED:
        raise Unscorable("Fewer than two agents submitted: the contract cancelled the challenge and refunded it.")


def _sender(ports: Ports, options: Options) -> TransactionSender:
    return replace(ports.sender, is_dry=options.dry_run)


async def _file(
    challenge: Challenge, plan: EvaluationPlan, walked: EvaluationResult, ports: Ports, journal: Journal
) -> str:
    """Write the trace and the public keys; the digest must come out the same on every walk."""
    with drafted(entries(challenge, plan, walked)) as draft:
        await _check_posted(challenge, draft.digest, ports)
        await close_unanswered(journal, walked.unanswered)
        await journal.note("digest", draft.digest)
        approvals = await approvals_of(ports.store, challenge.chain_id, challenge.address, draft.digest)
        await save_trace(ports.store, challenge.chain_id, challenge.address, draft.pieces(approvals), draft.digest)
    keys = public_keys(challenge, walked, extracted_at=challenge.block.timestamp)
    while bulk := list(islice(keys, AT_ONCE)):
        await ports.store.put_many(challenge.chain_id, bulk)
    plots = plain_json(plots_document(walked, draft.digest))
    await ports.store.put(challenge.chain_id, plots_key(challenge.address), plots)
    return draft.digest


async def _check_posted(challenge: Challenge, digest: str, ports: Ports) -> None:
    """What the posted transaction commits to is never replaced: nobody could check the post any more."""
    scores = await read_scores(ports.store, challenge.chain_id, challenge.address) or {}
    posted = scores.get("traceDigest") if scores.get("postedBy") == "evaluator" else None
    if posted in {None, digest}:
        return
    if (await ports.chain.results.scoring_state(challenge.address)).score_posted_at:
        raise Disagrees(
            f"The result of {challenge.address} is posted with the trace {posted}; this walk gives {digest}.",
            remedy="The posted trace is kept. Nothing is to be done here.",
        )


async def _may_change(challenge: Challenge, journal: Journal, ports: Ports) -> bool:
    """Whether entries that could not be read are tried again: not once somebody approved or signed a result."""
    if (await ports.chain.blocks.head()).timestamp >= decided_until(challenge):
        return False
    review = await read_review(ports.store, challenge.chain_id, challenge.address)
    is_approved = review is not None and review.state == "approved"
    return not is_approved and not await ports.store.transactions(journal.run, Intention.POST_SCORES)


async def _post_default(review: Review, chain_id: int, journal: Journal, ports: Ports) -> None:
    """Nobody decided: the clock rules, and the round is walked again with that in its evidence."""
    assert review.posts_at is not None
    await ports.store.forget_entry(journal.run, "digest")
    await rule_by_clock(ports.store, journal.run, review.digest, review.posts_at)
    await lapse(ports.store, chain_id, review)


async def _review(
    challenge: Challenge, walked: EvaluationResult, digest: str, ports: Ports, options: Options
) -> Review | None:
    """Whether a person must look, and what they said about exactly this result."""
    now = (await ports.chain.blocks.head()).timestamp
    disputed = walked.disputed
    is_due = disputed is not None and must_post(challenge, now)
    reasons = await _reasons(challenge, walked, ports, options)
    if disputed is not None and disputed.needs_person and not is_due:
        reasons += [(OBJECTION, f"{one.submitter} objects ({one.about}): {one.reason}") for one in disputed.raised]
    existing = await read_review(ports.store, challenge.chain_id, challenge.address)
    said = existing if existing is not None and existing.digest == digest else None
    if said is not None and said.state == "rejected":
        raise NeedsReview(f"The result was rejected in review: {said.note or 'no note'}.")
    if not reasons or (is_due and disputed is not None and disputed.places == _places(walked)):
        return None  # a draft is announced only when whoever has to approve it did: an objection does not undo that
    if said is not None and said.state != "waiting":
        return said
    since = said.requested_at if said is not None else now
    posts_at = default_moment(challenge, [code for code, _ in reasons], since) if walked.ranking else None
    return await request_review(
        ports.store,
        challenge.chain_id,
        challenge.address,
        digest,
        [sentence for _, sentence in reasons],
        since,
        posts_at=posts_at,
        default="" if posts_at is None else _default_words(challenge, walked),
    )


async def _reasons(
    challenge: Challenge, walked: EvaluationResult, ports: Ports, options: Options
) -> list[tuple[str, str]]:
    """Why a person looks, each with its code in `review_defaults`; what the clock ruled about is no reason any more."""
    reasons = [(flag.code, flag.sentence) for flag in walked.flags if flag.severity == "review"]
    if is_by_default(walked.rulings):
        reasons = []
    worth = worth_micro_usd(challenge.token, challenge.prize_pool, options.network)
    limit = options.review_above_usd
    if limit is not None and (worth is None or worth >= limit * 1_000_000):
        shown = "of unknown worth" if worth is None else f"of ${worth / 1e6:,.2f}"
        reasons.insert(0, (PRIZE, f"The prize {shown} is not below ${limit:,.2f}, so a person approves it."))
    if not is_by_default(walked.rulings) and (doubt := doubt_about_money(walked.ranking, worth, options)):
        reasons.append((DOUBT, doubt))
    if (uncalibrated := await _uncalibrated(challenge, walked, ports, options)) is not None:
        reasons.append((CALIBRATION, uncalibrated))
    return reasons


def doubt_about_money(ranking: Ranking | None, worth: int | None, options: Options) -> str:
    """Why a person decides about misplaced money; empty if it is below the limits."""
    share = ranking.misallocation if ranking else 0.0
    usd, limit = share * (worth or 0) / 1e6, options.review_doubt_usd
    if limit is None or usd <= limit or share <= options.review_doubt_share:
        return ""
    most = f"${limit:,.2f} and {100 * options.review_doubt_share:.0f} %"
    return f"${usd:,.2f} of the prize ({100 * share:.0f} %) is expected at wrong addresses, more than {most}."


def _default_words(challenge: Challenge, walked: EvaluationResult) -> str:
    """What is posted if nobody decides, in words."""
    behind = walked.behind_by_default
    if not behind:
        return "it is posted as it is ranked"
    named = ", ".join(f"{account} ({code})" for account, code in sorted(behind.items()))
    paid = [one.account for one in place(walked.ranking, walked.rejected, behind, by_default=True)]
    return f"{named} gives way, and {', '.join(paid[: challenge.winner_count])} are paid"


async def _announced(
    challenge: Challenge, walked: EvaluationResult, digest: str, ports: Ports, options: Options
) -> tuple[AnnouncedDraft, int]:
    """The draft of this very result, announced now where it is new; and the chain's clock."""
    now, key = (await ports.chain.blocks.head()).timestamp, draft_key(challenge.address)
    text = await ports.store.get(challenge.chain_id, key)
    if text is not None and (known_draft := DRAFT_FORM.read_text(text)).digest == digest:
        return known_draft, now
    margin = walked.ranking.margin.sentence if walked.ranking else ""
    draft = AnnouncedDraft(digest, now, window_end(challenge, now, options.objection_window), _places(walked), margin)
    await ports.store.put(challenge.chain_id, key, DRAFT_FORM.text(draft))
    return draft, now


def _places(walked: EvaluationResult) -> tuple[DraftPlace, ...]:
    ranked = {row.item for row in walked.ranking.standings} if walked.ranking else set()
    return tuple(
        DraftPlace(one.account, rank, one.score, "ranked" if one.account in ranked else "rejected")
        for rank, one in enumerate(walked.placed, start=1)
    )


async def _dispute(draft: AnnouncedDraft, journal: Journal, ports: Ports, options: Options) -> bool:
    """Write down, in one step, what was objected to; whether anything was."""
    found = await raised(ports.store, journal.run, draft.digest)
    if not found:
        return False
    said = Disputed(draft.digest, draft.until, draft.places, found, options.objection_judge or None)
    await _reopen(said, journal, ports)
    return True


async def _reopen(said: Disputed, journal: Journal, ports: Ports) -> None:
    """What a finished walk closed is open again; the dispute itself is written last, and then it is walked anew."""
    for key in ("digest", "unanswered", DISPUTED):
        await ports.store.forget_entry(journal.run, key)
    await ports.store.add_entry(journal.run, DISPUTED, DISPUTED_FORM.text(said))


async def _disputed(challenge: Challenge, journal: Journal, ports: Ports) -> Disputed | None:
    """What was objected to; where the other judge is not done in time, the draft stands and the objections with it.

    Else a submitter could keep a result from being posted by objecting while that judge is away. A result that is
    signed already goes its way.
    """
    found = await read_disputed(ports.store, journal.run)
    if found is None or found.judge is None or not must_post(challenge, (await ports.chain.blocks.head()).timestamp):
        return found
    if await ports.store.transactions(journal.run, Intention.POST_SCORES):
        return found
    stands = replace(found, judge=None)
    await _reopen(stands, journal, ports)
    return stands


async def _uncalibrated(challenge: Challenge, walked: EvaluationResult, ports: Ports, options: Options) -> str | None:
    """Why the judges that voted may not post without a person; rules need no calibration."""
    if isinstance(walked.comparisons, RuledComparisons):
        return None
    voters = sorted({comparison.judge for comparison in walked.comparisons if comparison.winner is not None})
    if "rules" in voters:
        return None
    work, prompt = work_hash(walked.metadata.config, walked.schema), prompt_hash()
    found = [await known(ports.store, challenge.chain_id, judge, prompt, work) for judge in voters]
    return why_not_alone(voters, found, options.calibration, options.calibration_floor)


async def _publish(
    challenge: Challenge, walked: EvaluationResult, digest: str, ports: Ports, options: Options
) -> Receipt:
    sender = _sender(ports, options)
    if (
        not sender.can_sign
        and (await ports.chain.results.scoring_state(challenge.address)).status is ChallengeStatus.OPEN
    ):
        return _unrehearsed(challenge, walked, digest)
    superseded = await _superseded(ports.store, challenge.run)
    return await publish(
        challenge, walked.winners, digest, sender=sender, results=ports.chain.results, superseded=superseded
    )


def _unrehearsed(challenge: Challenge, walked: EvaluationResult, digest: str) -> Receipt:
    """A dry run of a challenge that is still Open: the call is checked, but the contract could not take it yet."""
    data = post_scores_calldata(walked.winners, digest, challenge.contract_version)
    check_call(challenge, walked.winners, digest, data)
    return Receipt(
        SendOutcome.DRY_RUN,
        Intention.POST_SCORES,
        "0x" + data.hex(),
        detail="Dry run: the challenge is still Open, so the call was checked but not rehearsed; nothing was sent.",
    )


async def _save_scores(
    challenge: Challenge, walked: EvaluationResult, digest: str, receipt: Receipt | None, ports: Ports
) -> None:
    """Before the post only where no earlier walk wrote down who posted."""
    earlier = await read_scores(ports.store, challenge.chain_id, challenge.address) or {}
    if receipt is None and earlier.get("postedBy"):
        return
    published_at = (
        (await ports.chain.results.scoring_state(challenge.address)).score_posted_at if is_posted(receipt) else None
    )
    cid = earlier.get("traceCid") if earlier.get("traceDigest") == digest else None
    text = plain_json(scores_document(challenge, walked, digest, receipt, published_at, cid))
    await ports.store.put(challenge.chain_id, scores_key(challenge.address), text)


async def _say_outcome(status: StatusWriter, receipt: Receipt) -> None:
    posted_by = str(receipt.posted_by) if receipt.posted_by else None
    match receipt.outcome:
        case SendOutcome.CONFIRMED | SendOutcome.ALREADY_DONE:
            await status.say("complete", 100, reason=receipt.detail or None, posted_by=posted_by or "evaluator")
        case SendOutcome.DRY_RUN:
            await status.say(
                "complete", 100, reason=receipt.detail or "Dry run: checked and rehearsed, nothing was sent."
            )
        case SendOutcome.UNKNOWN:
            waits = "Sent, not seen mined yet: the chain is asked again."
            await status.say("publishing", 95, reason=f"{waits} {receipt.detail}".strip())
        case SendOutcome.REVERTED:
            await status.say("failed", 100, reason=f"The post was mined but reverted: {receipt.detail}")


async def read_scores(store: Store, chain_id: int, address: str) -> dict[str, Any] | None:
    """The scores document as stored, or None."""
    return await read_document(store, chain_id, scores_key(address))
