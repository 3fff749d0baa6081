"""Send the calls of a challenge, each exactly once: advance, post scores, finalize, give feedback."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from clara_eval.chain import model
from clara_eval.chain.contracts.abi import abi
from clara_eval.chain.ethereum import PostedResults
from clara_eval.chain.sender import Intention, Receipt, SendOutcome, TransactionSender
from clara_eval.chain.transaction import Attempts, ContractCall
from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.prepare import RoundCase
from clara_eval.challenges.public_documents import misplaced, rows_on_chain, scores_document
from clara_eval.challenges.recorded import RecordedResult
from clara_eval.challenges.status import StatusWriter
from clara_eval.challenges.venue import superseded
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, CannotPublish, NotYet, Temporary, Unscorable
from clara_eval.core.hashing import plain_json
from clara_eval.documents.store_keys import scores_key
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.trace_archive import bring_back


def check_call(challenge: model.Challenge, winners: model.Winners, trace_digest: str, data: bytes) -> None:
    """Raise if the calldata differs from these winners and digest, or the contract would refuse them."""
    try:
        is_as_decided = model.read_calldata(data) == (winners, trace_digest.lower())
    except BadInput:
        is_as_decided = False
    if not is_as_decided:
        raise CannotPublish("The calldata does not say what was decided.", remedy="Nothing was sent; report this.")
    entries = winners.entries
    if len(challenge.submissions) < challenge.winner_count:
        text = f"{len(challenge.submissions)} submitters for {challenge.winner_count} winners: no scores can be posted."
        raise Unscorable(text, remedy="After scoringDeadline anybody may call expire().")
    if len(entries) != challenge.winner_count:
        raise CannotPublish(f"{len(entries)} winners, but the challenge pays exactly {challenge.winner_count}.")
    agents = {submission.submitter: submission.agent_id for submission in challenge.submissions}
    for winner in entries:
        if agents.get(winner.account) != winner.agent_id:
            raise CannotPublish(f"The winner {winner.account} did not submit as agent {winner.agent_id}.")
    if len({winner.account for winner in entries}) != len(entries):
        raise CannotPublish("A winner is named twice.")
    if [winner.prize_amount for winner in entries] != model.prizes(challenge.prize_pool, challenge.payout_bps):
        raise CannotPublish("The prizes are not the contract's shares of the prize pool.")
    if any(above.score < below.score for above, below in itertools.pairwise(entries)):
        raise CannotPublish("The winners are not in order of their scores.")


async def publish(
    challenge: model.Challenge,
    winners: model.Winners,
    trace_digest: str,
    *,
    sender: TransactionSender,
    superseded: frozenset[bytes] = frozenset(),
    is_open: bool = False,
) -> Receipt:
    """Post these winners, or return how scores were posted before; a repeated call continues the first."""
    data = model.post_scores_calldata(winners, trace_digest, challenge.contract_version)
    check_call(challenge, winners, trace_digest, data)
    call = ContractCall(challenge.run, Intention.POST_SCORES, challenge.address, data, replaces=superseded - {data})
    if is_open and not sender.can_sign:  # the contract could not accept the call yet
        text = "Dry run: the challenge is still Open, so the call was checked but not rehearsed; nothing was sent."
        return Receipt.of(call, SendOutcome.DRY_RUN, detail=text)

    results = sender.account.chain.results

    async def is_done(attempts: Attempts) -> Receipt | None:
        state = await results.scoring_state(challenge.address)
        if state.score_posted_at:
            return _receipt_of_posted(call, await results.posted_by(challenge), attempts)
        if state.status is model.ChallengeStatus.OPEN:
            raise NotYet("The challenge is still Open.", remedy="Call advanceToScoring after the deadline first.")
        if state.status is not model.ChallengeStatus.SCORING:
            raise CannotPublish(f"The challenge is {state.status.name.capitalize()}: scores can no longer be posted.")
        if not await results.blocks.is_canonical(challenge.block):
            text = f"Block {challenge.block.number}, at which the challenge was read, was replaced."
            raise Temporary(text, remedy="Read again.")
        return None

    receipt = await sender.send(call, is_done)
    if receipt.outcome is not SendOutcome.CONFIRMED or receipt.posted_by is not None:
        return receipt
    if receipt.calldata != "0x" + data.hex():
        text = "The post of an earlier reading, whose block was replaced, was mined before it could be superseded."
        return replace(receipt, outcome=SendOutcome.ALREADY_DONE, posted_by=model.PostedBy.EVALUATOR, detail=text)
    by = model.PostedBy.of(sender.address, evaluator=challenge.evaluator, poster=challenge.poster)
    return replace(receipt, posted_by=by)


def _receipt_of_posted(call: ContractCall, posted: model.Posted | None, attempts: Attempts) -> Receipt:
    """Return the receipt of scores that are posted although no receipt of our attempts was found."""
    is_mine = posted is not None and posted.tx_hash in {attempt.tx_hash for attempt in attempts}
    if posted is None or is_mine or not posted.is_final:
        # Ours is mined but not every node shows it yet, or the post is not final.
        outcome, detail = SendOutcome.UNKNOWN, "Scores are posted, but not yet final."
    elif posted.calldata == call.data and posted.by is model.PostedBy.EVALUATOR:
        # Posted by another process with our key, or by us before the store was lost.
        outcome, detail = SendOutcome.CONFIRMED, ""
    else:
        outcome = SendOutcome.ALREADY_DONE
        detail = f"Scores were already posted, by the {posted.by} ({posted.sender})."
    return replace(Receipt.of(call, outcome, posted, detail=detail), posted_by=posted.by if posted else None)


async def advance(challenge: model.Challenge, *, sender: TransactionSender, is_seen_open: bool = False) -> Receipt:
    """Move a challenge on to scoring after its deadline; below two submissions the contract cancels it."""
    data = model.scoring_function("advanceToScoring", challenge.contract_version).call()
    call = ContractCall(challenge.run, Intention.ADVANCE_TO_SCORING, challenge.address, data)

    async def is_done(attempts: Attempts) -> Receipt | None:
        nonlocal is_seen_open
        if is_seen_open and not attempts:
            is_seen_open = False  # after a refusal the contract is read
            return None
        state = await sender.account.chain.results.scoring_state(challenge.address)
        return None if state.status is model.ChallengeStatus.OPEN else _by_others(call, state.status)

    return await sender.send(call, is_done)


async def finalize(challenge: model.Challenge, *, sender: TransactionSender) -> Receipt:
    """Finalize the challenge so that winners can claim, 12 hours after the post."""
    data = model.scoring_function("finalize", challenge.contract_version).call()
    call = ContractCall(challenge.run, Intention.FINALIZE, challenge.address, data)

    async def is_done(_attempts: Attempts) -> Receipt | None:
        state = await sender.account.chain.results.scoring_state(challenge.address)
        if state.status is model.ChallengeStatus.FINALIZED:
            return _by_others(call, state.status)
        if state.status is model.ChallengeStatus.OPEN or not state.score_posted_at:
            if state.status in {model.ChallengeStatus.CANCELLED, model.ChallengeStatus.EXPIRED}:
                raise CannotPublish(f"The challenge is {state.status.name.capitalize()}: nothing to finalize.")
            raise NotYet("No scores are posted yet.", remedy="Finalize 12 hours after they are.")
        return None

    return await sender.send(call, is_done)


def _by_others(call: ContractCall, status: model.ChallengeStatus) -> Receipt:
    return Receipt.of(call, SendOutcome.ALREADY_DONE, detail=f"The challenge is already {status.name.capitalize()}.")


TAG = "challenge"
DECIMALS = 2
_GIVE = abi("ReputationRegistry").function("giveFeedback")


@dataclass(frozen=True, slots=True)
class EarnedFeedback:
    """Feedback about one agent, fixed before the first attempt so that all attempts are equal."""

    run: str
    registry: Address
    agent_id: int
    score: int
    skill: str
    endpoint: str  # The challenge, as `eip155:CHAIN:ADDRESS`
    uri: str
    content_hash: str
    posted_at: int

    def call(self) -> ContractCall:
        values = (self.agent_id, self.score, DECIMALS, TAG, self.skill, self.endpoint, self.uri, self.content_hash)
        what = f"giveFeedback about agent {self.agent_id}"
        return ContractCall(self.run, f"feedback:{self.agent_id}", self.registry, _GIVE.call(*values), what)


async def give_feedback(earned: EarnedFeedback, *, sender: TransactionSender) -> Receipt:
    call, agents = earned.call(), sender.account.chain.agents

    async def is_done(attempts: Attempts) -> Receipt | None:
        given = await agents.feedback_since(earned.registry, earned.agent_id, sender.address, earned.posted_at)
        found = next((one for one in given if one.endpoint == earned.endpoint), None)
        if found is None or found.tx_hash in {attempt.tx_hash for attempt in attempts}:
            return None
        receipt = Receipt.of(call, SendOutcome.ALREADY_DONE, detail="This feedback is already on chain.")
        return replace(receipt, tx_hash=found.tx_hash, block_number=found.block_number)

    return await sender.send(call, is_done)


async def post_result(case: RoundCase, found: RecordedResult, status: StatusWriter) -> Receipt:
    """Post a recorded result, and save its outcome in the scores and the status."""
    await status.say("publishing", 92)
    challenge, chain, store = case.challenge, case.ports.chain, case.ports.store
    replaced = await superseded(store, challenge.run)
    decided = (challenge, found.winners, found.digest)
    receipt = await publish(*decided, sender=case.ports.sender, superseded=replaced, is_open=case.is_open)
    case.options.sent(receipt)
    scores, by, posted_at = await _build_scores(case, found), None, None
    if receipt.outcome in {SendOutcome.CONFIRMED, SendOutcome.ALREADY_DONE}:
        by = receipt.posted_by or model.PostedBy.EVALUATOR
        if receipt.block_number is not None:
            posted_at = (await chain.blocks.block_at(receipt.block_number)).timestamp
        else:
            posted_at = (await chain.results.scoring_state(challenge.address)).score_posted_at
    if by not in {None, model.PostedBy.EVALUATOR}:  # our winners and prizes do not count
        scores |= {"winners": [], "rankings": [{**row, "prizeAmount": None} for row in scores["rankings"]]}
    scores |= {"outcome": receipt.outcome.value, "txHash": receipt.tx_hash, "blockNumber": receipt.block_number}
    scores |= {"postedBy": by, "publishedAt": posted_at}
    await store.put(challenge.chain_id, scores_key(challenge.address), plain_json(scores))
    match receipt.outcome:
        case SendOutcome.UNKNOWN:
            text = "Sent, not seen mined yet: the chain is asked again."
            await status.say("publishing", 95, reason=f"{text} {receipt.detail}".strip())
        case SendOutcome.REVERTED:
            await status.say("failed", reason=f"The post was mined but reverted: {receipt.detail}")
        case _:
            await status.say("complete", reason=receipt.detail or None, postedBy=by and str(by))
    return receipt


async def save_scores(case: RoundCase, found: RecordedResult) -> None:
    """Save the scores before the post, unless an earlier run recorded who posted."""
    challenge = case.challenge
    if not (await case.scores()).get("postedBy"):
        text = plain_json(await _build_scores(case, found))
        await case.ports.store.put(challenge.chain_id, scores_key(challenge.address), text)


async def _build_scores(case: RoundCase, found: RecordedResult) -> dict[str, Any]:
    earlier = await case.scores()
    if found.result is None:
        return earlier
    cid = earlier.get("traceCid") if earlier.get("traceDigest") == found.digest else None
    scores = scores_document(case.challenge, found.result, found.winners, found.digest, cid)
    if case.options.settings.traces_public == "never":  # names of tests may reveal a hidden harness
        for row in scores["rankings"]:
            row["executed"] = row["executed"] and {**row["executed"], "failed": {}}
    return {**scores, "misplaced": await misplaced(case, found.result)}


async def record_posted(store: SqlStore, results: PostedResults, challenge: model.Challenge) -> model.Posted | None:
    """Save who posted the scores and return the post; None if there is none or it is not final."""
    posted, chain_id, address = await results.posted_by(challenge), challenge.chain_id, challenge.address
    if posted is None:
        return None
    is_by_evaluator, key = posted.by is model.PostedBy.EVALUATOR, scores_key(address)
    writer = await StatusWriter.resumed(store, chain_id, address)
    if not posted.is_final:
        await writer.say("publishing", 95, reason="Scores are posted; their block is not deep enough yet.")
        return None
    scores = await read_document(store, chain_id, key) or {}
    committed = model.committed_digest(posted.calldata) if is_by_evaluator else None
    if committed and scores.get("traceDigest") != committed:
        await bring_back(store, chain_id, address, committed)
        scores = await read_document(store, chain_id, key) or {}
    is_ours = committed and scores.get("traceDigest") == committed
    if not scores.get("postedBy") or (scores.get("traceDigest") and not is_ours):
        if not is_ours:
            winners = await results.winners_on_chain(address, challenge.winner_count)
            rows = [row.model_dump() for row in rows_on_chain(winners)]
            paid = [{"account": row["address"], "prizeAmount": row["prizeAmount"]} for row in rows]
            scores = {"rankings": rows, "winners": paid if is_by_evaluator else []}
            scores |= {"margin": None, "consistency": None, "flags": [], "traceDigest": None}
        scores |= {"postedBy": str(posted.by), "txHash": posted.tx_hash, "outcome": "already_done"}
        scores["publishedAt"] = challenge.score_posted_at
        await store.put(chain_id, key, plain_json(scores))
    reason = None if is_by_evaluator else f"Scores were posted by the {posted.by}."
    await writer.say("complete", reason=reason, postedBy=str(posted.by))
    return posted
