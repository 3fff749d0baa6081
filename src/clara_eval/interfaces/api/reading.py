"""What the doors read from the store: statuses, the list, leaderboards, traces, and what of it is public.

Before scores are posted only status and progress are public: a free oracle invites probing. After the post the
leaderboard and the trace are, unless the operator keeps traces private; the administrator always may read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.actions.status import evaluation_status
from clara_eval.challenges.agents import AgentRecord, agent_record
from clara_eval.challenges.challenge_index import read_document, summaries
from clara_eval.challenges.comparisons import Played, comparisons_among, comparisons_of
from clara_eval.challenges.history import Created, PrizeClaims, claims_key, created_key
from clara_eval.challenges.judging import JudgingBasis, read_judging
from clara_eval.challenges.review import read_review
from clara_eval.core.address import Address
from clara_eval.documents.rest import ChallengeDetail, ChallengeSummary
from clara_eval.documents.results import (
    EvalStatus,
    Features,
    Scores,
    Summary,
    read,
)
from clara_eval.documents.store_keys import features_key, index_key, plots_key, scores_key
from clara_eval.interfaces.api.problems import Refusal
from clara_eval.judge.costs.spend_report import SpendLine, spend_report
from clara_eval.store.ports import Store
from clara_eval.store.trace_archive import Archived, archived_trace

PLOTS = {
    "ratings": "Rating of every agent with its 95 % interval; the paid places are coloured.",
    "matrix": "Who beats whom: the row against the column.",
}
"""Names of the pictures, and what each shows."""


@dataclass(frozen=True, slots=True)
class ResultReader:
    store: Store
    chain_id: int
    traces_public: str

    async def status_text(self, address: Address) -> str:
        """The evaluation's status as JSON; Refusal 404 for a challenge nobody has heard of."""
        return json.dumps((await self.status(address)).model_dump())

    async def status(self, address: Address) -> EvalStatus:
        found = await evaluation_status(self.store, self.chain_id, address)
        if found is None:
            raise unknown(address)
        return found

    async def listed(self, wanted: str | None) -> list[ChallengeSummary]:
        """Every challenge with its evaluation, the latest deadline first."""
        found = await summaries(self.store, self.chain_id)
        rows = [
            ChallengeSummary.model_validate({**dict(summary), "evaluation": await self.status(address)})
            for address, summary in found.items()
        ]
        chosen = [row for row in rows if wanted is None or row.evaluation.status == wanted]
        return sorted(chosen, key=lambda row: (-row.deadline, row.address))

    async def detail(self, address: Address, *, admin: bool) -> ChallengeDetail:
        summary = await read(self.store, self.chain_id, Summary, index_key(address))
        if summary is None:
            raise unknown(address)
        scores = await self._scores(address)
        is_open = scores is not None and (admin or scores.is_posted)
        review = await read_review(self.store, self.chain_id, address) if admin else None
        return ChallengeDetail.model_validate(
            {
                **dict(summary),
                "evaluation": await self.status(address),
                "review": review.to_json() if review else None,
                "leaderboard": scores if is_open else None,
                "traceDigest": scores.traceDigest if scores and is_open else None,
            }
        )

    async def agent(self, agent_id: int) -> AgentRecord:
        """What an agent did across challenges; Refusal 404 for one that entered nothing that is over."""
        record = await agent_record(self.store, self.chain_id, agent_id)
        if not record.entered:
            raise Refusal(404, f"Agent {agent_id} entered no challenge that is over.", remedy="Look again later.")
        return record

    async def _scores(self, address: Address) -> Scores | None:
        return await read(self.store, self.chain_id, Scores, scores_key(address))

    async def posted(self, address: Address) -> Scores | None:
        """The ranking, once it is public."""
        scores = await self._scores(address)
        return scores if scores is not None and scores.is_posted else None

    async def leaderboard(self, address: Address, *, admin: bool) -> Scores:
        scores = await self._scores(address)
        if scores is None:
            await self.status_text(address)
            raise Refusal(404, f"Challenge {address} has no ranking yet.", remedy="Follow its eval-status.")
        if not admin and not scores.is_posted:
            raise not_posted(address, "The ranking")
        return scores

    async def plot(self, address: Address, name: str) -> str:
        """One picture of the ranking that is posted, as SVG."""
        scores = await self.leaderboard(address, admin=False)
        plots = await self._plots(address, scores)
        if name not in PLOTS or name not in plots:
            raise Refusal(404, f"Challenge {address} has no such plot.", remedy="Look at its leaderboard.")
        return str(plots[name])

    async def _plots(self, address: Address, scores: Scores) -> dict[str, object]:
        """The pictures of these very scores: what somebody else posted has none, and games are the trace's."""
        plots = await read_document(self.store, self.chain_id, plots_key(address)) or {}
        if scores.traceDigest is None or plots.get("traceDigest") != scores.traceDigest:
            return {}
        return {name: svg for name, svg in plots.items() if name != "matrix" or self.traces_public != "never"}

    async def plot_names(self, address: Address, scores: Scores | None) -> list[str]:
        if scores is None:
            return []
        plots = await self._plots(address, scores)
        return [name for name in PLOTS if name in plots]

    def _shows_evidence(self, scores: Scores) -> bool:
        """Facts, games and criteria belong to the trace of these scores: private where traces are."""
        return scores.traceDigest is not None and self.traces_public != "never"

    async def features_of(self, address: Address, scores: Scores, accounts: Sequence[str]) -> dict[str, Features]:
        """The typed facts by which these scores were judged, for some of the submitters."""
        found = {}
        for account in accounts if self._shows_evidence(scores) else ():
            features = await read(self.store, self.chain_id, Features, features_key(address, account))
            if features is not None:
                found[account] = features
        return found

    async def comparisons_among(self, address: Address, scores: Scores, accounts: Sequence[str]) -> Played:
        """The games between these accounts."""
        if not self._shows_evidence(scores):
            return {}
        return await comparisons_among(self.store, self.chain_id, address, accounts)

    async def comparisons_of(self, address: Address, scores: Scores, account: str, rivals: Sequence[str]) -> Played:
        """The games of one account against these rivals."""
        if not self._shows_evidence(scores):
            return {}
        return await comparisons_of(self.store, self.chain_id, address, account, rivals)

    async def judging(self, address: Address, scores: Scores) -> JudgingBasis | None:
        """By what these scores were judged; what somebody else posted was judged elsewhere."""
        archived = await archived_trace(self.store, self.chain_id, address) if self._shows_evidence(scores) else None
        if archived is None or archived.digest != scores.traceDigest:
            return None
        return await read_judging(self.store, self.chain_id, address)

    async def history(self, address: Address) -> tuple[Created | None, PrizeClaims | None]:
        """When it was created, and who took which prize; None where nobody looked."""
        created = await read(self.store, self.chain_id, Created, created_key(address))
        return created, await read(self.store, self.chain_id, PrizeClaims, claims_key(address))

    async def money(self, address: Address) -> SpendLine | None:
        """What its evaluation cost, or has reserved; None where nothing was asked that costs."""
        run = f"{self.chain_id}:{address}"
        report = spend_report([spend for spend in await self.store.spends() if spend.run == run])
        return report.total if report.by_challenge else None

    async def trace(self, address: Address, *, admin: bool) -> Archived:
        """What is archived, if this caller may read it."""
        archived = await archived_trace(self.store, self.chain_id, address)
        if archived is None:
            await self.status_text(address)
            raise Refusal(404, f"Challenge {address} has no trace yet.", remedy="Follow its eval-status.")
        if admin:
            return archived
        if self.traces_public == "never":
            raise Refusal(403, "The operator keeps traces private.", remedy="Ask the operator for this one.")
        scores = await self._scores(address)
        if scores is None or not scores.is_posted:
            raise not_posted(address, "The trace")
        return archived


def unknown(address: Address) -> Refusal:
    return Refusal(404, f"No challenge {address} is known here.", remedy="A new challenge appears within five minutes.")


def not_posted(address: Address, what: str) -> Refusal:
    return Refusal(
        403,
        f"{what} of {address} is public once its scores are posted.",
        remedy="Until then eval-status shows the progress.",
    )
