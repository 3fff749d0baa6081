"""Show an evaluation's status, its leaderboard, and one submitter's score with the reasons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from clara_eval.actions import challenges
from clara_eval.actions.amounts import show_amount
from clara_eval.actions.perform import sender_of
from clara_eval.app import Caller
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.challenges.challenge_index import STATUS
from clara_eval.challenges.public_documents import rows_on_chain
from clara_eval.challenges.status import scored_elsewhere, shown_to_all
from clara_eval.challenges.stored_results import comparisons_of
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput, NotFound, NotYet
from clara_eval.core.model import FINALIZATION_SECONDS, Flag
from clara_eval.core.untrusted import SHORT_CHARS, Untrusted, fence
from clara_eval.documents import actions as documents
from clara_eval.documents import results
from clara_eval.documents.store_keys import features_key
from clara_eval.harness.model import feature_name
from clara_eval.submissions.model import REJECTIONS

RIVALS_SHOWN = 10
MAX_FLAGS = 20
MAX_STANDINGS = 200
STATUS_MEANINGS: Mapping[str, str] = {
    "none": "No evaluation is recorded here yet.",
    **{str(state): meaning for state, meaning in results.MEANINGS.items()},
}
_ENDED: dict[ChallengeStatus, documents.Phase] = {
    ChallengeStatus.CANCELLED: "cancelled",
    ChallengeStatus.EXPIRED: "expired",
    ChallengeStatus.FINALIZED: "final",
}
_OVER = frozenset(("finalized", "cancelled", "expired"))
_MAY_CHANGE = frozenset(("none", "pending", "extracting", "comparing", "publishing"))


async def eval_status(caller: Caller, address: str) -> documents.EvalStatusResult:
    challenge = await challenges.challenge_at(caller, address)
    found = await caller.records.status(challenge.address)
    if found is None and not challenge.score_posted_at:
        found = scored_elsewhere(challenge.evaluator, challenge.poster, await challenges.known_evaluator(caller))
    found = found if found is None or caller.is_local else shown_to_all(found)
    status: Literal["none", results.State] = (
        found.status if found else "complete" if challenge.score_posted_at else "none"
    )
    reason = found.reason if found and found.reason != STATUS_MEANINGS[status] else None
    known = found.model_dump(include=set(results.EvaluationProgress.model_fields)) if found else {}
    # Show only our own fields of the stage: another service may have added text to it.
    stage = (found.stage if found else None) or results.StageProgress()
    shown = results.StageProgress(**stage.model_dump(include=set(results.StageProgress.model_fields)))
    shown.name = stage.name if stage.name and stage.name.isidentifier() else None
    known |= {"stage": shown, "progress": 100 if status == "complete" else known.get("progress", 0)}
    now, phase, moment = challenge.block.timestamp, _ENDED.get(challenge.status), 0
    if phase is None and challenge.score_posted_at:
        phase, moment = "posted", challenge.score_posted_at + FINALIZATION_SECONDS
    elif phase is None and now < challenge.deadline:
        phase, moment = "open", challenge.deadline - now
    return documents.EvalStatusResult(
        **known,
        network=caller.settings.network_name,
        address=challenge.address,
        chainStatus=STATUS[challenge.status],
        status=status,
        reason=fence(str(reason), "evaluator; may quote others", limit=SHORT_CHARS) if reason else None,
        scoringDeadline=challenge.scoring_deadline,
        scorePostedAt=challenge.score_posted_at or None,
        phase=phase or "due",
        moment=moment if phase else challenge.scoring_deadline,
    )


def is_waiting(status: documents.EvalStatusResult) -> bool:
    """Return whether the status may change soon."""
    is_over = status.scorePostedAt is not None or status.chainStatus in _OVER
    return not is_over and status.status in _MAY_CHANGE


async def leaderboard(caller: Caller, address: str, *, limit: int = 50) -> documents.LeaderboardResult:
    """Show every place if the evaluation is recorded here, else the winners that the chain names."""
    if not 1 <= limit <= MAX_STANDINGS:
        raise BadInput(f"The limit is not 1 to {MAX_STANDINGS}.", path="limit")
    challenge = await challenges.challenge_at(caller, address)
    scores, standings = await _standings(caller, challenge)
    return challenges.document_of(
        documents.LeaderboardResult,
        to_camel_json(challenge),
        network=caller.settings.network_name,
        source="chain" if scores is None else "evaluation",
        postedBy=await challenges.posted_by(caller, challenge),
        standings=standings[:limit],
        total=len(standings),
        traceDigest=scores.traceDigest if scores else None,
        trace=caller.records.trace_url(challenge.address),
        pageUrl=caller.page(challenge.address),
        misplaced=scores.misplaced if scores else None,
        warning=scores.warning if scores else None,
        flags=_fence_flags(scores.flags if scores else []),
    )


async def score(caller: Caller, address: str, submitter: str | None = None) -> documents.ScoreResult:
    """Explain one submitter's place; by default the local wallet's."""
    challenge = await challenges.challenge_at(caller, address)
    account = await _find_submitter(caller, challenge, submitter) if submitter else sender_of(caller, None)
    if account is None:
        raise BadInput("No submitter is given.", path="submitter", remedy="Give the address that submitted.")
    if await challenges.submission_of(caller, challenge, account) is None:
        raise NotFound(
            f"{account} has not submitted to {challenge.address}.", remedy="Give the address that submitted."
        )
    scores, standings = await _standings(caller, challenge)
    standing = next((item for item in standings if item.address == account), None)
    if standing is None:
        raise NotFound(
            f"The place of {account} is not known here: the chain names only the winners.",
            remedy="Ask a service that evaluated it: set CLARA_API_URL.",
        )
    own, others = standing.elo, [item for item in standings if item.elo is not None and item is not standing]
    closest = min(others, key=lambda item: (abs((item.elo or 0.0) - (own or 0.0)), item.rank), default=None)
    is_final = challenge.status is ChallengeStatus.FINALIZED
    claimable_at = 0 if is_final else challenge.score_posted_at + FINALIZATION_SECONDS
    is_shown = scores is not None and caller.settings.traces_public == "after_post"
    key = features_key(challenge.address, account)
    facts = await results.read(caller.records, challenge.chain_id, results.Features, key) if is_shown else None
    return challenges.document_of(
        documents.ScoreResult,
        to_camel_json(challenge),
        network=caller.settings.network_name,
        submitter=account,
        standing=standing,
        entries=max(len(standings), challenge.submission_count),
        postedBy=await challenges.posted_by(caller, challenge),
        features=challenges.typed_facts(facts.features if facts else {}),
        notes=[
            fence(f"{name}: {value}", "model, about the submission", limit=SHORT_CHARS)
            for name, value in (facts.text if facts else {}).items()
        ],
        flags=_fence_flags(facts.flags if facts else []),
        games=await _nearest_comparisons(caller, challenge.address, standings, standing) if is_shown else [],
        closestRival=closest if own is not None else None,
        traceDigest=scores.traceDigest if scores else None,
        trace=caller.records.trace_url(challenge.address),
        pageUrl=caller.page(challenge.address),
        claimableAt=claimable_at if int(standing.prizeAmount or 0) else None,
    )


async def _find_submitter(caller: Caller, challenge: Challenge, text: str) -> Address:
    """Find a submitter by address, its unique prefix, its short form (0x1234…abcd), or a place."""
    start, _, end = text.strip().lower().partition("…")
    if not start.isdecimal() and (not start.startswith("0x") or len(start) >= len(challenge.address)):
        return to_address(text, what="submitter")
    _, standings = await _standings(caller, challenge)
    found = [
        row.address
        for row in standings
        if str(row.rank) == start or (start > "0x" and row.address.startswith(start) and row.address.endswith(end))
    ]
    if len(found) != 1:
        raise BadInput(
            f"{text[:60]!r} names {len(found)} submitters of {challenge.address}.",
            path="submitter",
            remedy="Give a place of the leaderboard, or more of the address.",
        )
    return Address(found[0])


async def _standings(caller: Caller, challenge: Challenge) -> tuple[results.Scores | None, list[documents.StandingRow]]:
    """Return every place with what the chain pays; only paid ones if not evaluated here."""
    if challenge.score_posted_at == 0:
        raise NotYet(
            f"No scores are posted for {challenge.address} yet; until then only the status is public.",
            see="status",
            about=challenge.address,
        )
    winners = await caller.chain.results.winners_on_chain(challenge.address, challenge.winner_count)
    scores = await caller.records.scores(challenge.address)
    paid = {row.address: row for row in rows_on_chain(winners)}
    if scores is None or not scores.rankings:
        return scores, [_build_row(challenge, row, row, status="unknown") for row in paid.values()]
    return scores, [
        _build_row(challenge, row, paid.get(row.address), status="rejected" if row.status == "rejected" else "ranked")
        for row in scores.rankings
    ]


def _build_row(
    challenge: Challenge, row: results.LeaderboardRow, paid: results.LeaderboardRow | None, *, status: str
) -> documents.StandingRow:
    """Build a row whose text is safe to show to a model: another service may have written it."""
    amount, run = int(paid.prizeAmount or 0) if paid else 0, row.executed
    if run is not None:
        run = results.ExecutedRun(**run.model_dump(include=set(results.ExecutedRun.model_fields)))
        run.outcome = run.outcome[:40]
        run.metrics = {feature_name(name): value for name, value in run.metrics.items()}
        run.failed = {feature_name(name): feature_name(how).replace("_", " ") for name, how in run.failed.items()}
    known = row.model_dump(include=set(results.RankedEntry.model_fields))
    known |= {
        "address": to_address(row.address),
        "rank": row.rank or 0,
        "score": paid.score if paid else row.score,
        "tiedWith": [to_address(other) for other in row.tiedWith],
        "prizeAmount": str(amount),
        "status": status,
        "executed": run,
    }
    return documents.StandingRow(
        **known,
        agentId=None if row.agentId is None else str(row.agentId),
        name=fence(row.name, "agent", limit=SHORT_CHARS) if row.name else None,
        code=row.code if row.code in REJECTIONS else None,
        prize=show_amount(amount, challenge.token),
        reason=fence(row.reason, "evaluator; may quote the submission", limit=SHORT_CHARS) if row.reason else None,
    )


async def _nearest_comparisons(
    caller: Caller, address: Address, standings: list[documents.StandingRow], standing: documents.StandingRow
) -> list[documents.ComparisonRow]:
    account = standing.address
    others = [item for item in standings if item.address != account and item.status == "ranked"]
    others.sort(key=lambda item: (abs(item.rank - standing.rank), item.rank))
    rivals = [item.address for item in others[:RIVALS_SHOWN]]
    return [
        documents.ComparisonRow(
            rival=second if first == account else first,
            shownFirst=first == account,
            result=game.outcome(shown_first=first == account),
            confidence=game.confidence,
            reason=fence(game.reason, "judge", limit=SHORT_CHARS) if game.reason else None,
        )
        for (first, second), game in (
            await comparisons_of(caller.records, caller.chain_id, address, account, rivals)
        ).items()
    ]


def _fence_flags(flags: Sequence[Flag]) -> list[Untrusted]:
    texts = (json.dumps(to_camel_json(flag), sort_keys=True) for flag in flags[:MAX_FLAGS])
    return [fence(text, "evaluator; may quote the submission", limit=SHORT_CHARS) for text in texts]
