"""The factory's challenges, as the use cases of posters, agents and readers look at them.

Comes in: an address, or nothing. Goes out: `Challenge`s as they stand at the newest block, without their submissions.
An address that the network's factory did not create is NotFound: anybody can deploy a contract that looks like a
challenge and holds no prize.
"""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.app import Caller
from clara_eval.chain.model import Challenge
from clara_eval.chain.posted import PostedBy
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import NotFound, Temporary
from clara_eval.core.submission import Submission

UNSETTLED = 20
"""The newest challenges are always read again: a reorg may have replaced them."""


async def addresses(caller: Caller) -> list[Address]:
    """Every challenge of the factory, oldest first."""
    factory = caller.chain.challenges.factory(caller.factory)
    block = await caller.chain.blocks.head()
    count = await factory.count(block)
    known = caller.known[: max(0, count - UNSETTLED)]
    known += await factory.challenges(block, range(len(known), count))
    caller.known[:] = known
    return known


async def known_evaluator(caller: Caller) -> Address | None:
    """Clara's address: as set here, else as the service of CLARA_API_URL says; None where nobody says."""
    if caller.evaluator is not None:
        return caller.evaluator
    try:
        return await caller.records.evaluator()
    except Temporary:
        return None  # a reader goes on without it; a poster is told that it is not known


async def challenge_at(caller: Caller, address: str) -> Challenge:
    """One challenge of the factory; NotFound if it is none."""
    wanted = to_address(address, what="challenge")
    if wanted not in await addresses(caller):
        raise NotFound(
            f"{wanted} is not a challenge of the factory {caller.factory} on {caller.settings.network_name}.",
            remedy="Check the address and CLARA_NETWORK; challenge_browse lists the challenges there are.",
        )
    return (await challenges_at(caller, [wanted]))[0]


async def challenges_at(caller: Caller, wanted: Sequence[Address]) -> list[Challenge]:
    """Many at one block."""
    return await caller.chain.challenges.challenges_at(wanted, await caller.chain.blocks.head())


async def submission_of(caller: Caller, challenge: Challenge, submitter: Address) -> Submission | None:
    """What that address submitted last, if anything."""
    return await caller.chain.challenges.contract(challenge.address).submission_of(
        await caller.chain.blocks.head(), submitter
    )


async def posted_by(caller: Caller, challenge: Challenge) -> PostedBy | None:
    """Who sent the scores: the poster may always do it, and then it has to be said. None while nobody can tell."""
    if challenge.score_posted_at == 0:
        return None
    try:
        posted = await caller.chain.results.posted_by(challenge)
    except Temporary:
        return None  # not every node has old events; the winners themselves are known all the same
    return posted.by if posted else None
