"""The calls that we send, each exactly once: post the winners, move the contract on, give feedback."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clara_eval.chain.contracts.abi import abi
from clara_eval.chain.ethereum import AgentRegistries, PostedResults
from clara_eval.chain.model import Challenge, ChallengeStatus, Posted, PostedBy
from clara_eval.chain.sender import Intention, Receipt, SendOutcome, TransactionSender
from clara_eval.chain.transaction import ContractCall, StoredTransaction
from clara_eval.chain.winners import Winners, post_scores_calldata, prizes, read_calldata, scoring_function
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, CannotPublish, NotYet, Temporary, Unscorable


def check_call(challenge: Challenge, winners: Winners, trace_digest: str, data: bytes) -> None:
    """Refuse calldata that is not exactly these winners with this digest, or winners the contract would not take."""
    try:
        read = read_calldata(data)
        is_decided = read.winners == winners and read.trace_digest == trace_digest.lower()
    except BadInput:
        is_decided = False
    if not is_decided:
        raise CannotPublish("The calldata does not say what was decided.", remedy="Nothing was sent; report this.")
    entries = winners.entries
    if len(challenge.submissions) < challenge.winner_count:
        raise Unscorable(
            f"{len(challenge.submissions)} submitters for {challenge.winner_count} winners: no scores can be posted.",
            remedy="After scoringDeadline anybody may call expire().",
        )
    if len(entries) != challenge.winner_count:
        raise CannotPublish(f"{len(entries)} winners, but the challenge pays exactly {challenge.winner_count}.")
    agents = {submission.submitter: submission.agent_id for submission in challenge.submissions}
    for winner in entries:
        if agents.get(winner.account) != winner.agent_id:
            raise CannotPublish(f"The winner {winner.account} did not submit as agent {winner.agent_id}.")
    if len({winner.account for winner in entries}) != len(entries):
        raise CannotPublish("A winner is named twice.")
    if [winner.prize_amount for winner in entries] != prizes(challenge.prize_pool, challenge.payout_bps):
        raise CannotPublish("The prizes are not the contract's shares of the prize pool.")
    if any(above.score < below.score for above, below in itertools.pairwise(entries)):
        raise CannotPublish("The winners are not in order of their scores.")


async def publish(
    challenge: Challenge,
    winners: Winners,
    trace_digest: str,
    *,
    sender: TransactionSender,
    results: PostedResults,
    superseded: frozenset[bytes] = frozenset(),
) -> Receipt:
    """Post these winners, or return how scores were posted before; a second call continues the first."""
    data = post_scores_calldata(winners, trace_digest, challenge.contract_version)
    check_call(challenge, winners, trace_digest, data)
    call = ContractCall(challenge.run, Intention.POST_SCORES, challenge.address, data, replaces=superseded - {data})

    async def is_done(attempts: Sequence[StoredTransaction]) -> Receipt | None:
        state = await results.scoring_state(challenge.address)
        if state.score_posted_at:
            return await _posted(call, challenge, results, attempts)
        if state.status is ChallengeStatus.OPEN:
            raise NotYet("The challenge is still Open.", remedy="Call advanceToScoring after the deadline first.")
        if state.status is not ChallengeStatus.SCORING:
            name = state.status.name.capitalize()
            raise CannotPublish(f"The challenge is {name}: scores can no longer be posted.")
        if not await results.blocks.is_canonical(challenge.block):
            raise Temporary(
                f"Block {challenge.block.number}, at which the challenge was read, was replaced.", remedy="Read again."
            )
        return None

    receipt = await sender.send(call, is_done)
    if receipt.outcome is not SendOutcome.CONFIRMED or receipt.posted_by is not None:
        return receipt
    if receipt.calldata != "0x" + data.hex():
        said = "The post of an earlier reading, whose block was replaced, was mined before it could be superseded."
        return replace(receipt, outcome=SendOutcome.ALREADY_DONE, posted_by=PostedBy.EVALUATOR, detail=said)
    by = PostedBy.of(sender.address, evaluator=challenge.evaluator, poster=challenge.poster)
    return replace(receipt, posted_by=by)


async def _posted(
    call: ContractCall, challenge: Challenge, results: PostedResults, attempts: Sequence[StoredTransaction]
) -> Receipt:
    """Find out whose scores are posted, when none of our attempts was seen mined."""
    posted = await results.posted_by(challenge)
    is_mine = posted is not None and posted.tx_hash in {attempt.tx_hash for attempt in attempts}
    if posted is None or is_mine or not posted.is_final:
        # The nodes have not settled: ours is mined but not every node shows it, or the post is not deep enough.
        return _receipt(call, SendOutcome.UNKNOWN, posted, "Scores are posted, but not yet final.")
    # Another process with our key, or we ourselves before the store was lost: the same bytes are the same post.
    if posted.calldata == call.data and posted.by is PostedBy.EVALUATOR:
        return _receipt(call, SendOutcome.CONFIRMED, posted, "")
    detail = f"Scores were already posted, by the {posted.by} ({posted.sender})."
    return _receipt(call, SendOutcome.ALREADY_DONE, posted, detail)


def _receipt(call: ContractCall, outcome: SendOutcome, posted: Posted | None, detail: str) -> Receipt:
    return replace(Receipt.of(call, outcome, posted, detail=detail), posted_by=posted.by if posted else None)


async def advance(
    challenge: Challenge, *, sender: TransactionSender, results: PostedResults, is_seen_open: bool = False
) -> Receipt:
    """Move a closed challenge on to scoring; below two submissions the contract cancels it."""
    data = scoring_function("advanceToScoring", challenge.contract_version).call()
    call = ContractCall(challenge.run, Intention.ADVANCE_TO_SCORING, challenge.address, data)

    async def is_done(attempts: Sequence[StoredTransaction]) -> Receipt | None:
        nonlocal is_seen_open
        if is_seen_open and not attempts:
            is_seen_open = False  # a refusal asks again
            return None
        state = await results.scoring_state(challenge.address)
        return None if state.status is ChallengeStatus.OPEN else _by_others(call, state.status)

    return await sender.send(call, is_done)


async def finalize(challenge: Challenge, *, sender: TransactionSender, results: PostedResults) -> Receipt:
    """Open the claims, 12 hours after the post."""
    data = scoring_function("finalize", challenge.contract_version).call()
    call = ContractCall(challenge.run, Intention.FINALIZE, challenge.address, data)

    async def is_done(_attempts: Sequence[StoredTransaction]) -> Receipt | None:
        state = await results.scoring_state(challenge.address)
        if state.status is ChallengeStatus.FINALIZED:
            return _by_others(call, state.status)
        if state.status is ChallengeStatus.OPEN or not state.score_posted_at:
            if state.status in {ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED}:
                raise CannotPublish(f"The challenge is {state.status.name.capitalize()}: nothing to finalize.")
            raise NotYet("No scores are posted yet.", remedy="Finalize 12 hours after they are.")
        return None

    return await sender.send(call, is_done)


def _by_others(call: ContractCall, status: ChallengeStatus) -> Receipt:
    return Receipt.of(call, SendOutcome.ALREADY_DONE, detail=f"The challenge is already {status.name.capitalize()}.")


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
        known = Receipt.of(call, SendOutcome.ALREADY_DONE, detail="This feedback stands on chain already.")
        return replace(known, tx_hash=found.tx_hash, block_number=found.block_number)

    return await sender.send(call, is_done)
