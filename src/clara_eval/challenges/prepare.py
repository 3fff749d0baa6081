"""Settle the inputs of a round before it is run: metadata, hidden harness, plan, rulings, disputes."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import structlog

from clara_eval.chain.model import Challenge
from clara_eval.chain.sender import Intention
from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.context import Options, Ports
from clara_eval.challenges.review import Disputed, Review, format_utc, read_disputed, read_review, reopen, rulings_of
from clara_eval.challenges.status import StatusWriter, read_attempts
from clara_eval.challenges.venue import ChallengeVenue, round_of, window_of
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadSubmission, CannotPublish, NotYet
from clara_eval.core.version import code_version
from clara_eval.documents.store_keys import harness_key, scores_key
from clara_eval.evaluation.execution import REVEAL, WITHHELD, Reveal, revealed_document
from clara_eval.evaluation.result import PLAN
from clara_eval.evaluation.round import EvaluationPlan, Round, Ruling, Window, is_by_default, read_rulings
from clara_eval.evaluation.sources import MISSED_KEY
from clara_eval.evaluation.trace import Journal, Restart

REVEAL_SHARE = 0.25  # Share of the scoring window for which a round waits for a hidden harness
TEXT = JsonCodec(str)
VERSION = "version"  # Journal entry with the version of the program that began the round
RESTARTS, RESTARTED = "restart/", JsonCodec(tuple[Restart, tuple[str, ...]])
"""Journal entries with every restart, and the requests paid for before it."""
VERSION_CHANGED = (
    "Another version of the evaluator began this round; this one starts it again with the answers paid for."
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RoundCase:
    challenge: Challenge
    given: Round
    journal: Journal
    ports: Ports
    options: Options
    is_open: bool  # Whether the contract is still Open, so that no post can be rehearsed
    is_restarted: bool = False  # Whether another version of the program began the round

    @property
    def window(self) -> Window:
        return window_of(self.challenge)

    async def chain_now(self) -> int:
        return (await self.ports.chain.blocks.head()).timestamp

    async def is_signed(self) -> bool:
        return bool(await self.ports.store.transactions(self.journal.run, Intention.POST_SCORES))

    async def scores(self) -> dict[str, Any]:
        store, challenge = self.ports.store, self.challenge
        return await read_document(store, challenge.chain_id, scores_key(challenge.address)) or {}

    async def review_of(self, digest: str) -> Review | None:
        """Return the review of exactly this result, if any."""
        found = await read_review(self.ports.store, self.challenge.chain_id, self.challenge.address)
        return found if found is not None and found.digest == digest else None


@dataclass(frozen=True, slots=True)
class Prepared:
    venue: ChallengeVenue
    plan: EvaluationPlan  # As recorded, without the rulings
    rulings: tuple[Ruling, ...]
    reveal: Reveal | None
    tries_again: bool  # Whether entries that could not be read are tried once more


async def prepare(case: RoundCase, status: StatusWriter, now: int) -> Prepared:
    """Settle the inputs of a run; NotYet while a hidden harness is waited for."""
    challenge, journal = case.challenge, case.journal
    reveal = await _settle_reveal(case, now)
    is_withheld = reveal is not None and reveal.content is None
    status.note(warning=WITHHELD if is_withheld else VERSION_CHANGED if case.is_restarted else None)
    plan = await journal.saved("plan", PLAN)
    if plan is not None and plan.judges != case.options.plan.judges:
        attempts = await read_attempts(case.ports.store, challenge.chain_id, challenge.address)
        if attempts.failures > 0 and not await journal.has("digest"):
            # Judges were changed after a failure: the new ones start over, and no earlier answer is in the trace.
            await journal.drop("plan", "unanswered")
            plan = None
    if plan is None:
        affordable = case.ports.models.affordable(challenge, case.given.config, case.options.plan)
        plan = await journal.keep("plan", PLAN, affordable)
    disputed = await _settle_dispute(case, now)
    ruled = await read_rulings(journal)
    review = await read_review(case.ports.store, challenge.chain_id, challenge.address)
    is_settled = (review is not None and review.state == "approved") or await case.is_signed()
    tries_again = not is_by_default(ruled) and now < case.window.decided_until and not is_settled
    if tries_again and await journal.has(MISSED_KEY):
        # An entry that can be read now changes the result; the earlier one was never signed or approved.
        await journal.drop("digest")
    venue = ChallengeVenue(challenge, case.given, disputed)
    return Prepared(venue, plan, (*ruled, *rulings_of(disputed)), reveal, tries_again)


async def open_case(challenge: Challenge, ports: Ports, options: Options, *, is_open: bool) -> RoundCase:
    journal = Journal(ports.store, challenge.run)
    is_restarted = await _restart_if_other_version(challenge, ports, journal)
    encoded = await journal.saved("metadata", TEXT)
    if encoded is None:
        try:
            fetched = await ports.fetch.fetch(challenge.challenge_uri)
        except BadSubmission as bad:
            remedy = "The poster may post scores; after scoringDeadline anybody may call expire()."
            raise CannotPublish(f"The metadata at challengeURI cannot be read: {bad}", remedy=remedy) from bad
        encoded = await journal.keep("metadata", TEXT, base64.b64encode(fetched.content).decode())
    given = round_of(challenge, base64.b64decode(encoded))
    return RoundCase(challenge, given, journal, ports, options, is_open, is_restarted)


async def _restart_if_other_version(challenge: Challenge, ports: Ports, journal: Journal) -> bool:
    """Restart a round that another version began: keep what was fetched and paid, drop what was computed."""
    store, begun_by, ours = ports.store, await journal.saved(VERSION, TEXT), code_version()
    if begun_by == ours:
        return False
    is_begun = await journal.has("metadata")
    if is_begun:
        review = await read_review(store, challenge.chain_id, challenge.address)
        digest = await journal.saved("digest", TEXT)
        is_approved = review is not None and (review.state, review.digest) == ("approved", digest)
        if is_approved or await store.transactions(journal.run, Intention.POST_SCORES):
            return True  # the recorded result is posted
        await _note_restart(challenge, ports, journal, begun_by or "unknown")
        await journal.drop("digest", "unanswered", VERSION, prefix="executed/")
        await journal.drop_unreadable("plan", PLAN)
        _log.warning("round_started_again", challenge=challenge.address, begun_by=begun_by, version=ours)
    await journal.keep(VERSION, TEXT, ours)
    return is_begun


async def _note_restart(challenge: Challenge, ports: Ports, journal: Journal, begun_by: str) -> None:
    earlier = [restart for restart, _ in await journal.all(RESTARTS, RESTARTED)]
    begun_by = earlier[-1].finished_by if earlier else begun_by
    if begun_by == code_version():
        return  # noted already, before this program was killed
    head = await ports.chain.blocks.head()
    at = max(head.timestamp, challenge.block.timestamp, *(one.at for one in earlier))  # a node may be behind
    requests = tuple([request for request, _, _ in await ports.store.calls_of(journal.run)])
    restart = Restart(at, begun_by, code_version(), len(requests))
    await journal.keep(f"{RESTARTS}{len(earlier):04}", RESTARTED, (restart, requests))


async def _settle_reveal(case: RoundCase, now: int) -> Reveal | None:
    """Return the revealed harness, settled once; None if none is hidden, NotYet while it may still come."""
    spec, challenge = case.given.config.harness, case.challenge
    if spec is None or not spec.hidden:
        return None
    if (reveal := await case.journal.saved("reveal", REVEAL)) is not None:
        return reveal
    text = await case.ports.store.get(challenge.chain_id, harness_key(challenge.address))
    until = case.window.moment_left(1 - REVEAL_SHARE)
    if text is not None:
        revealed_document(text.encode(), challenge.private_set_hash, spec)
    elif now < until:
        raise NotYet(
            f"The hidden harness of {challenge.address} is not revealed yet; the round waits for it until "
            f"{format_utc(until)}.",
            remedy="The poster reveals it with `clara-eval harness reveal`.",
        )
    content = None if text is None else base64.b64encode(text.encode()).decode()
    return await case.journal.keep("reveal", REVEAL, Reveal(content))


async def _settle_dispute(case: RoundCase, now: int) -> Disputed | None:
    """Return the recorded dispute; if its judge is not done in time, the draft stays with its objections."""
    # Otherwise a submitter could prevent a post by an objection during an outage of that judge.
    found = await read_disputed(case.journal)
    if found is None or found.judge is None or not case.window.at(now).must_post or await case.is_signed():
        return found
    unjudged = replace(found, judge=None)
    await reopen(unjudged, case.journal)
    return unjudged
