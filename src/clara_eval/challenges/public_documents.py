"""Build the public documents of one evaluation: features, comparisons, scores, misplaced money."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clara_eval.chain.model import Challenge, WinnerPrize, Winners, worth_micro_usd
from clara_eval.challenges.prepare import RoundCase
from clara_eval.core.address import Address
from clara_eval.core.codec import camel, to_camel_json
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import ExecutedRun, LeaderboardRow, Misplaced
from clara_eval.documents.store_keys import calibration_key, features_key, pairwise_key, verdicts_key
from clara_eval.evaluation.features.extract import SubmissionFacts
from clara_eval.evaluation.play import Comparison, RuledComparisons, votes_document
from clara_eval.evaluation.result import EvaluationResult, judges_of, ruled_verdicts
from clara_eval.evaluation.review_rules import misplaced_money
from clara_eval.judge.calibration_gate import CALIBRATION, Calibration, prompt_hash, work_hash
from clara_eval.store.sql_store import PublicKeys

_STANDING = ("elo", "low", "high", "p_top", "rank_low", "rank_high", "wins", "losses", "ties")
MOST_CRITERIA = 4000  # Characters of the criteria that the scores repeat; all of them are in the metadata


def features_pairs(address: str, at: int, features: Mapping[Address, SubmissionFacts]) -> Iterator[tuple[str, str]]:
    """Yield key and facts of each entry; `at` is the time of the pinned block, so that runs agree."""
    for account, facts in sorted(features.items()):
        yield features_key(address, account), plain_json({**facts.to_json(), "extractedAt": at})


def public_keys(address: str, at: int, result: EvaluationResult) -> Iterator[tuple[str, str]]:
    """Yield features and comparisons; a large round by rules has one key `verdicts` instead of pairs."""
    yield from features_pairs(address, at, result.features)
    if isinstance(result.comparisons, RuledComparisons):
        verdicts = ruled_verdicts(result.comparisons) | result.schema.to_json() | {"schedule": result.schedule}
        yield verdicts_key(address), plain_json(verdicts)
        return
    by_pair: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for comparison in result.comparisons:
        by_pair[comparison.first, comparison.second].append(comparison)
    for (first, second), votes in by_pair.items():
        yield pairwise_key(address, first, second), plain_json(votes_document(votes))


def scores_document(
    challenge: Challenge, result: EvaluationResult, winners: Winners, digest: str, trace_cid: str | None = None
) -> dict[str, Any]:
    prizes = {w.account: str(w.prize_amount) for w in winners.entries}
    agents = {s.submitter: s.agent_id for s in challenge.submissions}
    return {
        **result_document(result, digest, leaderboard_rows(result, prizes, agents)),
        "winners": [{**to_camel_json(w), "agentId": w.agent_id} for w in winners.entries],
        "token": to_camel_json(challenge.token),
        "prizePool": str(challenge.prize_pool),
        "traceCid": trace_cid,
        **dict.fromkeys(("outcome", "txHash", "postedBy", "publishedAt", "blockNumber")),
    }


def result_document(result: EvaluationResult, digest: str, rows: Sequence[LeaderboardRow]) -> dict[str, object]:
    ranking = result.ranking
    return {
        "rankings": [row.model_dump() for row in rows],
        "margin": to_camel_json(ranking.margin) | {"sentence": ranking.margin.sentence} if ranking else None,
        "consistency": to_camel_json(ranking.consistency) if ranking else None,
        "orderedBy": ranking.ordered_by if ranking else None,
        "schedule": {"name": result.schedule, "reason": result.schedule_reason, "games": len(result.comparisons)},
        "asked": {"title": result.given.metadata.title[:200], "criteria": result.given.config.criteria[:MOST_CRITERIA]},
        "judges": judges_of(result.comparisons),
        "flags": to_camel_json(result.flags),
        "traceDigest": digest,
    }


def rows_on_chain(winners: Sequence[WinnerPrize]) -> list[LeaderboardRow]:
    return [
        _row(place, one.account, one.agent_id, one.score, str(one.prize_amount), {"status": "ranked"})
        for place, one in enumerate(winners, start=1)
    ]


def _row(
    rank: int, account: str, agent: int | None, score: int, prize: str | None, more: Mapping[str, object]
) -> LeaderboardRow:
    fields = {"address": account, "agentId": agent, "rank": rank, "score": score, "prizeAmount": prize}
    return LeaderboardRow.model_validate(fields | dict(more))


def leaderboard_rows(
    result: EvaluationResult, prizes: Mapping[Address, str], agents: Mapping[Address, int]
) -> list[LeaderboardRow]:
    runs = result.execution.executed if result.execution else {}
    executed = {account: ExecutedRun.model_validate(run.summary()) for account, run in runs.items()}
    places = {placed.account: number for number, placed in enumerate(result.placed, start=1)}

    def row(account: Address, score: int, more: dict[str, object]) -> LeaderboardRow:
        values = (places[account], account, agents.get(account), score, prizes.get(account))
        return _row(*values, more | {"executed": executed.get(account)})

    rows = [
        row(one.submission.submitter, 0, {"status": "rejected", "code": one.code, "reason": one.reason})
        for one in result.rejected
    ]
    ranking = result.ranking
    for one in ranking.standings if ranking else ():
        more: dict[str, object] = {camel(name): getattr(one, name) for name in _STANDING} | {"status": "ranked"}
        more["tiedWith"] = list(ranking.tied_with(one.item)) if ranking else []
        rows.append(row(Address(one.item), one.score, more))
    return sorted(rows, key=lambda one: places[Address(one.address)])


async def keep_calibration(store: PublicKeys, chain_id: int, found: Calibration) -> None:
    await store.put(chain_id, calibration_key(found.judge, found.prompt, found.work), CALIBRATION.text(found))


async def known_calibration(keys: PublicKeys, chain_id: int, judge: str, prompt: str, work: str) -> Calibration | None:
    """Return the calibration for this kind of work, else the one with the most labels."""
    rows = await keys.items(chain_id, calibration_key(judge, prompt, ""))
    found = [CALIBRATION.read_text(text) for _, text in rows]
    exact = [one for one in found if one.work == work]
    return max(exact or found, key=lambda one: (one.labels, one.work), default=None)


async def calibrations(case: RoundCase, result: EvaluationResult) -> dict[str, Calibration | None]:
    """Return the calibration of each judge that voted; empty for rules, which need none."""
    if isinstance(result.comparisons, RuledComparisons):
        return {}
    voters = sorted({comparison.judge for comparison in result.comparisons if comparison.winner is not None})
    if "rules" in voters:
        return {}
    store, chain, work = case.ports.store, case.challenge.chain_id, work_hash(case.given.config, result.schema)
    return {judge: await known_calibration(store, chain, judge, prompt_hash(), work) for judge in voters}


def prize_usd(case: RoundCase) -> float | None:
    worth = worth_micro_usd(case.challenge.token, case.challenge.prize_pool, case.options.settings.network)
    return None if worth is None else worth / 1_000_000


async def misplaced(case: RoundCase, result: EvaluationResult) -> dict[str, object] | None:
    """Build the document about misplaced money (`Misplaced`); None without a ranking."""
    ranking, worth = result.ranking, prize_usd(case)
    if ranking is None:
        return None
    judges = (await calibrations(case, result)).items()
    agreement = "; ".join(_agreement(judge, found) for judge, found in judges) or "rules: no calibration needed"
    return Misplaced(
        share=ranking.misallocation,
        usd=None if worth is None else round(ranking.misallocation * worth, 2),
        decidingVerdicts=ranking.deciding_verdicts,
        calibration=agreement,
        sentence=f"{misplaced_money(ranking, worth)} ({agreement}).",
    ).model_dump(mode="json")


def _agreement(judge: str, found: Calibration | None) -> str:
    if found is None or found.clear.value is None:
        return f"{judge}: not calibrated"
    guarantee = "no guarantee from so few labels" if found.alone is None else found.alone.sentence
    return f"{judge}: agrees with people on {found.clear.value:.0%} of clear pairs; {guarantee}"
