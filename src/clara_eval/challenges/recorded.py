"""Record the result of a run under the digest of its trace, or read a recorded one from the archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from clara_eval.chain.model import Winners, post_scores, read_calldata
from clara_eval.challenges.prepare import RESTARTED, RESTARTS, TEXT, Prepared, RoundCase
from clara_eval.challenges.public_documents import features_pairs, public_keys
from clara_eval.challenges.review import Disputed, Review, announced, read_disputed
from clara_eval.core.address import Address
from clara_eval.core.errors import Disagrees, NeedsReview
from clara_eval.core.version import code_version
from clara_eval.evaluation.features.extract import SubmissionFacts
from clara_eval.evaluation.result import EvaluationResult, entries
from clara_eval.evaluation.sources import UNANSWERED
from clara_eval.evaluation.trace import Evidence, Notes, Restart, TraceFile, render
from clara_eval.store.trace_archive import drafted, save_trace, stream_trace

AT_ONCE = 2000  # Public keys per write: those of a round with many games should not all be in memory


@dataclass(frozen=True, slots=True)
class RecordedResult:
    digest: str
    winners: Winners
    disputed: Disputed | None
    result: EvaluationResult | None  # None if read from the archive
    review: Review | None = None  # Of exactly this result
    tries_again: bool = False  # Whether entries that could not be read are tried once more before the post


async def record_result(case: RoundCase, prepared: Prepared, result: EvaluationResult) -> RecordedResult:
    """Write the trace and the public keys; Disagrees if scores are posted with another digest."""
    challenge, store, venue = case.challenge, case.ports.store, prepared.venue
    with drafted(entries(prepared.plan, result, venue.records(result))) as draft:
        await _check_posted(case, draft.digest)
        await case.journal.keep("unanswered", UNANSWERED, result.unanswered)
        await case.journal.note("digest", draft.digest)
        review = await case.review_of(draft.digest)
        pieces = draft.pieces(Notes(review.approvals if review else [], await _restarts(case, result)))
        await save_trace(store, challenge.chain_id, challenge.address, pieces, draft.digest)
    keys = public_keys(challenge.address, challenge.block.timestamp, result)
    while bulk := list(islice(keys, AT_ONCE)):
        await store.put_many(challenge.chain_id, bulk)
    return RecordedResult(draft.digest, venue.winners(result), venue.disputed, result, review, prepared.tries_again)


async def _restarts(case: RoundCase, result: EvaluationResult) -> list[Restart]:
    restarts = [
        replace(one, answers=sum(request in result.answers for request in requests))
        for one, requests in await case.journal.all(RESTARTS, RESTARTED)
    ]
    while restarts and restarts[-1].finished_by != code_version():
        restarts.pop()  # by a version that was killed before it did anything
    return restarts


async def save_features(case: RoundCase, features: Mapping[Address, SubmissionFacts]) -> None:
    """Save the facts of a running round, unless scores are posted, which refer to the saved facts."""
    challenge = case.challenge
    if not (await case.scores()).get("postedBy"):
        pairs = features_pairs(challenge.address, challenge.block.timestamp, features)
        await case.ports.store.put_many(challenge.chain_id, list(pairs))


async def _check_posted(case: RoundCase, digest: str) -> None:
    """Raise Disagrees if a post commits to another trace, which must not be replaced."""
    challenge, scores = case.challenge, await case.scores()
    posted = scores.get("traceDigest") if scores.get("postedBy") == "evaluator" else None
    if posted in {None, digest}:
        return
    if (await case.ports.chain.results.scoring_state(challenge.address)).score_posted_at:
        text = f"The result of {challenge.address} is posted with the trace {posted}; this run gives {digest}."
        raise Disagrees(text, remedy="The posted trace is kept. Nothing is to be done here.")


async def recorded_result(case: RoundCase) -> RecordedResult | None:
    """Return the archived result that was approved or that another version signed; None to run the round."""
    challenge, store = case.challenge, case.ports.store
    digest = await case.journal.saved("digest", TEXT)
    if digest is None or case.options.dry_run:
        return None
    review = await case.review_of(digest)
    if review is not None and review.state == "rejected":
        raise NeedsReview(f"The result was rejected in review: {review.note or 'no note'}.")
    is_signed = case.is_restarted and await case.is_signed()
    if not is_signed and (review is None or review.state != "approved"):
        return None
    disputed = await read_disputed(case.journal)
    is_announced = await announced(store, challenge.chain_id, challenge.address, digest) is not None
    if case.options.settings.objection_window and disputed is None and not is_announced:
        return None  # its places have to be announced first
    trace = await TraceFile.of(stream_trace(store, challenge.chain_id, challenge.address))
    if trace is None:
        return None
    with trace:
        evidence = Evidence(trace)
        if evidence.digest != digest:
            return None
        if review is not None and evidence.notes.approvals != review.approvals:
            lines = takewhile(lambda line: not line.startswith("]"), islice(trace, 1, None))
            entry_lines = (line.removesuffix("\n").removesuffix(",") for line in lines)
            pieces = render(entry_lines, digest, replace(evidence.notes, approvals=review.approvals))
            await save_trace(store, challenge.chain_id, challenge.address, pieces, digest)
        calldata = bytes.fromhex(str(evidence["calldata"]).removeprefix("0x"))
    winners, _ = read_calldata(calldata)
    if post_scores(winners, challenge.contract_version) != calldata:
        text = f"The recorded calldata of {challenge.address} is not what this version writes for its winners."
        raise Disagrees(text, remedy="Use the version that recorded it, or start again with `evaluate --restart`.")
    return RecordedResult(digest, winners, disputed, None, review)
