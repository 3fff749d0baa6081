"""How an evaluation goes and how it ended: status, leaderboard, and one submitter's score with the reasons.

Invariant: before scores are posted only status and progress are told; the chain's winners win over the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from clara_eval.actions.amounts import show_amount
from clara_eval.actions.browse import posted_winners, token_document
from clara_eval.actions.challenges import challenge_at, posted_by, submission_of
from clara_eval.actions.claim import FINALIZATION_SECONDS
from clara_eval.actions.plan import sender_of
from clara_eval.app import Caller
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.challenges.comparisons import outcome
from clara_eval.challenges.status import MEANINGS, STOPPED_STATES
from clara_eval.core.address import Address, to_address
from clara_eval.core.camel_json import to_camel_json
from clara_eval.core.errors import BadInput, NotFound, NotYet
from clara_eval.core.flags import Flag
from clara_eval.core.untrusted import SHORT_CHARS, Untrusted, fence
from clara_eval.documents import results as documents
from clara_eval.documents.actions import (
    ComparisonRow,
    ExecutedRow,
    FeatureValue,
    LeaderboardFound,
    LeaderboardRow,
    PostedWinner,
    Progress,
    ScoreFound,
    StatusFacts,
    StatusFound,
)
from clara_eval.harness.model import feature_name

RIVALS_SHOWN = 10
MAX_FLAGS = 20
MAX_STANDINGS = 200
STATUS_MEANINGS: Mapping[str, str] = {
    "none": "No evaluation is recorded here yet.",
    **{str(state): meaning for state, meaning in MEANINGS.items()},
}
_OVER = frozenset(("finalized", "cancelled", "expired"))
_MAY_CHANGE = frozenset(("none", "pending", "extracting", "comparing", "publishing"))


async def eval_status(caller: Caller, address: str) -> StatusFound:
    challenge = await challenge_at(caller, address)
    found = await caller.records.status(challenge.address)
    status = found.status if found else "complete" if challenge.score_posted_at else "none"
    reason = found.reason if found and found.reason != STATUS_MEANINGS[status] else None
    phase, moment = _phase(challenge)
    return StatusFound(
        network=caller.settings.network_name,
        address=challenge.address,
        chainStatus=documents.STATUS[challenge.status],
        status=status,
        progress=100 if status == "complete" else found.progress if found else 0,
        stage=_progress(found.stage if found else None),
        reason=fence(str(reason), "evaluator; may quote others", limit=SHORT_CHARS) if reason else None,
        warning=found.warning if found else None,
        startedAt=found.startedAt if found else None,
        updatedAt=found.updatedAt if found else None,
        retryAt=found.retryAt if found else None,
        objectionsUntil=found.objectionsUntil if found else None,
        scoringDeadline=challenge.scoring_deadline,
        scorePostedAt=challenge.score_posted_at or None,
        phase=phase,
        moment=moment,
    )


def _phase(
    challenge: Challenge,
) -> tuple[Literal["cancelled", "expired", "final", "posted", "open", "due"], int]:
    now = challenge.block.timestamp
    if challenge.status is ChallengeStatus.CANCELLED:
        return "cancelled", 0
    if challenge.status is ChallengeStatus.EXPIRED:
        return "expired", 0
    if challenge.status is ChallengeStatus.FINALIZED:
        return "final", 0
    if challenge.score_posted_at:
        return "posted", challenge.score_posted_at + FINALIZATION_SECONDS
    return ("open", challenge.deadline - now) if now < challenge.deadline else ("due", challenge.scoring_deadline)


def _progress(stage: documents.StageProgress | None) -> Progress:
    known = stage or documents.StageProgress()
    return Progress(
        stage=known.name if known.name and known.name.isidentifier() else None,
        done=known.done,
        total=known.total,
        calls=known.calls,
        costUsd=known.costUsd,
        secondsLeft=known.secondsLeft,
    )


def is_waiting(status: StatusFacts) -> bool:
    """Whether looking again soon may show something new."""
    is_over = status["scorePostedAt"] is not None or status["chainStatus"] in _OVER
    return not is_over and status["status"] in _MAY_CHANGE


def has_stopped(status: StatusFacts) -> bool:
    """Whether it ended without a result."""
    return status["status"] in STOPPED_STATES


async def leaderboard(caller: Caller, address: str, *, limit: int = 50) -> LeaderboardFound:
    """Show every place if the evaluation is recorded here, else the winners that the chain names."""
    if not 1 <= limit <= MAX_STANDINGS:
        raise BadInput(f"The limit is not 1 to {MAX_STANDINGS}.", path="limit", value=limit)
    challenge = await challenge_at(caller, address)
    scores, standings = await _standings(caller, challenge)
    return LeaderboardFound(
        network=caller.settings.network_name,
        address=challenge.address,
        source="chain" if scores is None else "evaluation",
        postedBy=await posted_by(caller, challenge),
        token=token_document(challenge.token),
        standings=standings[:limit],
        total=len(standings),
        traceDigest=scores.traceDigest if scores else None,
        traceUrl=caller.records.trace_url(challenge.address),
        pageUrl=caller.page(challenge.address),
        warning=scores.warning if scores else None,
        flags=_flags(scores.flags if scores else []),
    )


async def score(caller: Caller, address: str, submitter: str | None = None) -> ScoreFound:
    """Explain one submitter's place; without a submitter, the local wallet's own."""
    challenge = await challenge_at(caller, address)
    account = to_address(submitter, what="submitter") if submitter else sender_of(caller, None)
    if account is None:
        raise BadInput("No submitter is given.", path="submitter", remedy="Give the address that submitted.")
    if await submission_of(caller, challenge, account) is None:
        raise NotFound(
            f"{account} has not submitted to {challenge.address}.", remedy="Give the address that submitted."
        )
    scores, standings = await _standings(caller, challenge)
    standing = next((item for item in standings if item["address"] == account), None)
    if standing is None:
        raise NotFound(
            f"The place of {account} is not known here: the chain names only the winners.",
            remedy="Ask a service that evaluated it: set CLARA_API_URL.",
        )
    is_shown = scores is not None and caller.settings.traces_public == "after_post"
    facts = await caller.records.features(challenge.address, account) if is_shown else None
    games = await _comparisons(caller, challenge.address, account, _nearest(standings, standing)) if is_shown else []
    return ScoreFound(
        network=caller.settings.network_name,
        address=challenge.address,
        submitter=account,
        standing=standing,
        entries=max(len(standings), challenge.submission_count),
        token=token_document(challenge.token),
        postedBy=await posted_by(caller, challenge),
        features=_features(facts.features if facts else {}),
        notes=_notes(facts.text if facts else {}),
        flags=_flags(facts.flags if facts else []),
        games=games,
        closestRival=_closest(standings, standing),
        traceDigest=scores.traceDigest if scores else None,
        traceUrl=caller.records.trace_url(challenge.address),
        pageUrl=caller.page(challenge.address),
        claimableAt=_claimable_at(challenge, standing),
    )


async def _standings(caller: Caller, challenge: Challenge) -> tuple[documents.Scores | None, list[LeaderboardRow]]:
    if challenge.score_posted_at == 0:
        raise NotYet(
            f"No scores are posted for {challenge.address} yet; until then only the status is public.",
            see="status",
            about=challenge.address,
        )
    posted = await posted_winners(caller, challenge)
    scores = await caller.records.scores(challenge.address)
    if scores is None or not scores.rankings:
        chain_rows = [documents.Ranked.model_validate({**winner, "status": "unknown"}) for winner in posted]
        return scores, [_row(challenge, row, winner) for row, winner in zip(chain_rows, posted, strict=True)]
    paid = {winner["address"]: winner for winner in posted}
    return scores, [_row(challenge, row, paid.get(row.address)) for row in scores.rankings]


def _row(challenge: Challenge, row: documents.Ranked, winner: PostedWinner | None) -> LeaderboardRow:
    amount = int(winner["prizeAmount"]) if winner else 0
    return LeaderboardRow(
        address=to_address(row.address),
        agentId=None if row.agentId is None else str(row.agentId),
        rank=row.rank or 0,
        score=winner["score"] if winner else row.score,
        elo=row.elo,
        low=row.low,
        high=row.high,
        pTop=row.pTop,
        wins=row.wins,
        losses=row.losses,
        ties=row.ties,
        tiedWith=[to_address(other) for other in row.tiedWith],
        prizeAmount=str(amount),
        prize=show_amount(amount, challenge.token),
        status="unknown" if row.status == "unknown" else "rejected" if row.status == "rejected" else "ranked",
        reason=fence(row.reason, "evaluator; may quote the submission", limit=SHORT_CHARS) if row.reason else None,
        executed=_executed(row.executed),
    )


def _executed(run: documents.ExecutedRun | None) -> ExecutedRow | None:
    if run is None:
        return None
    return ExecutedRow(
        outcome=run.outcome[:40],
        testsPassed=run.testsPassed,
        tests=run.tests,
        gas=run.gas,
        fuel=run.fuel,
        metrics={feature_name(name): value for name, value in run.metrics.items()},
    )


def _closest(standings: list[LeaderboardRow], standing: LeaderboardRow) -> LeaderboardRow | None:
    others = [item for item in standings if item["address"] != standing["address"] and item["elo"] is not None]
    own = standing["elo"]
    if own is None or not others:
        return None
    return min(others, key=lambda item: (abs((item["elo"] or 0.0) - own), item["rank"]))


def _nearest(standings: list[LeaderboardRow], standing: LeaderboardRow) -> list[Address]:
    others = [item for item in standings if item["address"] != standing["address"] and item["status"] == "ranked"]
    others.sort(key=lambda item: (abs(item["rank"] - standing["rank"]), item["rank"]))
    return [Address(item["address"]) for item in others[:RIVALS_SHOWN]]


async def _comparisons(
    caller: Caller, address: Address, account: Address, rivals: Iterable[Address]
) -> list[ComparisonRow]:
    found: list[ComparisonRow] = []
    for rival in rivals:
        for first, second in ((account, rival), (rival, account)):
            game = await caller.records.comparison(address, first, second)
            if game is None:
                continue
            row = ComparisonRow(
                rival=rival,
                shownFirst=first == account,
                result=outcome(game, shown_first=first == account),
                confidence=game.confidence,
                reason=fence(game.reason, "judge", limit=SHORT_CHARS) if game.reason else None,
            )
            found.append(row)
    return found


def _features(values: Mapping[str, documents.Value]) -> list[FeatureValue]:
    """Keep numbers, booleans and short closed values; anything longer is not a typed fact."""
    return [
        FeatureValue(name=name[:40], value=value)
        for name, value in values.items()
        if not isinstance(value, str) or (len(value) <= 40 and value.replace("_", "").replace("-", "").isalnum())
    ]


def _notes(values: Mapping[str, str]) -> list[Untrusted]:
    return [
        fence(f"{name}: {value}", "model, about the submission", limit=SHORT_CHARS) for name, value in values.items()
    ]


def _flags(flags: Sequence[Flag]) -> list[Untrusted]:
    texts = (json.dumps(to_camel_json(flag), sort_keys=True) for flag in flags[:MAX_FLAGS])
    return [fence(text, "evaluator; may quote the submission", limit=SHORT_CHARS) for text in texts]


def _claimable_at(challenge: Challenge, standing: LeaderboardRow) -> int | None:
    if not int(standing["prizeAmount"] or 0):
        return None
    return 0 if challenge.status is ChallengeStatus.FINALIZED else challenge.score_posted_at + FINALIZATION_SECONDS
