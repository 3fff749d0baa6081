"""The values of the list of challenges and of the page of one: leaderboard, facts, win matrix, timeline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from clara_eval.actions.challenges import FINALIZATION_SECONDS
from clara_eval.actions.evidence import approval_of, evaluator_record
from clara_eval.actions.objections import read_draft
from clara_eval.actions.published import JudgingBasis, ResultReader
from clara_eval.config.eval_config.model import Feature
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.documents.rest import ChallengeSummary
from clara_eval.documents.results import (
    FINAL_STATES,
    Created,
    Features,
    LeaderboardRow,
    Played,
    PrizeClaims,
    Scores,
    Value,
)
from clara_eval.interfaces.api import wording
from clara_eval.interfaces.api.wording import Phase

PAGE_CARDS = 24
MOST_SKILLS = 12
GROUPS: dict[str, tuple[str, frozenset[str]]] = {
    "open": ("Open", frozenset(("Open",))),
    "judging": (
        "Being judged",
        frozenset(("Queued", "Collecting", "Running", "Reading", "Comparing", "Posting", "Deferred", "Objections open"))
        | {"Scored elsewhere"},
    ),
    "review": ("In review", frozenset(("In review",))),
    "posted": ("Scores posted", frozenset(("Scores posted", "Final"))),
    "ended": ("No result", frozenset(("Cancelled", "Expired", "Not evaluated", "Rejected in review", "No result"))),
}
"""Filters: their headings, and the labels that pass."""
PAGE_ROWS = 50
PODIUM = 3
KEY_FACTS = 2
SIDE_BY_SIDE = 8
"""Entries whose facts are shown side by side."""
MOST_CLAIMS = 5
"""The last claims in the timeline."""
MATRIX = 12
"""Entries in the win matrix; all comparisons are on the entries' pages."""


@dataclass(frozen=True, slots=True)
class Card:
    row: ChallengeSummary
    phase: Phase

    @property
    def is_live(self) -> bool:
        return self.row.evaluation.status in wording.RUNNING


@dataclass(frozen=True, slots=True)
class ListQuery:
    status: str = ""
    skill: str = ""
    words: str = ""
    page: int = 1
    sort: str = ""

    def link(self, **changes: object) -> str:
        asked = {"status": self.status, "skill": self.skill, "q": self.words, "sort": self.sort, "page": self.page}
        asked |= changes
        kept = {name: value for name, value in asked.items() if value and not (name == "page" and value == 1)}
        return "/?" + urlencode(kept) if kept else "/"


def card_of(row: ChallengeSummary, now: float) -> Card:
    return Card(row, wording.phase(row, now))


def listed(
    rows: Sequence[ChallengeSummary], wanted: ListQuery, now: float, entered: Collection[str] = ()
) -> dict[str, object]:
    """One page of the challenges that pass, in the order that is asked for."""
    cards = [card_of(row, now) for row in rows]
    passing = sorted(
        (card for card in cards if _passes(card, wanted, entered)), key=SORTS.get(wanted.sort, _by_urgency)
    )
    pages = max(1, -(-len(passing) // PAGE_CARDS))
    page = min(max(1, wanted.page), pages)
    skills = Counter(skill.lower() for card in cards for skill in set(card.row.skills))
    labels = Counter(card.phase.label for card in cards)
    return {
        "cards": passing[(page - 1) * PAGE_CARDS : page * PAGE_CARDS],
        "known": len(cards),
        "page": page,
        "pages": pages,
        "groups": {name: (heading, sum(labels[one] for one in passed)) for name, (heading, passed) in GROUPS.items()},
        "skills": sorted(skill for skill, _ in skills.most_common(MOST_SKILLS)),
    }


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
    if wanted.status in GROUPS and card.phase.label not in GROUPS[wanted.status][1]:
        return False
    if wanted.skill and wanted.skill.lower() not in (skill.lower() for skill in row.skills):
        return False
    if row.address in entered:
        return True
    text = f"{row.title} {row.problemStatement} {row.address} {row.poster}".lower()
    return all(word in text for word in wanted.words.lower().split())


Bar = tuple[float, float, float]
"""Left end, width and rating of an interval, in percent of the scale."""


@dataclass(frozen=True, slots=True)
class Row:
    found: LeaderboardRow
    bar: Bar | None
    is_below: bool
    """Directly below the pay line."""
    facts: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaderboardView:
    rows: tuple[Row, ...]
    podium: tuple[Row, ...]
    rejected: tuple[LeaderboardRow, ...]
    ranked: int
    paid: int
    page: int
    pages: int
    line: float | None
    """The pay line on the scale of the bars: half-way between the last that is paid and the first that is not."""
    fact_names: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Rules on measured facts leave no interval."""
        return all(row.found.low is not None and row.found.low == row.found.high for row in self.rows)


def rating_scale(rows: Sequence[LeaderboardRow]) -> Callable[[float], float]:
    """Where a rating is between the lowest and the highest end of the intervals, in percent."""
    low = min((row.low for row in rows if row.low is not None), default=0.0)
    high = max((row.high for row in rows if row.high is not None), default=1.0)
    return lambda value: round(100 * (value - low) / ((high - low) or 1.0), 2)


def bar_of(row: LeaderboardRow, at: Callable[[float], float]) -> Bar | None:
    if row.elo is None or row.low is None or row.high is None:
        return None
    left = at(row.low)
    return left, 0.0 if row.low == row.high else round(max(0.8, at(row.high) - left), 2), at(row.elo)


BOARD_SORTS: dict[str, Callable[[Row], float]] = {
    "chance": lambda row: -(row.found.pTop or 0.0),
    "wins": lambda row: -(row.found.wins or 0.0),
    "score": lambda row: -(row.found.score or 0),
}


def leaderboard_of(scores: Scores, page: int, sort: str = "") -> LeaderboardView:
    ranked, paid = scores.ranked, sum(row.is_paid for row in scores.ranked)
    at = rating_scale(ranked)
    drawn = [Row(row, bar_of(row, at), is_below=place == paid > 0) for place, row in enumerate(ranked)]
    podium = tuple(row for row in drawn[:PODIUM] if row.found.is_paid)
    if sort in BOARD_SORTS:  # no pay line among rows in another order
        drawn = sorted((replace(row, is_below=False) for row in drawn), key=BOARD_SORTS[sort])
    pages = max(1, -(-len(drawn) // PAGE_ROWS))
    page = min(max(1, page), pages)
    line = None
    if 0 < paid < len(ranked):
        last, following = ranked[paid - 1].elo, ranked[paid].elo
        line = at((last + following) / 2) if last is not None and following is not None else None
    return LeaderboardView(
        rows=tuple(drawn[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]),
        podium=podium,
        rejected=tuple(row for row in scores.rankings if not row.is_ranked),
        ranked=len(ranked),
        paid=paid,
        page=page,
        pages=pages,
        line=line,
    )


def around_line(scores: Scores, most: int) -> list[str]:
    """The best, and those on both sides of the pay line."""
    ranked, half = scores.ranked, most // 2
    paid = sum(row.is_paid for row in ranked)
    near = max(half, min(paid - half // 2, len(ranked) - half))
    chosen = [*ranked[:half], *ranked[near : near + half]]
    return [row.address for row in chosen]


def executed_facts(row: LeaderboardRow, names: Sequence[str]) -> tuple[Value, ...]:
    run = row.executed
    if run is None:
        return (None,) * len(names)
    tests = run.outcome.replace("_", " ") if run.testsPassed is None else f"{run.testsPassed}/{run.tests}"
    known: dict[str, Value] = {**run.metrics, "tests": tests, "gas": run.gas, "fuel": run.fuel}
    return tuple(known.get(name) for name in names)


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    at: int | None
    state: str
    """`done`, `now` or `next`."""
    said: str = ""
    tx: str | None = None
    who: str | None = None
    amount: str | None = None
    """Base units of the prize token."""


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
    is_moving = found.chainStatus in {"open", "scoring"} and found.evaluation.status not in FINAL_STATES
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
    is_address = text.startswith("0x") and len(text) > 3
    rows = (
        row for row in scores.rankings if (row.address.startswith(text) if is_address else str(row.agentId) == text)
    )
    return next((row.address for row in rows), None) if text else None


async def _result(reader: ResultReader, address: Address, scores: Scores, number: int, sort: str) -> dict[str, object]:
    judging = await reader.judging(address, scores)
    near = around_line(scores, SIDE_BY_SIDE)
    matrix = around_line(scores, MATRIX)
    leaderboard = leaderboard_of(scores, number, sort)
    accounts = dict.fromkeys([*near, *(row.found.address for row in leaderboard.rows)])
    facts = await reader.features_of(address, scores, list(accounts))
    # A poster may have asked for rules although the operator has a jury.
    compared = [judge.judge for judge in scores.consistency.judges] if scores.consistency else []
    return {
        "scores": scores,
        "leaderboard": with_facts(leaderboard, facts, judging),
        "judging": judging,
        "judged_by": compared or list(judging.judges if judging else ()),
        "weights": weights_of(judging),
        "near": [account for account in near if account in facts],
        "facts": facts,
        "feature_names": feature_names(judging, facts),
        "matrix": matrix,
        "cells": cells_of(await reader.comparisons_among(address, scores, matrix)),
        "flags": scores.flags,
    }


def weights_of(judging: JudgingBasis | None) -> list[tuple[Feature, float]]:
    """The judged features with their share of all weight, the heaviest first."""
    judged = judging.schema.judged if judging else ()
    total = sum(feature.weight for feature in judged) or 1.0
    return sorted(((feature, feature.weight / total) for feature in judged), key=lambda pair: -pair[1])


def feature_names(judging: JudgingBasis | None, facts: dict[str, Features]) -> list[str]:
    """The judged facts, the heaviest first; without a schema by name."""
    known = [feature.name for feature, _ in weights_of(judging)]
    told = {name for found in facts.values() for name in found.features}
    return [name for name in known if name in told] + sorted(told.difference(known))


def with_facts(
    leaderboard: LeaderboardView, facts: dict[str, Features], judging: JudgingBasis | None
) -> LeaderboardView:
    """Add facts to the rows.

    Of a round that was run: tests, and the first metric, else gas or fuel. Else those of most weight that differ.
    """
    found = [row.found for row in leaderboard.rows]
    if runs := [row.executed for row in found if row.executed is not None]:
        metrics = sorted({name for run in runs for name in run.metrics})[: KEY_FACTS - 1]
        names = ["tests", *(metrics or ["fuel" if any(run.fuel for run in runs) else "gas"])]
        values = [executed_facts(row, names) for row in found]
    else:
        weights = {feature.name: share for feature, share in weights_of(judging)}
        told = dict.fromkeys(name for one in facts.values() for name in one.features)
        differing = [name for name in told if len({one.features.get(name) for one in facts.values()}) > 1]
        names = sorted(differing, key=lambda name: -weights.get(name, 1.0))[:KEY_FACTS]
        known = [facts[row.address].features if row.address in facts else {} for row in found]
        values = [tuple(features.get(name) for name in names) for features in known]
    rows = tuple(replace(row, facts=shown) for row, shown in zip(leaderboard.rows, values, strict=True))
    return replace(leaderboard, rows=rows, fact_names=tuple(names))


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
    if posted:
        return [*steps, *_after_post(found, scores, posted, claims, approval)]
    shared = "Without scores by then every submitter can claim an equal share."
    deadline = Step("Scoring deadline", found.scoringDeadline, "next", shared)
    return [*steps, Step("Scores posted", None, "next"), deadline]


def _after_post(
    found: ChallengeSummary, scores: Scores | None, posted: int, claims: PrizeClaims | None, approval: str
) -> list[Step]:
    final = found.chainStatus == "finalized"
    by = f"By the {found.postedBy}. {approval}".strip() if found.postedBy else ""
    free = "Prizes can be claimed." if final else "Prizes can be claimed from then on."
    steps = [
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
    left = of - len(taken)
    if left:
        prizes = wording.counted(left, "prize is", "prizes are")
        shown.append(Step("Claims", None, "now", f"{prizes} not claimed yet."))
    return shown
