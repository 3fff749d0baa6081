"""Give feedback on the agents of final challenges: once, planned before it is sent, within a gas budget."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field

import structlog
from pydantic import TypeAdapter

from clara_eval.app import App, reputation_registry
from clara_eval.chain.account import ContractRefused, estimate_gas
from clara_eval.chain.model import ChallengeStatus
from clara_eval.chain.sender import Receipt, SendOutcome
from clara_eval.challenges.calls import EarnedFeedback, give_feedback
from clara_eval.challenges.challenge_index import inline_metadata, skills_in, summaries
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import Scores, read
from clara_eval.documents.store_keys import scores_key
from clara_eval.store.publication.publish_documents import trace_uri
from clara_eval.store.trace_archive import archived_trace, trace_keccak

_log = structlog.get_logger(__name__)
FEEDBACK = "feedback:"
"""Before the address of every challenge whose feedback is planned; the document says what is given already."""
MOST_REFUSALS = 3
"""A registry that takes a call in rehearsal and reverts it when it is mined costs gas each time."""


@dataclass(slots=True)
class FeedbackPlan:
    """All feedback of one challenge, and how far it got."""

    planned: list[EarnedFeedback]
    skipped: list[int]
    """Agents that the evaluator owns or acts for, or that are gone."""
    given: dict[str, str | None]
    """By agent, the transaction."""
    refused: dict[str, int] = field(default_factory=dict)
    """By agent, how often the registry refused."""
    last_block: int = 0
    """The latest one in which something was given."""
    is_settled: bool = False
    """The safe block has all of it: no reorg takes it away."""

    @property
    def left(self) -> list[EarnedFeedback]:
        return [one for one in self.wanted if str(one.agent_id) not in self.given]

    @property
    def wanted(self) -> list[EarnedFeedback]:
        """All but those that the registry refuses for good."""
        return [one for one in self.planned if self.refused.get(str(one.agent_id), 0) < MOST_REFUSALS]

    def refuse(self, agent: str, problem: str) -> None:
        _log.warning("feedback_refused", agent=agent, problem=problem)
        self.refused[agent] = self.refused.get(agent, 0) + 1

    @property
    def text(self) -> str:
        rows = [{**asdict(one), "agent_id": str(one.agent_id)} for one in self.planned]
        return plain_json({**asdict(self), "planned": rows, "isDone": self.is_settled and not self.left})


_PLAN = TypeAdapter(FeedbackPlan)


async def give_missing_feedback(app: App) -> AsyncIterator[Receipt]:
    """Give what final challenges of ours lack, oldest first, until the gas of one tick is used."""
    registry = reputation_registry(app.settings)
    if registry is None or not app.sender.can_sign:
        return
    gas = app.settings.reputation_gas
    rows = await app.store.items(app.chain_id, FEEDBACK)
    done = {key.removeprefix(FEEDBACK) for key, text in rows if json.loads(text)["isDone"]}
    final = [
        (summary.scorePostedAt or 0, address)
        for address, summary in (await summaries(app.store, app.chain_id)).items()
        if summary.chainStatus == "finalized" and summary.postedBy == "evaluator" and address not in done
    ]
    for _, address in sorted(final):
        plan = await _plan(app, registry, address)
        if plan is None:
            continue
        await _settle(app, address, plan)
        for earned in plan.left:
            agent = str(earned.agent_id)
            try:
                used = await estimate_gas(app.chain, earned.call(), app.sender.address)
                if gas < used <= app.settings.reputation_gas:
                    _log.info("feedback_goes_on_later", challenge=address, left=len(plan.left))
                    return
                if used > app.settings.reputation_gas:
                    plan.refuse(agent, f"It would use {used} gas, more than CLARA_REPUTATION_GAS allows a tick.")
                else:
                    gas -= used
                    yield await _give(app, earned, plan)
            except ContractRefused as bad:
                plan.refuse(agent, str(bad))
            await app.store.put(app.chain_id, FEEDBACK + address, plan.text)


async def _give(app: App, earned: EarnedFeedback, plan: FeedbackPlan) -> Receipt:
    """Give one feedback and note the outcome in the plan."""
    agent = str(earned.agent_id)
    receipt = await give_feedback(earned, sender=app.sender, agents=app.chain.agents)
    if receipt.outcome in (SendOutcome.CONFIRMED, SendOutcome.ALREADY_DONE):
        plan.given[agent] = receipt.tx_hash
        plan.last_block, plan.is_settled = max(plan.last_block, receipt.block_number or 0), False
    elif receipt.outcome is SendOutcome.REVERTED:
        plan.refuse(agent, "It was mined and reverted.")
    return receipt


async def _settle(app: App, address: Address, plan: FeedbackPlan) -> None:
    """Once the safe block has all feedback, keep what is there and give again what a reorg removed."""
    if plan.is_settled or plan.left or (await app.chain.blocks.safe_block()).number < plan.last_block:
        return
    for earned in plan.wanted:
        found = await app.chain.agents.feedback_since(
            earned.registry, earned.agent_id, app.sender.address, earned.posted_at
        )
        if not any(one.endpoint == earned.endpoint for one in found):
            _log.warning("feedback_gone", agent=earned.agent_id, challenge=address)
            del plan.given[str(earned.agent_id)]
    plan.is_settled = not plan.left
    await app.store.put(app.chain_id, FEEDBACK + address, plan.text)


async def _plan(app: App, registry: Address, address: Address) -> FeedbackPlan | None:
    """Plan once what is said; None while the result is not certain."""
    text = await app.store.get(app.chain_id, FEEDBACK + address)
    if text is not None:
        return _PLAN.validate_json(text)
    safe = await app.chain.blocks.safe_block()
    challenge = (await app.chain.challenges.challenges_at([address], safe))[0]
    scores = await read(app.store, app.chain_id, Scores, scores_key(address))
    archived = await archived_trace(app.store, app.chain_id, address)
    if challenge.status is not ChallengeStatus.FINALIZED or scores is None:
        return None
    if archived is None or scores.traceDigest != archived.digest or scores.postedBy != "evaluator":
        plan = FeedbackPlan([], [], {})  # made in another life of this store: there is no trace to point at
    else:
        if await app.chain.agents.reputation(registry).one(safe, "getIdentityRegistry") != challenge.identity_registry:
            raise BadInput(
                f"The registry of feedback {registry} is about other agents than those of {address}.",
                remedy="Check CLARA_REPUTATION_REGISTRY.",
            )
        paid = {winner.account for winner in scores.winners}
        is_for_all = app.settings.reputation != "winners"
        best: dict[int, int] = {}
        for row in scores.rankings:
            is_meant = row.status == "ranked" and (is_for_all or row.address in paid)
            if is_meant and row.agentId is not None and row.score is not None:
                best.setdefault(row.agentId, row.score)
        identity = app.chain.agents.identity(challenge.identity_registry)
        asked = [identity.view("isAuthorizedOrOwner", app.sender.address, agent) for agent in best]
        are_ours = await identity.each(safe, asked)
        skipped = [agent for agent, is_ours in zip(best, are_ours, strict=True) if is_ours is not False]
        uri = await trace_uri(app.store, app.chain_id, address, archived.digest) or ""
        place = (uri, await trace_keccak(app.store, app.chain_id, address))
        skill = next(iter(skills_in(inline_metadata(challenge.challenge_uri))), "")
        where = f"eip155:{app.chain_id}:{address}"
        planned = [
            EarnedFeedback(challenge.run, registry, agent, score, skill, where, *place, challenge.score_posted_at)
            for agent, score in best.items()
            if agent not in skipped
        ]
        plan = FeedbackPlan(planned, skipped, {})
    await app.store.put(app.chain_id, FEEDBACK + address, plan.text)
    return plan
