"""A person's word about a result: what waits, why, and the decision with what follows from it.

The reasons are the operator's: they name who stands near the money. An approval lets the next attempt publish exactly
the approved result. A ruling has the round walked again with the ruling in its evidence. A rejection ends the
evaluation as `failed` with the note; the poster may still post. Where somebody has posted already, that stands, and
only the word is recorded.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from clara_eval.challenges.attempt_memory import read_attempts, save_attempts
from clara_eval.challenges.review import (
    NOTE_CHARS,
    Review,
    check_waiting,
    decide,
    known_review,
    list_reviews,
    signature,
)
from clara_eval.challenges.status import StatusWriter
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput
from clara_eval.documents.results import EvalStatus, Scores, read
from clara_eval.documents.review import RuledStage, RulingKind
from clara_eval.documents.store_keys import scores_key, status_key
from clara_eval.evaluation.rulings import (
    RULINGS,
    Ruling,
    read_rulings,
)
from clara_eval.judge.providers.registry import parse_jury
from clara_eval.store.leases import evaluation_lease, held
from clara_eval.store.ports import Store

__all__ = ["Decree", "approve", "known_review", "list_reviews", "reject", "rule"]


async def approve(
    store: Store, chain_id: int, address: Address, *, note: str, digest: str | None, by: str = ""
) -> Review:
    """Let exactly this result be posted; BadInput or NotFound where nothing waits, or another result does.

    Note and name become part of the public trace.
    """
    now, looked_at = int(time.time()), _require(digest)
    review = await decide(store, chain_id, address, "approved", note=note, now=now, digest=looked_at, by=by)
    attempts = await read_attempts(store, chain_id, address)
    await save_attempts(store, chain_id, address, attempts.at_once())
    return review


async def reject(
    store: Store, chain_id: int, address: Address, *, note: str, digest: str | None = None, by: str = ""
) -> Review:
    """End the evaluation as failed; BadInput or NotFound where nothing waits, or another result does."""
    review = await decide(store, chain_id, address, "rejected", note=note, now=int(time.time()), digest=digest, by=by)
    found = await read(store, chain_id, EvalStatus, status_key(address))
    if found is None or found.postedBy is None:
        status = await StatusWriter.resumed(store, chain_id, address)
        await status.say("failed", reason=f"The result was rejected in review: {note or 'no reason given'}.")
    return review


def _require(digest: str | None) -> str:
    if not digest:
        raise BadInput(
            "The digest of the result that you looked at is missing.",
            path="traceDigest",
            remedy="`clara-eval review show ADDRESS` shows it; name it with --digest.",
        )
    return digest


@dataclass(frozen=True, slots=True)
class Decree:
    """What a person rules: whom it is about, or who is asked for which stage, and why."""

    kind: RulingKind
    account: Address | None = None
    judge: str | None = None
    stage: RuledStage | None = None
    note: str = ""
    by: str = ""
    """Who rules; it stands in the public trace."""


async def rule(store: Store, chain_id: int, address: Address, decree: Decree, *, digest: str | None) -> Review:
    """Have the round walked again under a ruling; BadInput or NotFound where nothing waits, or another result does."""
    async with held(store, evaluation_lease(chain_id, address), f"review:{uuid.uuid4().hex[:8]}", 30):
        review = check_waiting(await known_review(store, chain_id, address), _require(digest))
        scores = await read(store, chain_id, Scores, scores_key(address))
        if scores is not None and scores.is_posted:
            raise BadInput(f"Scores of {address} are posted: nothing can be ruled any more.", path="address")
        _check_decree(decree, {row.address for row in scores.rankings} if scores else set())
        await _keep(store, f"{chain_id}:{address}", decree, review.digest)
        attempts = await read_attempts(store, chain_id, address)
        await save_attempts(store, chain_id, address, attempts.at_once())
        status = await StatusWriter.resumed(store, chain_id, address)
        await status.say("pending", reason="A person ruled about the result: the round is evaluated again.")
    return review


def _check_decree(decree: Decree, submitters: set[str]) -> None:
    if decree.kind == "judge":
        if decree.judge is None or decree.stage is None:
            raise BadInput("A ruling about a judge names the judge and the stage.", path="judge")
        parse_jury(decree.judge)
    elif decree.account is None or decree.account not in submitters:
        raise BadInput(
            f"{decree.account} did not submit to this challenge.",
            path="account",
            value=decree.account,
            remedy="`clara-eval review show` lists who did.",
        )


async def _keep(store: Store, run: str, decree: Decree, digest: str) -> None:
    """The ruling beside the earlier ones; what a finished walk of this run closed is open again."""
    about = (decree.account, decree.judge, decree.stage, decree.note[:NOTE_CHARS], signature(decree.by))
    ruling = Ruling(decree.kind, digest, int(time.time()), *about)
    rulings = (*(one for one in await read_rulings(store, run) if one.kind != "default"), ruling)
    for key in ("rulings", "digest", "unanswered"):
        await store.forget_entry(run, key)
    await store.add_entry(run, "rulings", RULINGS.text(rulings))
