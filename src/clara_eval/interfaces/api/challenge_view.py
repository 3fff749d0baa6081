"""The values of the list of challenges and of the page of one: leaderboard, facts, win matrix, timeline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, Field

from clara_eval.actions.challenges import FINALIZATION_SECONDS
from clara_eval.actions.evidence import approval_of, evaluator_record
from clara_eval.actions.objections import read_draft
from clara_eval.actions.published import JudgingBasis, ResultReader
from clara_eval.config.eval_config.model import Feature
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.documents import results
from clara_eval.documents.rest import ChallengeSummary
from clara_eval.documents.results import Created, Features, LeaderboardRow, Played, PrizeClaims, Scores, Value
from clara_eval.interfaces.api import wording
from clara_eval.interfaces.api.wording import Phase

T = TypeVar("T")
PAGE_CARDS = 24
MOST_SKILLS = 12
PAGE_ROWS = 50
PODIUM = 3
KEY_FACTS = 2
SIDE_BY_SIDE = 8  # entries whose facts are shown side by side
MOST_CLAIMS = 5  # the last claims in the timeline
MATRIX = 12  # entries in the win matrix; all comparisons are on the entries' pages


@dataclass(frozen=True, slots=True)
class Card:
    row: ChallengeSummary
    phase: Phase

    @property
    def is_live(self) -> bool:
        return self.row.evaluation.status in wording.RUNNING


class ListQuery(BaseModel):
    status: str = Field("", max_length=20)
    skill: str = Field("", max_length=60)
    q: str = Field("", max_length=200)
    sort: str = Field("", max_length=20)
    page: int = Field(1, ge=1, le=100_000)

    def link(self, **changes: object) -> str:
        asked = {**self.model_dump(), **changes}
        kept = {name: value for name, value in asked.items() if value and (name, value) != ("page", 1)}
        return "/?" + urlencode(kept) if kept else "/"


def card_of(row: ChallengeSummary, now: float) -> Card:
    return Card(row, wording.phase(row, now))


def paged(rows: Sequence[T], page: int, size: int) -> tuple[Sequence[T], int, int]:
    """The rows of a page, its number within the bounds, and how many pages there are."""
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, page), pages)
    return rows[(page - 1) * size : page * size], page, pages


def listed(
    rows: Sequence[ChallengeSummary], wanted: ListQuery, now: float, entered: Collection[str] = ()
) -> dict[str, object]:
    """One page of the challenges that pass, in the order that is asked for."""
    cards = [card_of(row, now) for row in rows]
    passing = [card for card in cards if _passes(card, wanted, entered)]
    shown, page, pages = paged(sorted(passing, key=SORTS.get(wanted.sort, _by_urgency)), wanted.page, PAGE_CARDS)
    skills = Counter(skill.lower() for card in cards for skill in set(card.row.skills))
    counts = Counter(card.phase.group for card in cards)
    groups = {name: (heading, counts[name]) for name, heading in wording.GROUPS.items()}
    skills_shown = sorted(skill for skill, _ in skills.most_common(MOST_SKILLS))
    return {
        "cards": shown, "known": len(cards), "page": page, "pages": pages, "groups": groups, "skills": skills_shown
    }  # fmt: skip


def _by_urgency(card: Card) -> tuple[object, ...]:
    """Being judged first, then the open ones by what closes next, then the latest."""
    is_open, deadline = card.phase.label == "Open", card.row.deadline
    return (not card.is_live, not is_open, deadline if is_open else -deadline)


SORTS: dict[str, Callable[[Card], tuple[object, ...]]] = {
    "prize": lambda card: (-int(card.row.prizePool) / 10**card.row.token.decimals,),
    "entries": lambda card: (-card.row.submissionCount,),
    "newest": lambda card: (-card.row.deadline,),
}


def _passes(card: Card, wanted: ListQuery, entered: Collection[str]) -> bool:
    row = card.row
    if wanted.status in wording.GROUPS and card.phase.group != wanted.status:
        return False
    if wanted.skill and wanted.skill.lower() not in (skill.lower() for skill in row.skills):
        return False
    if row.address in entered:
        return True
    text = f"{row.title} {row.problemStatement} {row.address} {row.poster}".lower()
    return all(word in text for word in wanted.q.lower().split())


BOARD_SORTS: dict[str, Callable[[LeaderboardRow], float]] = {
    "chance": lambda row: -(row.pTop or 0.0),
    "wins": lambda row: -(row.wins or 0.0),
    "score": lambda row: -(row.score or 0),
}


def leaderboard_of(scores: Scores, page: int, sort: str = "") -> tuple[Sequence[LeaderboardRow], dict[str, object]]:
    """The rows of one page, and what is drawn around them; bars are left end, width and rating, in percent."""
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

    line = None  # half-way between the last that is paid and the first that is not
    if 0 < paid < len(ranked):
        last, following = ranked[paid - 1].elo, ranked[paid].elo
        line = at((last + following) / 2) if last is not None and following is not None else None
    is_sorted = sort in BOARD_SORTS
    rows, page, pages = paged(sorted(ranked, key=BOARD_SORTS[sort]) if is_sorted else ranked, page, PAGE_ROWS)
    return rows, {
        "rows": rows,
        "bars": {row.address: bar(row) for row in rows},
        # no pay line among rows in another order
        "below": ranked[paid].address if 0 < paid < len(ranked) and not is_sorted else None,
        "podium": [row for row in ranked[:PODIUM] if row.is_paid],
        "rejected": [row for row in scores.rankings if not row.is_ranked],
        "ranked": len(ranked),
        "paid": paid,
        "page": page,
        "pages": pages,
        "line": line,
        "is_exact": all(row.low is not None and row.low == row.high for row in rows),
    }


def around_line(scores: Scores, most: int) -> list[str]:
    """The best, and those on both sides of the pay line."""
    ranked, half = scores.ranked, most // 2
    paid = sum(row.is_paid for row in ranked)
    near = max(half, min(paid - half // 2, len(ranked) - half))
    return [row.address for row in (*ranked[:half], *ranked[near : near + half])]


@dataclass(frozen=True, slots=True)
class Step:
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
        # The summary may be of a block before the last entry; the ranking has all of them.
        found.submissionCount = max(found.submissionCount, len(scores.rankings))
    created, claims = await reader.history(address)
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
        "steps": timeline(
            found, scores, int(now), created, claims, await approval_of(reader, address) if scores else ""
        ),
        "money": wording.money(await reader.spent(address), found.evaluation, settings.budget_per_challenge_usd),
        "has_trace": found.traceDigest is not None and reader.traces_public != "never",
        "network": settings.network_name,
        "own_evaluator": reader.evaluator,
        "leaderboard": None,
    }
    if scores is None:
        return values
    at = find_row(scores, wanted)
    place = next((place for place, row in enumerate(scores.ranked) if at and row.address == at), None)
    number = number if place is None else place // PAGE_ROWS + 1
    return values | {"wanted": wanted, "at": at, "sort": sort} | await _result(reader, address, scores, number, sort)


def find_row(scores: Scores, wanted: str) -> str | None:
    """The address of the entry that begins so, or of the agent with this id."""
    text = wanted.strip().lower()
    if text.startswith("0x") and len(text) > 3:
        return next((row.address for row in scores.rankings if row.address.startswith(text)), None)
    return next((row.address for row in scores.rankings if text and str(row.agentId) == text), None)


async def _result(reader: ResultReader, address: Address, scores: Scores, number: int, sort: str) -> dict[str, object]:
    judging = await reader.judging(address, scores)
    weights = weights_of(judging)
    near, matrix = around_line(scores, SIDE_BY_SIDE), around_line(scores, MATRIX)
    rows, leaderboard = leaderboard_of(scores, number, sort)
    facts = await reader.features_of(address, scores, list(dict.fromkeys([*near, *(row.address for row in rows)])))
    fact_names, beside = key_facts(rows, facts, {feature.name: share for feature, share in weights})
    # A poster may have asked for rules although the operator has a jury.
    compared = [judge.judge for judge in scores.consistency.judges] if scores.consistency else []
    return {
        "scores": scores,
        "leaderboard": {**leaderboard, "fact_names": fact_names, "facts": beside},
        "judging": judging,
        "judged_by": compared or list(judging.judges if judging else ()),
        "weights": weights,
        "near": [account for account in near if account in facts],
        "facts": facts,
        "feature_names": feature_names(weights, facts),
        "matrix": matrix,
        "cells": cells_of(await reader.comparisons_among(address, scores, matrix)),
    }


def weights_of(judging: JudgingBasis | None) -> list[tuple[Feature, float]]:
    """The judged features with their share of all weight, the heaviest first."""
    judged = judging.schema.judged if judging else ()
    total = sum(feature.weight for feature in judged) or 1.0
    return sorted(((feature, feature.weight / total) for feature in judged), key=lambda pair: -pair[1])


def feature_names(weights: list[tuple[Feature, float]], facts: dict[str, Features]) -> list[str]:
    """The judged facts, the heaviest first; without a schema by name."""
    known = [feature.name for feature, _ in weights]
    told = {name for found in facts.values() for name in found.features}
    return [name for name in known if name in told] + sorted(told.difference(known))


def key_facts(
    rows: Sequence[LeaderboardRow], facts: dict[str, Features], weights: dict[str, float]
) -> tuple[list[str], dict[str, list[Value]]]:
    """Names and values of the facts beside the rows.

    Of a round that was run: tests, and the first metric, else gas or fuel. Else those of most weight that differ.
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
        told = dict.fromkeys(name for features in known.values() for name in features)
        differing = [name for name in told if len({features.get(name) for features in known.values()}) > 1]
        names = sorted(differing, key=lambda name: -weights.get(name, 1.0))[:KEY_FACTS]
    return names, {row.address: [known.get(row.address, {}).get(name) for name in names] for row in rows}


def cells_of(games: Played) -> dict[tuple[str, str], tuple[float, int]]:
    """Points of the row's entry and the number of comparisons, both orders together."""
    points = {"won": 1.0, "lost": 0.0, "tie": 0.5}
    found: dict[tuple[str, str], list[float]] = {}
    for (first, second), game in games.items():
        for one, other in ((first, second), (second, first)):
            if (result := game.outcome(shown_first=one == first)) != "undecided":
                found.setdefault((one, other), []).append(points[result])
    return {pair: (sum(list_), len(list_)) for pair, list_ in found.items()}


def timeline(
    found: ChallengeSummary,
    scores: Scores | None,
    now: int,
    created: Created | None = None,
    claims: PrizeClaims | None = None,
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
    if started and posted and started > posted:  # this machine's clock is ahead of the chain's
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
    return [*steps, *(_claimed(found, claims) if final else [Step("Claimed", None, "next")])]


def _claimed(found: ChallengeSummary, claims: PrizeClaims | None) -> list[Step]:
    taken, of = (claims.claims, claims.winners) if claims else ([], found.winnerCount)
    shown = [
        Step("Claimed", claim.at, "done", "", claim.txHash, claim.address, claim.amount)
        for claim in taken[-MOST_CLAIMS:]
    ]
    if left := of - len(taken):
        prizes = wording.counted(left, "prize is", "prizes are")
        shown.append(Step("Claims", None, "now", f"{prizes} not claimed yet."))
    return shown
