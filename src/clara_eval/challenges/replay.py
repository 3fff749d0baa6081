"""Check the trace of a challenge: replay it, and with a node compare it with the chain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Challenge, Posted, Winners, read_calldata
from clara_eval.challenges.venue import ChallengeVenue
from clara_eval.core.errors import BadInput, BadTrace
from clara_eval.evaluation.replay import JudgeEvidence, Replay, replay
from clara_eval.harness import Machine
from clara_eval.judge.attestation import Quotes

__all__ = ["Checked", "JudgeEvidence", "check_trace"]
OFFLINE = "that the chain holds this challenge, these submissions and this result: nothing was compared with it"
REPLACED = (
    "that block {number}, at which the challenge was read, was ever on the chain: another is in its place since a "
    "reorg, and the block before the post tells the same facts"
)
TASK = "that the problem statement, at an address that can change, was the same at the deadline: the config is fixed"


@dataclass(frozen=True, slots=True)
class Checked(Replay):
    venue: ChallengeVenue
    posted: Posted | None = None
    is_replaced: bool = False  # A reorg replaced the block at which the challenge was read
    is_first_block: bool = True  # Whether it is the first after the deadline, which any evaluator would choose

    @property
    def challenge(self) -> Challenge:
        return self.venue.challenge

    @property
    def winners(self) -> Winners:
        return self.venue.winners(self.result)

    @property
    def compared(self) -> tuple[str, ...]:
        if self.posted is None:
            return ()
        which = "the first after the deadline" if self.is_first_block else "not the first after the deadline"
        facts = f"the block, {which}, and the challenge with its submissions at that block"
        if self.is_replaced:
            facts = "the challenge with its submissions, as they were just before the post"
        return facts, "the posted transaction: its winners, and that it commits to this trace"

    @property
    def not_proven(self) -> tuple[str, ...]:
        found = [OFFLINE] if self.posted is None else []
        if self.is_replaced:
            found.append(REPLACED.format(number=self.challenge.block.number))
        if self.venue.disputed is not None:
            found.append("that the draft had the recorded places: who objected signed its digest, not the places")
        if not self.challenge.challenge_uri.lower().startswith("data:"):
            found.append(TASK)
        return (*found, *self.open_points)


async def check_trace(
    lines: Iterable[str],
    chain: EthereumChain | None = None,
    machine: Machine | None = None,
    quotes: Quotes | None = None,
) -> Checked:
    """Check every entry offline; with a chain, also that this is the posted trace."""
    checked = await replay(Checked, lines, ChallengeVenue.read, machine, quotes)
    if chain is None:
        return checked
    posted, block = await _check_chain(checked, chain), checked.challenge.block
    is_first = (await chain.blocks.block_at(block.number - 1)).timestamp <= checked.challenge.deadline
    is_replaced = not await chain.blocks.is_canonical(block)
    return replace(checked, posted=posted, is_replaced=is_replaced, is_first_block=is_first)


async def _check_facts(challenge: Challenge, posted: Posted | None, chain: EthereumChain) -> None:
    """Compare the challenge at its block; if a reorg replaced it, at the block before the post."""
    read_at = challenge.read_at or challenge.block
    is_there = await chain.blocks.is_canonical(challenge.block) and await chain.blocks.is_canonical(read_at)
    if not is_there and posted is None:
        raise BadTrace(f"Block {challenge.block.number} of the trace is not on this chain.", entry="challenge")
    block = read_at if is_there or posted is None else await chain.blocks.block_at(posted.block_number - 1)
    found = await chain.challenges.challenge_at(challenge.address, block)
    found = replace(found, block=challenge.block, read_at=challenge.read_at)
    if not is_there:
        found = replace(found, status=challenge.status, score_posted_at=challenge.score_posted_at)
    if found != challenge:
        raise BadTrace(f"The chain has other facts about the challenge at block {block.number}.", entry="challenge")


async def _check_chain(checked: Checked, chain: EthereumChain) -> Posted:
    """Compare the challenge, and the digest and winners in the transaction that posted."""
    challenge = checked.challenge
    if chain.chain_id != challenge.chain_id:
        raise BadTrace(f"The node is on chain {chain.chain_id}, the trace on {challenge.chain_id}.", entry="challenge")
    posted = await chain.results.posted_by(challenge)
    await _check_facts(challenge, posted, chain)
    if posted is None:
        raise BadTrace("No scores are posted for this challenge.", entry="calldata", remedy="Check without --rpc.")
    try:
        winners, digest = read_calldata(posted.calldata)
    except BadInput as bad:
        raise BadTrace(
            f"The transaction {posted.tx_hash} does not call postScores itself, so it commits to no trace: {bad}",
            entry="digest",
        ) from bad
    if digest != checked.digest:
        raise BadTrace(
            f"The transaction {posted.tx_hash}, posted by the {posted.by}, commits to the trace {digest or 'none'}; "
            f"this one is {checked.digest}.",
            entry="digest",
        )
    if winners != checked.winners or not posted.calldata.startswith(checked.venue.calldata(checked.result)):
        raise BadTrace("The posted winners are not those of the trace.", entry="winners")
    return posted
