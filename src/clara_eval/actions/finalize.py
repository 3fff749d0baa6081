"""Finalizing by hand: opens the claims of a challenge whose 12 hours are over, for whoever does not run a service.

Comes in: a challenge. Goes out: a `Plan` with `finalize`, which anybody may call. Refuses, with the moment to come back
at, what is not due, and says so where it is done already.
"""

from __future__ import annotations

from clara_eval.actions.challenges import challenge_at
from clara_eval.actions.claim import FINALIZATION_SECONDS
from clara_eval.actions.plan import (
    Action,
    Plan,
    sender_of,
    transaction,
    with_gas,
)
from clara_eval.actions.times import show_moment, show_wait
from clara_eval.app import Caller
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.core.errors import CannotAct, NotYet


def finalize(address: str, sender: str | None = None) -> Action:
    """Open the claims of a challenge."""
    return Action.of("finalize", address.strip().lower(), lambda caller, _: plan_finalize(caller, address, sender))


async def plan_finalize(caller: Caller, address: str, sender: str | None = None) -> Plan:
    """Everything checked, nothing sent."""
    caller_address = sender_of(caller, sender)
    challenge = await challenge_at(caller, address)
    _check_due(challenge)
    data = caller.chain.challenges.contract(challenge.address).bare_call("finalize")
    planned = transaction(challenge.address, data, "Finalize the challenge, which is due")
    return Plan(
        action="challenge_finalize",
        sender=caller_address,
        transactions=(await with_gas(caller, caller_address, planned),),
        question=f"Finalize {challenge.address} on {caller.settings.network_name}? It costs gas.",
        summary=f"The winners of {challenge.address} can claim, and the poster gets the bond back.",
        challenge=challenge.address,
        next=f"Winners claim with `clara-eval challenge claim {challenge.address}`.",
    )


def _check_due(challenge: Challenge) -> None:
    name, at = challenge.status.name.capitalize(), challenge.address
    if challenge.status is ChallengeStatus.FINALIZED:
        raise CannotAct(f"The challenge {at} is finalized already.", remedy=f"Run `clara-eval challenge claim {at}`.")
    if challenge.status in {ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED}:
        raise CannotAct(f"The challenge {at} is {name}: there is nothing to finalize.")
    if challenge.status is ChallengeStatus.OPEN or not challenge.score_posted_at:
        raise NotYet(f"No scores are posted for {at} yet.", remedy="Finalize 12 hours after they are.")
    free_at, now = challenge.score_posted_at + FINALIZATION_SECONDS, challenge.block.timestamp
    if now < free_at:
        raise NotYet(
            f"The scores were posted at {show_moment(challenge.score_posted_at)}; prizes wait 12 hours.",
            remedy=f"Finalize at {show_moment(free_at)}, in {show_wait(free_at - now)}.",
        )
