"""The values of the page of one challenge."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from clara_eval.actions.challenges import FINALIZATION_SECONDS
from clara_eval.actions.published import JudgingBasis, ResultReader
from clara_eval.config.eval_config.model import Feature
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.documents.rest import ChallengeSummary
from clara_eval.documents.results import FINAL_STATES, Features, Played, Scores
from clara_eval.documents.rounds import Created, PrizeClaims
from clara_eval.interfaces.api import wording
from clara_eval.interfaces.api.leaderboard import (
    LeaderboardView,
    around_line,
    executed_facts,
    executed_names,
    key_facts,
    leaderboard_of,
)

PLOTS = {
    "ratings": "Rating of every agent with its 95 % interval; the paid places are coloured.",
    "matrix": "Who beats whom: the row against the column.",
}
SIDE_BY_SIDE = 8
"""Entries whose facts are shown side by side."""
MOST_CLAIMS = 5
"""The last claims in the timeline."""
MATRIX = 12
"""Entries in the win matrix; everybody's games are on their own page."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the win matrix: points of the row's entry, of so many games."""

    points: float
    games: int

    @property
    def tone(self) -> str:
        if not self.games:
            return "none"
        return "won" if self.points > self.games / 2 else "lost" if self.points < self.games / 2 else "even"


@dataclass(frozen=True, slots=True)
class Step:
    """One point of the timeline."""

    name: str
    at: int | None
    state: str
    """`done`, `now` or `next`."""
    said: str = ""
    tx: str | None = None
    who: str | None = None
    amount: str | None = None
    """Base units of the prize token."""


async def challenge_view(reader: ResultReader, address: Address, number: int, settings: Settings) -> dict[str, object]:
    found = await reader.detail(address, admin=False)
    now = time.time()
    scores = found.leaderboard
    if scores is not None:
        # The summary may be of a block before the last entry; the ranking has all of them.
        found.submissionCount = max(found.submissionCount, len(scores.rankings))
    created, claims = await reader.history(address)
    values = {
        "found": found,
        "phase": wording.phase(found, now),
        "is_live": found.evaluation.status not in FINAL_STATES,
        "now": int(now),
        "explorer": settings.network.explorer,
        "steps": timeline(found, scores, int(now), created, claims),
        "money": wording.money(await reader.spent(address), found.evaluation, settings.budget_per_challenge_usd),
        "has_trace": found.traceDigest is not None and reader.traces_public != "never",
        "network": settings.network_name,
        "stages": wording.STAGES,
        "leaderboard": None,
    }
    return values if scores is None else values | await _result(reader, address, scores, number)


async def _result(reader: ResultReader, address: Address, scores: Scores, number: int) -> dict[str, object]:
    judging = await reader.judging(address, scores)
    near = around_line(scores, SIDE_BY_SIDE)
    matrix = around_line(scores, MATRIX)
    leaderboard = leaderboard_of(scores, number)
    accounts = dict.fromkeys([*near, *(row.address for row in leaderboard.rows)])
    facts = await reader.features_of(address, scores, list(accounts))
    plots = await reader.plots(address, scores)
    return {
        "scores": scores,
        "leaderboard": with_facts(leaderboard, facts, judging),
        "judging": judging,
        "judged_by": judges_of(scores, judging),
        "weights": weights_of(judging),
        "near": [account for account in near if account in facts],
        "facts": facts,
        "feature_names": feature_names(judging, facts),
        "matrix": matrix,
        "cells": cells_of(await reader.comparisons_among(address, scores, matrix)),
        "consistency": wording.consistency(scores.consistency),
        "flags": scores.flags,
        "shortened": wording.shortened,
        "rejection": wording.rejection,
        "plots": {name: told for name, told in PLOTS.items() if name in plots},
    }


def judges_of(scores: Scores, judging: JudgingBasis | None) -> list[str]:
    """Who compared: a poster may have asked for rules although the operator has a jury."""
    compared = [judge.judge for judge in scores.consistency.judges] if scores.consistency else []
    return compared or list(judging.judges if judging else ())


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
    """Add facts to the rows: what was executed, else what weighs most."""
    found = [row.found for row in leaderboard.rows]
    if names := executed_names(found):
        values = [executed_facts(row, names) for row in found]
    else:
        names = key_facts(facts, {feature.name: share for feature, share in weights_of(judging)})
        known = [facts[row.address].features if row.address in facts else {} for row in found]
        values = [tuple(features.get(name) for name in names) for features in known]
    rows = tuple(replace(row, facts=told) for row, told in zip(leaderboard.rows, values, strict=True))
    return replace(leaderboard, rows=rows, fact_names=names)


def cells_of(games: Played) -> dict[tuple[str, str], Cell]:
    """Points of each against each, both orders together."""
    points = {"won": 1.0, "lost": 0.0, "tie": 0.5}
    found: dict[tuple[str, str], list[float]] = {}
    for (first, second), game in games.items():
        for one, other in ((first, second), (second, first)):
            if (result := game.outcome(shown_first=one == first)) != "undecided":
                found.setdefault((one, other), []).append(points[result])
    return {pair: Cell(sum(list_), len(list_)) for pair, list_ in found.items()}


def timeline(
    found: ChallengeSummary,
    scores: Scores | None,
    now: int,
    created: Created | None = None,
    claims: PrizeClaims | None = None,
) -> list[Step]:
    """From the escrow of the prize to the last claim."""
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
    return [*steps, *(_after_post(found, scores, posted, claims) if posted else _before_post(found))]


def _before_post(found: ChallengeSummary) -> list[Step]:
    shared = "Without scores by then every submitter can claim an equal share."
    return [Step("Scores posted", None, "next"), Step("Scoring deadline", found.scoringDeadline, "next", shared)]


def _after_post(found: ChallengeSummary, scores: Scores | None, posted: int, claims: PrizeClaims | None) -> list[Step]:
    final = found.chainStatus == "finalized"
    by = f"By the {found.postedBy}." if found.postedBy else ""
    free = "Prizes can be claimed." if final else "Prizes can be claimed from then on."
    steps = [
        Step("Scores posted", posted, "done", by, scores.txHash if scores else None),
        Step("Final" if final else "Finalizes", posted + FINALIZATION_SECONDS, "done" if final else "now", free),
    ]
    return [*steps, *(_claimed(found, claims) if final else [Step("Claimed", None, "next")])]


def _claimed(found: ChallengeSummary, claims: PrizeClaims | None) -> list[Step]:
    """The last claims, and how many prizes are left."""
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
