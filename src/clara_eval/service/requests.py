"""Requests of the interfaces to the service: evaluations, review decisions, rulings, objections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clara_eval.actions.evaluate import check_known
from clara_eval.actions.harness import reveal_harness
from clara_eval.actions.objections import object_to_draft
from clara_eval.actions.review import Decree, approve, reject, rule
from clara_eval.app import App
from clara_eval.challenges.challenge_index import save_summary
from clara_eval.challenges.review import Objection
from clara_eval.challenges.status import StatusWriter, try_at_once
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.core.address import Address
from clara_eval.core.errors import NotYet
from clara_eval.documents.results import FINAL_STATES, EvalStatus, read
from clara_eval.documents.store_keys import status_key
from clara_eval.service.due import DueAction, Memory, due_now
from clara_eval.service.queue import Queue

Decision = Literal["approve", "reject"]


@dataclass(frozen=True, slots=True)
class ServiceRequests:
    app: App
    queue: Queue

    async def request(self, address: Address) -> str:
        """Queue an evaluation now and return its workflow id; NotYet if none is due."""
        app = self.app
        await check_known(app, address)
        challenge = await look_at_challenge(app.chain, address)
        status = await read(app.store, app.chain_id, EvalStatus, status_key(address))
        await save_summary(app.store, challenge, status.postedBy if status else None)
        state = status.status if status else None
        found = due_now(app, challenge, Memory("review" if state == "review" else None), challenge.block)
        if found.action is not DueAction.EVALUATE:
            raise NotYet(f"Challenge {address} is not evaluated now: {found.why}.")
        await try_at_once(app.store, app.chain_id, address)
        if state in {*FINAL_STATES, "deferred"}:
            await (await StatusWriter.resumed(app.store, app.chain_id, address)).say("pending", 0)
        return await self.queue.enqueue(challenge)

    async def decide(
        self, address: Address, decision: Decision, reason: str, digest: str | None = None, by: str = ""
    ) -> None:
        decide = approve if decision == "approve" else reject
        await decide(self.app.store, self.app.chain_id, address, note=reason, digest=digest, by=by)
        if decision == "approve":
            await self.queue.enqueue(await look_at_challenge(self.app.chain, address))

    async def rule(self, address: Address, decree: Decree, digest: str | None) -> None:
        await rule(self.app.store, self.app.chain_id, address, decree, digest=digest)
        await self.queue.enqueue(await look_at_challenge(self.app.chain, address))

    async def reveal(self, address: Address, document: str, signature: str) -> str:
        """Accept a hidden harness that its poster reveals, and return the hash that was committed."""
        await check_known(self.app, address)
        return await reveal_harness(self.app, address, document, signature)

    async def object(self, address: Address, about: str, reason: str, signature: str) -> Objection:
        """Accept a submitter's objection to an announced result."""
        await check_known(self.app, address)
        return await object_to_draft(self.app.store, self.app.chain, address, about, reason, signature)
