"""Results as reputation: one `giveFeedback` (ERC-8004) for an agent and a challenge, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.chain.contracts.abi import abi
from clara_eval.chain.ethereum import AgentRegistries
from clara_eval.chain.sender import Receipt, SendOutcome, TransactionSender
from clara_eval.chain.transaction import ContractCall, StoredTransaction
from clara_eval.core.address import Address

TAG = "challenge"
DECIMALS = 2
_GIVE = abi("ReputationRegistry").function("giveFeedback")


@dataclass(frozen=True, slots=True)
class EarnedFeedback:
    """What is said about one agent; fixed before the first attempt, so that every attempt says the same."""

    run: str
    registry: Address
    agent_id: int
    score: int
    skill: str
    endpoint: str
    """The challenge, as `eip155:CHAIN:ADDRESS`."""
    uri: str
    content_hash: str
    posted_at: int

    def call(self) -> ContractCall:
        said = (self.agent_id, self.score, DECIMALS, TAG, self.skill, self.endpoint, self.uri, self.content_hash)
        what = f"giveFeedback about agent {self.agent_id}"
        return ContractCall(self.run, f"feedback:{self.agent_id}", self.registry, _GIVE.call(*said), what)


async def give_feedback(earned: EarnedFeedback, *, sender: TransactionSender, agents: AgentRegistries) -> Receipt:
    call = earned.call()

    async def is_done(attempts: Sequence[StoredTransaction]) -> Receipt | None:
        given = await agents.feedback_since(earned.registry, earned.agent_id, sender.address, earned.posted_at)
        found = next((one for one in given if one.endpoint == earned.endpoint), None)
        if found is None or found.tx_hash in {attempt.tx_hash for attempt in attempts}:
            return None
        return Receipt(
            SendOutcome.ALREADY_DONE,
            call.intention,
            "0x" + call.data.hex(),
            found.tx_hash,
            found.block_number,
            detail="This feedback stands on chain already.",
        )

    return await sender.send(call, is_done)
