"""Collect on one sheet what a person needs to decide about a result; for the operator only."""

from __future__ import annotations

import time
from itertools import permutations

from clara_eval.challenges.comparisons import read_comparison
from clara_eval.challenges.review import known_review
from clara_eval.core.address import Address
from clara_eval.core.codec import to_camel_json
from clara_eval.documents.results import (
    EvalStatus,
    Features,
    LeaderboardRow,
    Scores,
    Summary,
    Value,
    read,
)
from clara_eval.documents.review import ReviewSheet, ShownComparison
from clara_eval.documents.store_keys import features_key, index_key, scores_key, status_key
from clara_eval.evaluation.rulings import read_rulings
from clara_eval.evaluation.trace.journal import Journal
from clara_eval.store.sql_store import SqlStore

NEAR = 2
"""How many places on either side of the pay line are laid side by side, beside all paid ones."""


async def review_sheet(store: SqlStore, chain_id: int, address: Address) -> ReviewSheet:
    """Make the sheet of one challenge; NotFound if no review is known."""
    review = await known_review(store, chain_id, address)
    scores = await read(store, chain_id, Scores, scores_key(address))
    summary = await read(store, chain_id, Summary, index_key(address))
    status = await read(store, chain_id, EvalStatus, status_key(address))
    rows = scores.rankings if scores else []
    near = _near(rows)
    rulings = await read_rulings(Journal(store, f"{chain_id}:{address}"))
    return ReviewSheet(
        address=address,
        traceDigest=review.digest,
        state=review.state,
        reasons=list(review.reasons),
        unlessDecided=review.unless_decided if review.state == "waiting" else "",
        postsAt=review.posts_at,
        note=review.note,
        status=status.status if status else None,
        title=summary.title if summary else None,
        prizePool=scores.prizePool if scores else None,
        token=scores.token if scores else None,
        winnerCount=sum(row.prizeAmount is not None for row in rows),
        scoringDeadline=summary.scoringDeadline if summary else None,
        secondsLeft=max(0, (review.posts_at or summary.scoringDeadline) - int(time.time())) if summary else None,
        ranking=rows,
        doubts=[flag for flag in (scores.flags if scores else []) if flag.severity != "info"],
        facts=await _facts(store, chain_id, address, near),
        games=await _comparisons(store, chain_id, address, near),
        rulings=[to_camel_json(one) for one in rulings],
    )


def _near(rows: list[LeaderboardRow]) -> list[str]:
    paid = sum(row.prizeAmount is not None for row in rows)
    return [row.address for row in rows[: paid + NEAR]]


async def _facts(store: SqlStore, chain_id: int, address: Address, near: list[str]) -> dict[str, dict[str, Value]]:
    facts: dict[str, dict[str, Value]] = {}
    for account in near:
        found = await read(store, chain_id, Features, features_key(address, account))
        for name, value in found.features.items() if found else ():
            facts.setdefault(name, {})[account] = value
    return facts


async def _comparisons(store: SqlStore, chain_id: int, address: Address, near: list[str]) -> list[ShownComparison]:
    games: list[ShownComparison] = []
    for first, second in permutations(near[-2 * NEAR :], 2):
        found = await read_comparison(store, chain_id, address, first, second)
        if found is not None:
            winner = {"A": first, "B": second}.get(found.winner or "", found.winner)
            said = found.model_dump(exclude={"votes", "winner"})
            games.append(ShownComparison(first=first, second=second, winner=winner, **said))
    return games
