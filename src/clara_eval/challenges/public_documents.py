"""The specification's public keys of one evaluation: features, pairwise results, scores; and the plots beside them.

Pure: a walk comes in, (key, JSON text) pairs go out. Addresses are lower case. `pairwise:{a}:{b}` is the question in
which `a` was shown first, as A; with a jury every vote is listed and the majority stands at the top. A large round by
rules has one key `verdicts` instead, from which every pair follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from clara_eval.chain.model import Challenge
from clara_eval.chain.posted import PostedBy
from clara_eval.chain.sender import Receipt, SendOutcome
from clara_eval.chain.winners import WinnerPrize
from clara_eval.challenges.plots import ratings_svg, win_matrix_svg
from clara_eval.core.address import Address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import ExecutedRun, LeaderboardRow
from clara_eval.documents.store_keys import features_key, pairwise_key, verdicts_key
from clara_eval.evaluation.play import Comparison
from clara_eval.evaluation.record import ruled_verdicts
from clara_eval.evaluation.ruled import RuledComparisons
from clara_eval.evaluation.run import EvaluationResult, judges_of, tally_of
from clara_eval.evaluation.votes import votes_document

MOST_CRITERIA = 4000
"""Characters of the criteria that the scores repeat; all of them are in the metadata."""


def public_keys(challenge: Challenge, walked: EvaluationResult, *, extracted_at: int) -> Iterator[tuple[str, str]]:
    """Features and pairwise results, ready to be put; there may be a hundred thousand."""
    for account, facts in sorted(walked.features.items()):
        yield features_key(challenge.address, account), plain_json({**facts.to_json(), "extractedAt": extracted_at})
    if isinstance(walked.comparisons, RuledComparisons):
        verdicts = ruled_verdicts(walked.comparisons) | walked.schema.to_json() | {"schedule": walked.schedule}
        yield verdicts_key(challenge.address), plain_json(verdicts)
        return
    asked: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for comparison in walked.comparisons:
        asked[comparison.first, comparison.second].append(comparison)
    for (first, second), votes in asked.items():
        yield pairwise_key(challenge.address, first, second), plain_json(votes_document(votes))


def plots_document(walked: EvaluationResult, digest: str) -> dict[str, str]:
    """The pictures of one ranking as SVG, tied to the trace that they show; none where nothing was ranked."""
    if walked.ranking is None:
        return {"traceDigest": digest}
    items = [standing.item for standing in walked.ranking.standings]
    matrix = win_matrix_svg(walked.ranking, tally_of(items, walked.comparisons))
    return {"traceDigest": digest, "ratings": ratings_svg(walked.ranking), "matrix": matrix}


def is_posted(receipt: Receipt | None) -> bool:
    """Whether scores stand on the chain now, whoever posted them."""
    return receipt is not None and receipt.outcome in (SendOutcome.CONFIRMED, SendOutcome.ALREADY_DONE)


def scores_document(
    challenge: Challenge,
    walked: EvaluationResult,
    digest: str,
    receipt: Receipt | None,
    published_at: int | None = None,
    trace_cid: str | None = None,
) -> dict[str, object]:
    """The `scores` key: everybody's place, the money, and how far to trust it. Where somebody else posted, nobody is
    called a winner of ours, and no prize is named: what was paid is on the chain.
    """
    ranking = walked.ranking
    by = (receipt.posted_by or PostedBy.EVALUATOR) if receipt and is_posted(receipt) else None
    winners = walked.winners.entries if by in (None, PostedBy.EVALUATOR) else ()
    return {
        "rankings": _rankings(challenge, walked, {w.account: str(w.prize_amount) for w in winners}),
        "winners": [{**to_camel_json(w), "agentId": w.agent_id} for w in winners],
        "margin": to_camel_json(ranking.margin) | {"sentence": ranking.margin.sentence} if ranking else None,
        "consistency": to_camel_json(ranking.consistency) if ranking else None,
        "orderedBy": ranking.ordered_by if ranking else None,
        "schedule": {"name": walked.schedule, "reason": walked.schedule_reason, "games": len(walked.comparisons)},
        "asked": {"title": walked.metadata.title[:200], "criteria": walked.metadata.config.criteria[:MOST_CRITERIA]},
        "judges": judges_of(walked.comparisons),
        "flags": to_camel_json(walked.flags),
        "token": to_camel_json(challenge.token),
        "prizePool": str(challenge.prize_pool),
        "traceDigest": digest,
        "traceCid": trace_cid,
        "outcome": receipt.outcome.value if receipt else None,
        "txHash": receipt.tx_hash if receipt else None,
        "postedBy": by,
        "publishedAt": published_at,
        "blockNumber": receipt.block_number if receipt else None,
    }


def rows_on_chain(winners: Sequence[WinnerPrize]) -> list[LeaderboardRow]:
    """The paid places as the contract holds them; nothing is known about the others."""
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


def _rankings(challenge: Challenge, walked: EvaluationResult, prizes: dict[Address, str]) -> list[dict[str, object]]:
    agents = {s.submitter: s.agent_id for s in challenge.submissions}
    runs = walked.execution.summaries if walked.execution else {}
    executed = {account: ExecutedRun.model_validate(run) for account, run in runs.items()}
    ranked = list(walked.ranking.standings) if walked.ranking else []
    places = {placed.account: number for number, placed in enumerate(walked.placed, start=1)}
    rows = [
        LeaderboardRow(
            address=s.item,
            agentId=agents[Address(s.item)],
            rank=places[Address(s.item)],
            score=s.score,
            elo=s.elo,
            low=s.low,
            high=s.high,
            pTop=s.p_top,
            rankLow=s.rank_low,
            rankHigh=s.rank_high,
            wins=s.wins,
            losses=s.losses,
            ties=s.ties,
            tiedWith=list(walked.ranking.tied_with(s.item)) if walked.ranking else [],
            prizeAmount=prizes.get(Address(s.item)),
            status="ranked",
            executed=executed.get(Address(s.item)),
        )
        for s in ranked
    ]
    for refused in walked.rejected:
        account = refused.submission.submitter
        rows.append(
            LeaderboardRow(
                address=account,
                agentId=agents[account],
                rank=places[account],
                score=0,
                prizeAmount=prizes.get(account),
                status="rejected",
                code=refused.code,
                reason=refused.reason,
                executed=executed.get(account),
            )
        )
    return [row.model_dump() for row in sorted(rows, key=lambda row: places[Address(row.address)])]
