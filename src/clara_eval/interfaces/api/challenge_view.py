"""Template values for the pages of a challenge, of its entries, and of comparisons of two entries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from clara_eval.actions.evidence import approval_of, difference, evaluator_record, exchanges, submitted_work
from clara_eval.actions.objections import read_draft
from clara_eval.actions.published import JudgingBasis, ResultReader
from clara_eval.config.eval_config.model import Feature
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import NotFound
from clara_eval.core.model import FINALIZATION_SECONDS
from clara_eval.documents import results
from clara_eval.documents.rest import ChallengeDetail, ChallengeSummary
from clara_eval.documents.results import Features, LeaderboardRow, Played, Scores, Value
from clara_eval.interfaces.api import templating as wording
from clara_eval.interfaces.api.context import known_address
from clara_eval.interfaces.api.templating import Phase

T = TypeVar("T")
PAGE_ROWS = 50  # of the leaderboard
KEY_FACTS = 2  # facts shown in each row of the leaderboard
SIDE_BY_SIDE = 8  # entries whose facts are shown side by side
MATRIX_ENTRIES = 12  # in the win matrix; the pages of the entries have all comparisons
SHOWN_RIVALS = 24  # nearest rivals whose comparisons are shown
SHOWN_LINES = 1_500  # of a submission on its page; the download has all lines
Verdicts = list[tuple[results.Outcome, bool, results.Pairwise]]  # outcome, whether shown first, the comparison


class Card(NamedTuple):
    row: ChallengeSummary
    phase: Phase

    @property
    def is_live(self) -> bool:
        return self.row.evaluation.status in wording.RUNNING


def card_of(row: ChallengeSummary, now: float) -> Card:
    return Card(row, wording.phase(row, now))


def paginate(rows: Sequence[T], page: int, size: int) -> tuple[Sequence[T], int, int]:
    """Return the rows of a page, its number within bounds, and the number of pages."""
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, page), pages)
    return rows[(page - 1) * size : page * size], page, pages


BOARD_SORTS: dict[str, Callable[[LeaderboardRow], float]] = {
    "chance": lambda row: -(row.pTop or 0.0),
    "wins": lambda row: -(row.wins or 0.0),
    "score": lambda row: -(row.score or 0),
}


def leaderboard_page(scores: Scores, page: int, sort: str = "") -> tuple[Sequence[LeaderboardRow], dict[str, object]]:
    """Return the rows of one page and its other values; a bar is left end, width and rating, in percent."""
    ranked, paid = scores.ranked, sum(row.is_paid for row in scores.ranked)
    low = min((row.low for row in ranked if row.low is not None), default=0.0)
    high = max((row.high for row in ranked if row.high is not None), default=1.0)

    def at(value: float) -> float:
        return round(100 * (value - low) / ((high - low) or 1.0), 2)

    def bar(row: LeaderboardRow) -> tuple[float, float, float] | None:
        if row.elo is None or row.low is None or row.high is None:
            return None
        left = at(row.low)
        return left, 0.0 if row.low == row.high else round(max(0.8, at(row.high) - left), 2), at(row.elo)

    line = None  # the pay line, half-way between the last paid and the first unpaid rating
    if 0 < paid < len(ranked):
        last, following = ranked[paid - 1].elo, ranked[paid].elo
        line = at((last + following) / 2) if last is not None and following is not None else None
    is_sorted = sort in BOARD_SORTS
    rows, page, pages = paginate(sorted(ranked, key=BOARD_SORTS[sort]) if is_sorted else ranked, page, PAGE_ROWS)
    return rows, {
        "rows": rows,
        "bars": {row.address: bar(row) for row in rows},
        # The pay line only makes sense in the order of ranks.
        "below": ranked[paid].address if 0 < paid < len(ranked) and not is_sorted else None,
        "podium": [row for row in ranked[:3] if row.is_paid],
        "rejected": [row for row in scores.rankings if not row.is_ranked],
        "ranked": len(ranked),
        "paid": paid,
        "page": page,
        "pages": pages,
        "line": line,
        "is_exact": all(row.low is not None and row.low == row.high for row in rows),
    }


def entries_near_pay_line(scores: Scores, most: int) -> list[str]:
    """Return the best entries and those on both sides of the pay line."""
    ranked, half = scores.ranked, most // 2
    near = max(half, min(sum(row.is_paid for row in ranked) - half // 2, len(ranked) - half))
    return [row.address for row in (*ranked[:half], *ranked[near : near + half])]


class Step(NamedTuple):
    name: str
    at: int | None
    state: str  # `done`, `now` or `next`
    said: str = ""
    tx: str | None = None
    who: str | None = None
    amount: str | None = None  # base units of the prize token


async def challenge_view(
    reader: ResultReader, address: Address, number: int, settings: Settings, wanted: str = "", sort: str = ""
) -> dict[str, object]:
    found = await reader.detail(address, admin=False)
    now = time.time()
    scores = found.leaderboard
    if scores is not None:
        # The summary may be older than the last entry; the ranking has all entries.
        found.submissionCount = max(found.submissionCount, len(scores.rankings))
    created, claims = await reader.history(address)
    approval = await approval_of(reader, address) if scores else ""
    phase = wording.phase(found, now)
    is_open = phase.label == "Open"
    is_moving = found.chainStatus in {"open", "scoring"} and found.evaluation.status not in results.FINAL_STATES
    claimable_at = found.scorePostedAt + FINALIZATION_SECONDS if found.scorePostedAt else 0
    values = {
        "found": found,
        "phase": phase,
        "is_live": scores is None and is_moving and not is_open,
        "record": await evaluator_record(reader.store, reader.chain_id, found.evaluator) if is_open else None,
        "draft": await read_draft(reader.store, reader.chain_id, address) if phase.label == "Objections open" else None,
        "now": int(now),
        "claimable": bool(found.chainId) and (phase.label in {"Final", "Expired"} or 0 < claimable_at <= now),
        "explorer": settings.network.explorer,
        "steps": timeline(found, scores, int(now), created, claims, approval),
        "money": wording.money(await reader.spent(address), found.evaluation, settings.budget_per_challenge_usd),
        "has_trace": found.traceDigest is not None and reader.traces_public != "never",
        "network": settings.network_name,
        "own_evaluator": reader.evaluator,
        "leaderboard": None,
    }
    if scores is None:
        return values
    text = wanted.strip().lower()  # the start of an entry's address, or its agent's id
    by_address = text.startswith("0x") and len(text) > 3
    fitting = [row for row in scores.rankings if (row.address[: len(text)] if by_address else str(row.agentId)) == text]
    at = fitting[0].address if fitting else None
    place = next((place for place, row in enumerate(scores.ranked) if row.address == at), None)
    number = number if place is None else place // PAGE_ROWS + 1
    result = await _result_values(reader, address, scores, number, sort)
    return values | result | {"wanted": wanted, "at": at, "sort": sort}


async def _result_values(
    reader: ResultReader, address: Address, scores: Scores, number: int, sort: str
) -> dict[str, object]:
    judging = await reader.judging(address, scores)
    weights = feature_weights(judging)
    near, matrix = entries_near_pay_line(scores, SIDE_BY_SIDE), entries_near_pay_line(scores, MATRIX_ENTRIES)
    rows, leaderboard = leaderboard_page(scores, number, sort)
    facts = await reader.features_of(address, scores, list(dict.fromkeys([*near, *(row.address for row in rows)])))
    fact_names, row_facts = key_facts(rows, facts, {feature.name: share for feature, share in weights})
    # Prefer the judges that compared: a poster can ask for rules although the operator has models.
    compared = [judge.judge for judge in scores.consistency.judges] if scores.consistency else []
    return {
        "scores": scores,
        "leaderboard": {**leaderboard, "fact_names": fact_names, "facts": row_facts},
        "judging": judging,
        "judged_by": compared or list(judging.judges if judging else ()),
        "weights": weights,
        "near": [account for account in near if account in facts],
        "facts": facts,
        "feature_names": feature_names(weights, facts),
        "matrix": matrix,
        "cells": win_matrix(await reader.comparisons_among(address, scores, matrix)),
    }


def feature_weights(judging: JudgingBasis | None) -> list[tuple[Feature, float]]:
    """Return the judged features with their share of the total weight, the heaviest first."""
    judged = judging.schema.judged if judging else ()
    total = sum(feature.weight for feature in judged) or 1.0
    return sorted(((feature, feature.weight / total) for feature in judged), key=lambda pair: -pair[1])


def feature_names(weights: list[tuple[Feature, float]], facts: dict[str, Features]) -> list[str]:
    """Return the names of the facts: judged ones by weight, then the others by name."""
    judged = [feature.name for feature, _ in weights]
    present = {name for found in facts.values() for name in found.features}
    return [name for name in judged if name in present] + sorted(present.difference(judged))


def key_facts(
    rows: Sequence[LeaderboardRow], facts: dict[str, Features], weights: dict[str, float]
) -> tuple[list[str], dict[str, list[Value]]]:
    """Return the names and values of the facts shown in the rows.

    After a harness run: tests and the first metric (or gas or fuel); otherwise the heaviest facts that differ.
    """
    known: dict[str, dict[str, Value]] = {}
    if runs := {row.address: row.executed for row in rows if row.executed is not None}:
        metrics = sorted({name for run in runs.values() for name in run.metrics})[: KEY_FACTS - 1]
        names = ["tests", *(metrics or ["fuel" if any(run.fuel for run in runs.values()) else "gas"])]
        for address, run in runs.items():
            tests = run.outcome.replace("_", " ") if run.testsPassed is None else f"{run.testsPassed}/{run.tests}"
            known[address] = {**run.metrics, "tests": tests, "gas": run.gas, "fuel": run.fuel}
    else:
        known = {address: one.features for address, one in facts.items()}
        present = dict.fromkeys(name for features in known.values() for name in features)
        differing = [name for name in present if len({features.get(name) for features in known.values()}) > 1]
        names = sorted(differing, key=lambda name: -weights.get(name, 1.0))[:KEY_FACTS]
    return names, {row.address: [known.get(row.address, {}).get(name) for name in names] for row in rows}


def win_matrix(games: Played) -> dict[tuple[str, str], tuple[float, int]]:
    """Return points of the first entry and number of comparisons by pair, both orders together."""
    points = {"won": 1.0, "lost": 0.0, "tie": 0.5}
    found: dict[tuple[str, str], list[float]] = {}
    for (first, second), game in games.items():
        for one, other in ((first, second), (second, first)):
            if (result := game.outcome(shown_first=one == first)) != "undecided":
                found.setdefault((one, other), []).append(points[result])
    return {pair: (sum(scores), len(scores)) for pair, scores in found.items()}


def timeline(
    found: ChallengeSummary,
    scores: Scores | None,
    now: int,
    created: results.Created | None = None,
    claims: results.PrizeClaims | None = None,
    approval: str = "",
) -> list[Step]:
    phase, closed = wording.phase(found, now), now >= found.deadline
    posted = found.scorePostedAt or (scores.publishedAt if scores else None)
    steps = [Step("Created", created.at, "done", "The prize is in escrow.", created.txHash)] if created else []
    entries = wording.counted(found.submissionCount, "entry", "entries")
    steps.append(Step("Entries close", found.deadline, "done" if closed else "now", f"{entries}."))
    if found.chainStatus in {"cancelled", "expired"}:
        return [*steps, Step(phase.label, None, "done", phase.sentence)]
    judged = "done" if posted or found.evaluation.progress == 100 else "now" if closed else "next"
    started = found.evaluation.startedAt if closed else None
    if started and posted and started > posted:  # the clock of this machine is ahead of the chain
        started = None
    said = "" if posted or not closed else "Under way." if phase.tone == "busy" else phase.sentence
    steps.append(Step("Scoring", started, judged, said))
    if not posted:
        shared = "Without scores by then every submitter can claim an equal share."
        deadline = Step("Scoring deadline", found.scoringDeadline, "next", shared)
        return [*steps, Step("Scores posted", None, "next"), deadline]
    final = found.chainStatus == "finalized"
    by = f"By the {found.postedBy}. {approval}".strip() if found.postedBy else ""
    free = "Prizes can be claimed." if final else "Prizes can be claimed from then on."
    steps += [
        Step("Scores posted", posted, "done", by, scores.txHash if scores else None),
        Step("Final" if final else "Finalizes", posted + FINALIZATION_SECONDS, "done" if final else "now", free),
    ]
    return [*steps, *(_claim_steps(found, claims) if final else [Step("Claimed", None, "next")])]


def _claim_steps(found: ChallengeSummary, claims: results.PrizeClaims | None) -> list[Step]:
    taken, of = (claims.claims, claims.winners) if claims else ([], found.winnerCount)
    shown = [Step("Claimed", claim.at, "done", "", claim.txHash, claim.address, claim.amount) for claim in taken[-5:]]
    if left := of - len(taken):
        shown.append(Step("Claims", None, "now", wording.counted(left, "prize is", "prizes are") + " not claimed yet."))
    return shown


async def posted_scores(reader: ResultReader, address: Address, *, admin: bool) -> tuple[ChallengeDetail, Scores]:
    """Return the challenge and its ranking; raise NotPublic before the post."""
    found = await reader.detail(address, admin=admin)
    return found, found.leaderboard or await reader.leaderboard(address, admin=admin)


def find_row(scores: Scores, account: str, address: Address) -> LeaderboardRow:
    row = next((row for row in scores.rankings if row.address == account), None)
    if row is None:
        raise NotFound(f"{account} has no entry in {address}.", remedy="The leaderboard names every entry.")
    return row


async def entry_view(
    reader: ResultReader, address: Address, account: Address, against: str, *, admin: bool = False
) -> dict[str, object]:
    """Compare an entry with the rival at the pay line, and its submission with that of `against` if given."""
    rival = known_address(against) if against else None
    found, scores = await posted_scores(reader, address, admin=admin)
    row = find_row(scores, account, address)
    ranked = scores.ranked
    others = [other for other in ranked if other.address != row.address] if row.is_ranked else []
    rivals = sorted(others, key=lambda one: (abs((one.rank or 0) - (row.rank or 0)), one.rank or 0))[:SHOWN_RIVALS]
    games = await reader.comparisons_of(address, scores, account, [one.address for one in rivals])
    across = [other for other in ranked if other.is_paid != row.is_paid] if row.is_ranked else []
    target = across[0 if row.is_paid else -1] if across else None  # the rival at the pay line
    facts = await reader.features_of(address, scores, [account, *([target.address] if target else [])])
    weights = feature_weights(await reader.judging(address, scores))
    return {
        "found": found,
        "row": row,
        "ranked": len(ranked),
        "facts": facts.get(account),
        "feature_names": feature_names(weights, facts),
        "target": target,
        "gaps": compare_facts(account, target, facts, weights),
        "change": await reader.place_change(address, scores, account),
        "matches": verdicts_by_rival(row, rivals, games),
        "flags": [flag for flag in scores.flags if flag.account == account],
        **await _submission_values(reader, address, scores, row, rival or (target.address if target else None)),
    }


async def _submission_values(
    reader: ResultReader, address: Address, scores: Scores, row: LeaderboardRow, rival: str | None
) -> dict[str, object]:
    """Return the submission, its tests, and its diff to `rival`, or else to the entry that it copies."""
    work = (await submitted_work(reader, address, scores, [row.address])).get(row.address)
    like = work.like if work and not row.is_ranked else ""
    chosen = rival if rival != row.address else None
    found = await submitted_work(reader, address, scores, [one for one in (chosen or like,) if one])
    other, text = next(iter(found.values()), None), work.text if work else None
    other_text = other.text if other else None
    is_known = text is not None and other_text is not None
    return {
        "work": work,
        "lines": text.splitlines() if text else [],
        "most_lines": SHOWN_LINES,
        "is_private": reader.traces_public == "never",
        "posted_by": None if scores.traceDigest else scores.postedBy or "somebody else",
        "rival": next(iter(found), None) if is_known else None,
        "others": {call["name"]: call for call in other.calls} if other else {},
        "is_equal": text == other_text,
        "difference": await asyncio.to_thread(difference, other_text or "", text or "") if is_known else [],
    }


def verdicts_by_rival(
    row: LeaderboardRow, rivals: list[LeaderboardRow], games: Played
) -> list[tuple[LeaderboardRow, Verdicts]]:
    """Return the rivals that the entry was compared with, and the verdicts about each."""
    found: dict[str, Verdicts] = {}
    for (first, second), game in games.items():
        is_first = first == row.address
        verdict = (game.outcome(shown_first=is_first), is_first, game)
        found.setdefault(second if is_first else first, []).append(verdict)
    return [(rival, found[rival.address]) for rival in rivals if rival.address in found]


def compare_facts(
    account: str, target: LeaderboardRow | None, facts: dict[str, Features], weights: list[tuple[Feature, float]]
) -> list[dict[str, object]]:
    """Compare two entries fact by fact, the heaviest first, and say which one is ahead."""
    if target is None or account not in facts or target.address not in facts:
        return []
    found: list[dict[str, object]] = []
    for feature, share in weights:
        own, other = (facts[one].features.get(feature.name) for one in (account, target.address))
        ahead = is_ahead(feature, own, other)
        found.append({"name": feature.name, "own": own, "other": other, "share": share, "ahead": ahead})
    return found


def is_ahead(feature: Feature, own: Value, other: Value) -> bool | None:
    """Return whether the first value is better by the poster's direction; None if equal or not comparable."""
    if own == other or own is None or other is None or feature.better is None:
        return None
    if feature.type == "enum":
        order = {value: place for place, value in enumerate(feature.values)}
        first, second = float(order.get(str(own), -1)), float(order.get(str(other), -1))
    elif isinstance(own, str) or isinstance(other, str):
        return None
    else:
        first, second = float(own), float(other)
    return first > second if feature.better == "higher" else first < second


async def game_view(
    reader: ResultReader, address: Address, one: Address, other: Address, *, admin: bool = False
) -> dict[str, object]:
    found, scores = await posted_scores(reader, address, admin=admin)
    left, right = find_row(scores, one, address), find_row(scores, other, address)
    games = await reader.comparisons_of(address, scores, one, [other])
    if not games:
        raise NotFound(
            f"No comparison of {one} with {other} is recorded here.", remedy="Not every pair meets in a large field."
        )
    weights = feature_weights(await reader.judging(address, scores))
    has_model = any(vote.judge != "rules" for game in games.values() for vote in game.votes)
    return {
        "found": found,
        "left": left,
        "right": right,
        "games": games,
        "pair": compare_facts(one, right, await reader.features_of(address, scores, [one, other]), weights),
        "exchanges": await exchanges(reader, address, scores, one, other) if has_model else [],
    }
