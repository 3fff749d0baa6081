"""Build the public documents of one evaluation: features, comparisons, scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from clara_eval.chain.model import Challenge, PostedBy
from clara_eval.chain.sender import Receipt, SendOutcome
from clara_eval.chain.winners import WinnerPrize, Winners
from clara_eval.core.address import Address
from clara_eval.core.codec import camel, to_camel_json
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import ExecutedRun, LeaderboardRow
from clara_eval.documents.store_keys import features_key, pairwise_key, verdicts_key
from clara_eval.evaluation.features.extract import SubmissionFacts
from clara_eval.evaluation.play import Comparison, RuledComparisons, votes_document
from clara_eval.evaluation.result import EvaluationResult, judges_of, ruled_verdicts

_STANDING = ("elo", "low", "high", "p_top", "rank_low", "rank_high", "wins", "losses", "ties")
MOST_CRITERIA = 4000
"""Characters of the criteria that the scores repeat; all of them are in the metadata."""


def features_pairs(address: str, at: int, features: Mapping[Address, SubmissionFacts]) -> Iterator[tuple[str, str]]:
    """The facts of each entry; `at` is the time of the pinned block, so that every run writes the same."""
    for account, facts in sorted(features.items()):
        document = {**facts.to_json(), "extractedAt": at}
        yield features_key(address, account), plain_json(document)


def public_keys(address: str, at: int, result: EvaluationResult) -> Iterator[tuple[str, str]]:
    """Features and comparisons; a large round by rules has one key `verdicts` instead of its pairs."""
    yield from features_pairs(address, at, result.features)
    if isinstance(result.comparisons, RuledComparisons):
        verdicts = ruled_verdicts(result.comparisons) | result.schema.to_json() | {"schedule": result.schedule}
        yield verdicts_key(address), plain_json(verdicts)
        return
    asked: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for comparison in result.comparisons:
        asked[comparison.first, comparison.second].append(comparison)
    for (first, second), votes in asked.items():
        yield pairwise_key(address, first, second), plain_json(votes_document(votes))


def is_posted(receipt: Receipt | None) -> bool:
    """Whether scores are on chain now, also if somebody else posted them."""
    return receipt is not None and receipt.outcome in (SendOutcome.CONFIRMED, SendOutcome.ALREADY_DONE)


def scores_document(
    challenge: Challenge, result: EvaluationResult, winners: Winners, digest: str, trace_cid: str | None = None
) -> dict[str, object]:
    prizes = {w.account: str(w.prize_amount) for w in winners.entries}
    agents = {s.submitter: s.agent_id for s in challenge.submissions}
    return {
        **result_document(result, digest, leaderboard_rows(result, prizes, agents)),
        "winners": [{**to_camel_json(w), "agentId": w.agent_id} for w in winners.entries],
        "token": to_camel_json(challenge.token),
        "prizePool": str(challenge.prize_pool),
        "traceCid": trace_cid,
        "outcome": None,
        "txHash": None,
        "postedBy": None,
        "publishedAt": None,
        "blockNumber": None,
    }


def result_document(result: EvaluationResult, digest: str, rows: Sequence[LeaderboardRow]) -> dict[str, object]:
    ranking = result.ranking
    return {
        "rankings": [row.model_dump() for row in rows],
        "margin": to_camel_json(ranking.margin) | {"sentence": ranking.margin.sentence} if ranking else None,
        "consistency": to_camel_json(ranking.consistency) if ranking else None,
        "orderedBy": ranking.ordered_by if ranking else None,
        "schedule": {"name": result.schedule, "reason": result.schedule_reason, "games": len(result.comparisons)},
        "asked": {
            "title": result.given.metadata.title[:200],
            "criteria": result.given.config.criteria[:MOST_CRITERIA],
        },
        "judges": judges_of(result.comparisons),
        "flags": to_camel_json(result.flags),
        "traceDigest": digest,
    }


def with_receipt(scores: dict[str, object], receipt: Receipt, posted_at: int | None) -> dict[str, object]:
    """The scores after the post. If somebody else posted, they name no winner and no prize of ours."""
    by = (receipt.posted_by or PostedBy.EVALUATOR) if is_posted(receipt) else None
    if by not in (None, PostedBy.EVALUATOR):
        rankings = [{**row, "prizeAmount": None} for row in cast("list[dict[str, object]]", scores["rankings"])]
        scores = {**scores, "winners": [], "rankings": rankings}
    return {
        **scores,
        "outcome": receipt.outcome.value,
        "txHash": receipt.tx_hash,
        "postedBy": by,
        "publishedAt": posted_at,
        "blockNumber": receipt.block_number,
    }


def rows_on_chain(winners: Sequence[WinnerPrize]) -> list[LeaderboardRow]:
    return [
        LeaderboardRow(
            address=winner.account,
            agentId=winner.agent_id,
            rank=place,
            score=winner.score,
            prizeAmount=str(winner.prize_amount),
            status="ranked",
        )
        for place, winner in enumerate(winners, start=1)
    ]


def leaderboard_rows(
    result: EvaluationResult, prizes: Mapping[Address, str], agents: Mapping[Address, int]
) -> list[LeaderboardRow]:
    runs = result.execution.summaries if result.execution else {}
    executed = {account: ExecutedRun.model_validate(run) for account, run in runs.items()}
    places = {placed.account: number for number, placed in enumerate(result.placed, start=1)}

    def row(account: Address, score: int, **more: Any) -> LeaderboardRow:
        return LeaderboardRow(
            address=account,
            agentId=agents.get(account),
            rank=places[account],
            score=score,
            prizeAmount=prizes.get(account),
            executed=executed.get(account),
            **more,
        )

    rows = []
    if result.ranking:
        rows += [
            row(
                Address(one.item),
                one.score,
                status="ranked",
                tiedWith=list(result.ranking.tied_with(one.item)),
                **{camel(name): getattr(one, name) for name in _STANDING},
            )
            for one in result.ranking.standings
        ]
    rows += [row(r.submission.submitter, 0, status="rejected", code=r.code, reason=r.reason) for r in result.rejected]
    return sorted(rows, key=lambda one: places[Address(one.address)])
