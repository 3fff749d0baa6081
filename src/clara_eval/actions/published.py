"""Read stored results as far as the reader may see them; REST and pages show nothing else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from clara_eval.challenges.challenge_index import agent_record, read_many, read_scores, summaries
from clara_eval.challenges.review import read_review
from clara_eval.challenges.status import evaluation_status, shown_to_all, status_without_evaluation
from clara_eval.challenges.stored_results import comparisons_among, comparisons_of
from clara_eval.config.eval_config.model import FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.errors import NotFound, NotPublic
from clara_eval.core.model import Winner, usd
from clara_eval.documents import results, store_keys
from clara_eval.documents.rest import ChallengeDetail, ChallengeSummary
from clara_eval.documents.results import Played, Scores
from clara_eval.evaluation.trace import FORMAT
from clara_eval.judge.costs.budgets import Spend
from clara_eval.ranking import Result, rate, tally
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import archived_trace, stream_trace

TRACE_FORMAT = FORMAT
Bodies = dict[str, Any]  # entries of a trace by key, or one of them; checked when written
LARGEST_FIELD = 25  # entries; larger rounds are not rated again for a page


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """The rivals whose reversed games move an entry across the pay line, if any, and its place then."""

    rivals: tuple[str, ...]
    place: int


def turning_point(account: str, places: Sequence[str], games: Sequence[Result], paid: int) -> PlaceChange | None:
    """Find which of its own games would move an entry across the pay line; None if unknown."""
    if account not in places or not 0 < paid < len(places) <= LARGEST_FIELD or not games:
        return None
    if set(_order_by_rating(places, games)[:paid]) != set(places[:paid]):
        return None
    own = places.index(account)
    is_paid = own < paid

    def turn(game: Result) -> Result:
        """Return the game as won by the account, or as lost if the account is paid."""
        return game._replace(winner="first" if (game.first == account) != is_paid else "second")

    turned: list[str] = []
    for rival in sorted((one for one in places if one != account), key=lambda one: abs(places.index(one) - own)):
        if all(turn(game) == game for game in games if {game.first, game.second} == {account, rival}):
            continue
        turned.append(rival)
        pairs = [{account, one} for one in turned]
        after = [turn(game) if {game.first, game.second} in pairs else game for game in games]
        place = _order_by_rating(places, after).index(account)
        if (place < paid) != is_paid:
            return PlaceChange(tuple(turned), place + 1)
    return PlaceChange((), own + 1)


def _order_by_rating(places: Sequence[str], games: Sequence[Result]) -> list[str]:
    """Order by the rating of these games; ties stay in posted order."""
    items = sorted(places)
    ratings = dict(zip(items, rate(tally(items, games), b"").tolist(), strict=True))
    return sorted(places, key=lambda item: (-ratings[item], places.index(item)))


@dataclass(frozen=True, slots=True)
class JudgingBasis:
    """What a round was judged by: the poster's criteria, the judges, and the weighted features."""

    criteria: str
    judges: tuple[str, ...]
    schema: FeatureSchema


@dataclass(frozen=True, slots=True)
class ResultReader:
    store: SqlStore
    chain_id: int
    traces_public: str
    evaluator: Address | None = None  # whose challenges the service evaluates; None if not set

    async def status(self, address: Address, *, admin: bool = False) -> results.EvalStatus:
        found = await evaluation_status(self.store, self.chain_id, address, self.evaluator)
        if found is None:
            raise _unknown_challenge(address)
        return found if admin else shown_to_all(found)

    async def listed(self, wanted: str | None = None, *, admin: bool = False) -> list[ChallengeSummary]:
        """Return every challenge, or those with this evaluation status, latest deadline first."""
        found = await summaries(self.store, self.chain_id)
        statuses = await read_many(self.store, self.chain_id, results.EvalStatus, store_keys.status_key, found)
        shown = {a: statuses.get(a) or status_without_evaluation(one, self.evaluator) for a, one in found.items()}
        rows = [
            ChallengeSummary.model_validate(
                {**dict(found[address]), "evaluation": status if admin else shown_to_all(status)}
            )
            for address, status in shown.items()
            if wanted in (None, status.status)
        ]
        return sorted(rows, key=lambda row: (-row.deadline, row.address))

    async def detail(self, address: Address, *, admin: bool) -> ChallengeDetail:
        summary = await results.read(self.store, self.chain_id, results.Summary, store_keys.index_key(address))
        if summary is None:
            raise _unknown_challenge(address)
        if summary.rules:
            summary.rules.harnessSource = await self.store.get(self.chain_id, store_keys.public_harness_key(address))
        scores = await read_scores(self.store, self.chain_id, address)
        is_open = scores is not None and (admin or scores.is_posted)
        is_early = scores is None and time.time() < summary.deadline
        key = store_keys.provisional_key(address)
        board = await results.read(self.store, self.chain_id, results.ProvisionalBoard, key) if is_early else None
        review = await read_review(self.store, self.chain_id, address) if admin else None
        return ChallengeDetail.model_validate(
            {
                **dict(summary),
                "evaluation": await self.status(address, admin=admin),
                "review": review.to_json() if review else None,
                "leaderboard": scores if is_open else None,
                "provisional": board,
                "traceDigest": scores.traceDigest if scores and is_open else None,
            }
        )

    async def agent(self, agent_id: int) -> results.AgentRecord:
        """Return an agent's record over all challenges; NotFound if it entered none that is over."""
        record = await agent_record(self.store, self.chain_id, agent_id)
        if not record.entered:
            raise NotFound(
                f"Agent {agent_id} entered no challenge that is over.",
                remedy="Its entries appear once the submissions of their challenge are closed.",
            )
        return record

    async def leaderboard(self, address: Address, *, admin: bool) -> Scores:
        scores = await read_scores(self.store, self.chain_id, address)
        if scores is None:
            await self.status(address)
            raise NotFound(f"Challenge {address} has no ranking yet.", remedy="Follow its eval-status.")
        if not admin and not scores.is_posted:
            raise _not_posted(address, "The ranking")
        return scores

    def _shows_evidence(self, scores: Scores) -> bool:
        """Return whether facts, comparisons and criteria are public: they are part of the trace."""
        return scores.traceDigest is not None and self.traces_public != "never"

    async def features_of(
        self, address: Address, scores: Scores, accounts: Sequence[str]
    ) -> dict[str, results.Features]:
        if not self._shows_evidence(scores):
            return {}
        key_of = partial(store_keys.features_key, address)
        return await read_many(self.store, self.chain_id, results.Features, key_of, accounts)

    async def comparisons_among(self, address: Address, scores: Scores, accounts: Sequence[str]) -> Played:
        is_shown = self._shows_evidence(scores)
        return await comparisons_among(self.store, self.chain_id, address, accounts) if is_shown else {}

    async def comparisons_of(self, address: Address, scores: Scores, account: str, rivals: Sequence[str]) -> Played:
        is_shown = self._shows_evidence(scores)
        return await comparisons_of(self.store, self.chain_id, address, account, rivals) if is_shown else {}

    async def place_change(self, address: Address, scores: Scores, account: str) -> PlaceChange | None:
        """Find which comparisons would move an entry across the pay line; None if unknown."""
        places = [row.address for row in scores.ranked]
        if account not in places or len(places) > LARGEST_FIELD:
            return None
        played = await self.comparisons_among(address, scores, places)
        winners: dict[str, Winner] = {"A": "first", "B": "second", "tie": "tie"}
        games = [Result(*pair, winners[one.winner]) for pair, one in played.items() if one.winner in winners]
        return await asyncio.to_thread(turning_point, account, places, games, scores.paid_count)

    async def trace_bodies(
        self, address: Address, scores: Scores, marks: Sequence[str], *, before: Sequence[str]
    ) -> Bodies:
        """Read, by key, the trace entries whose line has one of the marks, up to a line with one of `before`.

        Empty if the trace is private, or is not the trace of these scores.
        """
        archived = await archived_trace(self.store, self.chain_id, address) if self._shows_evidence(scores) else None
        found: Bodies = {}
        if archived is None or archived.digest != scores.traceDigest:
            return found
        async for part in stream_trace(self.store, self.chain_id, address):
            for line in part.splitlines():
                if any(mark in line for mark in marks):
                    entry = json.loads(line.removesuffix(","))["entry"]
                    found[entry["key"]] = entry["body"]
                if any(mark in line for mark in before):
                    return found
        return found

    async def judging(self, address: Address, scores: Scores) -> JudgingBasis | None:
        """Read what these scores were judged by from their trace; None if the trace is not ours."""
        marks = [f'"key":"{key}"' for key in ("plan", "metadata", "schema")]
        found = await self.trace_bodies(address, scores, marks, before=marks[-1:])
        if "schema" not in found:
            return None
        schema, judges = FeatureSchema.from_json(found["schema"]), tuple(found["plan"]["judges"])
        return JudgingBasis(str(json.loads(found["metadata"]["evalConfig"]).get("criteria", "")), judges, schema)

    async def history(self, address: Address) -> tuple[results.Created | None, results.PrizeClaims | None]:
        """Return its creation and its prize claims; None for what is not recorded."""
        created = await results.read(self.store, self.chain_id, results.Created, store_keys.created_key(address))
        claims = await results.read(self.store, self.chain_id, results.PrizeClaims, store_keys.claims_key(address))
        return created, claims

    async def spent(self, address: Address) -> SpendLine | None:
        """Return the cost of the evaluation; None if it made no paid call."""
        own = [spend for spend in await self.store.spends() if spend.run == f"{self.chain_id}:{address}"]
        return _sum_spends(address, own) if own else None

    async def trace(self, address: Address, *, admin: bool) -> tuple[str, AsyncIterator[str]]:
        """Return digest and text of the archived trace, if this reader may see it."""
        archived = await archived_trace(self.store, self.chain_id, address)
        if archived is None:
            await self.status(address)
            raise NotFound(f"Challenge {address} has no trace yet.", remedy="Follow its eval-status.")
        if not admin and self.traces_public == "never":
            raise NotPublic("The operator keeps traces private.", remedy="Ask the operator for this one.")
        scores = await read_scores(self.store, self.chain_id, address)
        if not admin and (scores is None or not scores.is_posted):
            raise _not_posted(address, "The trace")
        return archived.digest, stream_trace(self.store, self.chain_id, address)


def _unknown_challenge(address: Address) -> NotFound:
    return NotFound(f"No challenge {address} is known here.", remedy="A new challenge appears within five minutes.")


def _not_posted(address: Address, what: str) -> NotPublic:
    return NotPublic(
        f"{what} of {address} is public once its scores are posted.",
        remedy="Until then its page and its eval-status show the progress.",
    )


@dataclass(frozen=True, slots=True)
class SpendLine:
    """Cost of one challenge, poster or month; `micro_usd` includes open reservations."""

    name: str
    micro_usd: int
    open_micro_usd: int
    evaluations: int


def spend_report(spends: Iterable[Spend]) -> dict[str, list[SpendLine]]:
    """Sum the spending by challenge, poster and month, and in total; dearest or latest first."""
    groups: dict[str, dict[str, list[Spend]]] = {"total": {"total": []}, "challenge": {}, "poster": {}, "month": {}}
    for spend in spends:
        month = datetime.fromtimestamp(spend.at, UTC).strftime("%Y-%m")
        for kind, name in {"total": "total", "challenge": spend.run, "poster": spend.poster, "month": month}.items():
            groups[kind].setdefault(name, []).append(spend)
    found = {kind: [_sum_spends(*group) for group in named.items()] for kind, named in groups.items()}
    for lines in found.values():
        lines.sort(key=lambda line: (-line.micro_usd, line.name))
    found["month"].sort(key=lambda line: line.name, reverse=True)
    return found


def spend_document(report: Mapping[str, Sequence[SpendLine]]) -> dict[str, object]:
    """Return the document of `clara-eval spend --json`; dollars are decimal strings."""

    def rows(kind: str, name: str) -> list[dict[str, object]]:
        found = [(one.name, usd(one.micro_usd), usd(one.open_micro_usd), one.evaluations) for one in report[kind]]
        return [dict(zip((name, "usd", "openUsd", "evaluations"), row, strict=True)) for row in found]

    return {
        "total": rows("total", "name")[0],
        "byChallenge": rows("challenge", "run"),
        "byPoster": rows("poster", "poster"),
        "byMonth": rows("month", "month"),
    }


def _sum_spends(name: str, spends: list[Spend]) -> SpendLine:
    waiting = sum(spend.reserved_micro_usd for spend in spends if spend.settled_micro_usd is None)
    settled = sum(spend.settled_micro_usd for spend in spends if spend.settled_micro_usd is not None)
    return SpendLine(name, settled + waiting, waiting, len({spend.run for spend in spends}))
