"""Approve, reject or rule on a result that waits for review, and make its review sheet."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import TypeVar

from clara_eval.challenges.challenge_index import read_many
from clara_eval.challenges.review import (
    NOTE_CHARS,
    Review,
    check_waiting,
    decide,
    known_review,
    list_reviews,
    published_name,
)
from clara_eval.challenges.status import StatusWriter, try_at_once
from clara_eval.challenges.stored_results import comparisons_among
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.documents import results
from clara_eval.documents.rest import ReviewSheet, ShownComparison
from clara_eval.documents.store_keys import features_key, index_key, scores_key, status_key
from clara_eval.evaluation.round import RULINGS, Ruling, read_rulings
from clara_eval.evaluation.trace import Journal
from clara_eval.judge.provider import parse_jury
from clara_eval.store.leases import evaluation_lease, held
from clara_eval.store.open import existing_store
from clara_eval.store.sql_store import SqlStore

__all__ = ["Review", "known_review", "list_reviews"]
T = TypeVar("T")
NEAR = 2  # places on each side of the pay line whose comparisons are on the sheet


async def in_store(settings: Settings, use: Callable[[SqlStore, int], Awaitable[T]]) -> T:
    """Call a function with the store of the settings; NotFound if there is none yet."""
    async with existing_store(settings.database_url) as store:
        if store is None:
            raise NotFound(
                "No store is here yet: nothing was evaluated, and nothing is waiting for review.",
                remedy="Set CLARA_DATABASE_URL to the service's store.",
            )
        return await use(store, settings.network.chain_id)


async def approve(
    store: SqlStore, chain_id: int, address: Address, *, note: str, digest: str | None, by: str = ""
) -> Review:
    """Approve exactly this result for posting; note and name become part of the public trace."""
    review = await decide(store, chain_id, address, "approved", note=note, digest=_require_digest(digest), by=by)
    await try_at_once(store, chain_id, address)
    status = await StatusWriter.resumed(store, chain_id, address)
    await status.say("publishing", 91, reason="A person approved the result. A running service posts it soon.")
    return review


async def reject(
    store: SqlStore, chain_id: int, address: Address, *, note: str, digest: str | None = None, by: str = ""
) -> Review:
    """End the evaluation as failed; the poster may still post scores."""
    review = await decide(store, chain_id, address, "rejected", note=note, digest=digest, by=by)
    found = await results.read(store, chain_id, results.EvalStatus, status_key(address))
    if found is None or found.postedBy is None:
        status = await StatusWriter.resumed(store, chain_id, address)
        await status.say("failed", reason=f"{results.REJECTED_IN_REVIEW}: {note or 'no reason given'}.")
    return review


def _require_digest(digest: str | None) -> str:
    if not digest:
        raise BadInput(
            "The digest of the result that you looked at is missing.",
            path="traceDigest",
            remedy="Name the traceDigest that the review shows (`clara-eval review show`, or GET …/review).",
        )
    return digest


@dataclass(frozen=True, slots=True)
class Decree:
    """A person's ruling on an account, or on the judge of a stage."""

    kind: results.RulingKind
    account: Address | None = None
    judge: str | None = None
    stage: results.RuledStage | None = None
    note: str = ""
    by: str = ""  # the person's name, which is in the public trace


async def rule(store: SqlStore, chain_id: int, address: Address, decree: Decree, *, digest: str | None) -> Review:
    """Record a ruling, so that the round is evaluated again under it."""
    async with held(store, evaluation_lease(chain_id, address), f"review:{uuid.uuid4().hex[:8]}", 30):
        review = check_waiting(await known_review(store, chain_id, address), _require_digest(digest))
        scores = await results.read(store, chain_id, results.Scores, scores_key(address))
        if scores is not None and scores.is_posted:
            raise BadInput(f"Scores of {address} are posted: nothing can be ruled any more.", path="address")
        if decree.kind == "judge":
            if decree.judge is None or decree.stage is None:
                raise BadInput("A ruling about a judge names the judge and the stage.", path="judge")
            parse_jury(decree.judge)
        elif decree.account not in {row.address for row in (scores.rankings if scores else [])}:
            raise BadInput(
                f"{decree.account} did not submit to this challenge.",
                path="account",
                remedy="`clara-eval review show` lists who did.",
            )
        details = (decree.account, decree.judge, decree.stage, decree.note[:NOTE_CHARS], published_name(decree.by))
        ruling = Ruling(decree.kind, review.digest, int(time.time()), *details)
        journal = Journal(store, f"{chain_id}:{address}")
        rulings = (*(one for one in await read_rulings(journal) if one.kind != "default"), ruling)
        await journal.drop("rulings", "digest", "unanswered")  # reopen a finished run
        await journal.keep("rulings", RULINGS, rulings)
        await try_at_once(store, chain_id, address)
        status = await StatusWriter.resumed(store, chain_id, address)
        await status.say("pending", reason="A person ruled about the result: the round is evaluated again.")
    return review


async def review_sheet(store: SqlStore, chain_id: int, address: Address) -> ReviewSheet:
    """Make the review sheet of a challenge; NotFound if it has no review."""
    review = await known_review(store, chain_id, address)
    scores = await results.read(store, chain_id, results.Scores, scores_key(address))
    summary = await results.read(store, chain_id, results.Summary, index_key(address))
    status = await results.read(store, chain_id, results.EvalStatus, status_key(address))
    rows = scores.rankings if scores else []
    paid = sum(row.prizeAmount is not None for row in rows)
    near = [row.address for row in rows[: paid + NEAR]]
    deadline = summary.scoringDeadline if summary else review.scoring_deadline
    due = review.posts_at or deadline
    facts: dict[str, dict[str, results.Value]] = {}
    known = await read_many(store, chain_id, results.Features, partial(features_key, address), near)
    for account in (one for one in near if one in known):
        for name, value in known[account].features.items():
            facts.setdefault(name, {})[account] = value
    played, games = await comparisons_among(store, chain_id, address, near[-2 * NEAR :]), []
    for first, second in (pair for pair in permutations(near[-2 * NEAR :], 2) if pair in played):
        game = played[first, second].model_dump(exclude={"votes"})
        game["winner"] = {"A": first, "B": second}.get(game["winner"], game["winner"])
        games.append(ShownComparison(first=first, second=second, **game))
    return ReviewSheet.model_validate(
        {
            **review.to_json(),
            "unlessDecided": review.unless_decided if review.state == "waiting" else "",
            "status": status.status if status else None,
            "title": summary.title if summary else None,
            "prizePool": scores.prizePool if scores else None,
            "token": scores.token if scores else None,
            "winnerCount": paid,
            "misplaced": scores.misplaced if scores else None,
            "scoringDeadline": deadline,
            "secondsLeft": max(0, due - int(time.time())) if due else None,
            "ranking": rows,
            "doubts": [flag for flag in (scores.flags if scores else []) if flag.severity != "info"],
            "facts": facts,
            "games": games,
            "rulings": [to_camel_json(one) for one in await read_rulings(Journal(store, f"{chain_id}:{address}"))],
        }
    )
