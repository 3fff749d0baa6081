"""Read the factory's challenges; an address that it did not create is NotFound."""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.app import Caller
from clara_eval.chain.model import Challenge, PostedBy
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import NotFound, Temporary
from clara_eval.core.submission import Submission

FINALIZATION_SECONDS = 12 * 3600
"""The contract's wait between the post and the claims."""
UNSETTLED = 20
"""The newest challenges are always read again: a reorg may have replaced them."""


async def addresses(caller: Caller) -> list[Address]:
    """List every challenge of the factory, oldest first."""
    factory = caller.chain.challenges.factory(caller.factory)
    block = await caller.chain.blocks.head()
    count = await factory.count(block)
    known = caller.known[: max(0, count - UNSETTLED)]
    known += await factory.challenges(block, range(len(known), count))
    caller.known[:] = known
    return known


async def known_evaluator(caller: Caller) -> Address | None:
    """Clara's address: as set here, else as the service says."""
    if caller.evaluator is not None:
        return caller.evaluator
    try:
        return await caller.records.evaluator()
    except Temporary:
        return None


async def challenge_at(caller: Caller, address: str) -> Challenge:
    wanted = to_address(address, what="challenge")
    if wanted not in await addresses(caller):
        raise NotFound(
            f"{wanted} is not a challenge of the factory {caller.factory} on {caller.settings.network_name}.",
            remedy="Check the address and CLARA_NETWORK.",
            see="browse",
        )
    return (await challenges_at(caller, [wanted]))[0]


async def challenges_at(caller: Caller, wanted: Sequence[Address]) -> list[Challenge]:
    return await caller.chain.challenges.challenges_at(wanted, await caller.chain.blocks.head())


async def submission_of(caller: Caller, challenge: Challenge, submitter: Address) -> Submission | None:
    return await caller.chain.challenges.contract(challenge.address).submission_of(
        await caller.chain.blocks.head(), submitter
    )


async def posted_by(caller: Caller, challenge: Challenge) -> PostedBy | None:
    """Who posted the scores; None if no node says."""
    if challenge.score_posted_at == 0:
        return None
    try:
        posted = await caller.chain.results.posted_by(challenge)
    except Temporary:
        return None  # not every node has old events
    return posted.by if posted else None
