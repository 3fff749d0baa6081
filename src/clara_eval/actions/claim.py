"""Plan a claim of a prize or of a share of an expired challenge, and plan to finalize."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clara_eval.actions.amounts import show_amount, show_moment, show_wait
from clara_eval.actions.challenges import FINALIZATION_SECONDS, challenge_at, submission_of
from clara_eval.actions.plan import Action, Plan, sender_of, transaction, with_gas
from clara_eval.app import Caller
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, CannotAct, NotYet


@dataclass(frozen=True, slots=True)
class _Due:
    """What can be claimed, and what has to be called first."""

    kind: str
    amount: int
    rank: int | None
    first: str | None = None


def claim(address: str, sender: str | None = None) -> Action:
    return Action.of("claim", address.strip().lower(), lambda caller, _: plan_claim(caller, address, sender))


async def plan_claim(caller: Caller, address: str, sender: str | None = None) -> Plan:
    claimant = sender_of(caller, sender)
    challenge = await challenge_at(caller, address)
    if claimant is None:
        raise BadInput("No sender is given.", path="sender", remedy="Give the address that claims.")
    due = await _due(caller, challenge, claimant)
    name = "claimPrize" if due.kind == "prize" else "claimExpiredRefund"
    claimed = await caller.chain.results.has_claimed(challenge.address, [claimant])
    if claimed[claimant]:
        raise CannotAct(f"{claimant} has already been paid by {challenge.address}.", remedy="Nothing is left to claim.")
    shown = show_amount(due.amount, challenge.token)
    contract = caller.chain.challenges.contract(challenge.address)
    steps = [transaction(challenge.address, contract.encode(name), f"Claim {shown}")]
    if due.first is not None:
        words = f"{due.first.capitalize()} the challenge, which is due"
        steps.insert(0, transaction(challenge.address, contract.encode(due.first), words))
    steps[0] = await with_gas(caller, claimant, steps[0])
    return Plan(
        action="challenge_claim",
        sender=claimant,
        transactions=tuple(steps),
        question=f"Claim {shown} from {challenge.address} on {caller.settings.network_name}? It costs gas.",
        summary=f"{shown} go to {claimant} as {'prize' if due.kind == 'prize' else 'share of the expired challenge'}.",
        challenge=challenge.address,
        details={"kind": due.kind, "amount": str(due.amount), "amountShown": shown, "rank": due.rank},
    )


async def _due(caller: Caller, challenge: Challenge, claimant: Address) -> _Due:
    now, at = challenge.block.timestamp, challenge.address
    match challenge.status:
        case ChallengeStatus.FINALIZED:
            return await _prize(caller, challenge, claimant)
        case ChallengeStatus.EXPIRED:
            return await _share(caller, challenge, claimant)
        case ChallengeStatus.CANCELLED:
            told = f"The challenge {at} was cancelled: its prize went back to the poster."
            raise CannotAct(told, remedy="There is nothing to claim.")
        case ChallengeStatus.OPEN:
            until = "is open until" if now <= challenge.deadline else "waits for scoring since"
            raise NotYet(
                f"The challenge {at} {until} {show_moment(challenge.deadline)}.",
                remedy="Prizes can be claimed 12 hours after the scores are posted.",
            )
        case ChallengeStatus.SCORING if challenge.score_posted_at:
            found = await _prize(caller, challenge, claimant)
            _check_waited(challenge, "Claim")
            return replace(found, first="finalize")
        case ChallengeStatus.SCORING if now > challenge.scoring_deadline:
            return replace(await _share(caller, challenge, claimant), first="expire")
        case ChallengeStatus.SCORING:
            until = show_moment(challenge.scoring_deadline)
            remedy = f"If none come by {until}, every submitter can claim an equal share."
            raise NotYet(f"No scores are posted for {at} yet.", remedy=remedy)


def _check_waited(challenge: Challenge, verb: str) -> None:
    free_at, now = challenge.score_posted_at + FINALIZATION_SECONDS, challenge.block.timestamp
    if now < free_at:
        raise NotYet(
            f"The scores were posted at {show_moment(challenge.score_posted_at)}; prizes wait 12 hours.",
            remedy=f"{verb} at {show_moment(free_at)}, in {show_wait(free_at - now)}.",
        )


async def _prize(caller: Caller, challenge: Challenge, claimant: Address) -> _Due:
    winners = await caller.chain.results.winners_on_chain(challenge.address, challenge.winner_count)
    for rank, winner in enumerate(winners, start=1):
        if winner.account == claimant and winner.prize_amount > 0:
            return _Due("prize", winner.prize_amount, rank)
    raise CannotAct(
        f"{claimant} has no prize in {challenge.address}.", remedy="Claim with the wallet that won (NotAWinner)."
    )


async def _share(caller: Caller, challenge: Challenge, claimant: Address) -> _Due:
    if await submission_of(caller, challenge, claimant) is None:
        raise CannotAct(
            f"{claimant} has not submitted to {challenge.address}.",
            remedy="Claim with the wallet that submitted (NotASubmitter).",
        )
    return _Due("expired_refund", (challenge.prize_pool + challenge.poster_bond) // challenge.submission_count, None)


def finalize(address: str, sender: str | None = None) -> Action:
    return Action.of("finalize", address.strip().lower(), lambda caller, _: plan_finalize(caller, address, sender))


async def plan_finalize(caller: Caller, address: str, sender: str | None = None) -> Plan:
    account = sender_of(caller, sender)
    challenge = await challenge_at(caller, address)
    name, at = challenge.status.name.capitalize(), challenge.address
    if challenge.status is ChallengeStatus.FINALIZED:
        raise CannotAct(f"The challenge {at} is finalized already.", see="claim", about=at)
    if challenge.status in {ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED}:
        raise CannotAct(f"The challenge {at} is {name}: there is nothing to finalize.")
    if challenge.status is ChallengeStatus.OPEN or not challenge.score_posted_at:
        raise NotYet(f"No scores are posted for {at} yet.", remedy="Finalize 12 hours after they are.")
    _check_waited(challenge, "Finalize")
    data = caller.chain.challenges.contract(challenge.address).encode("finalize")
    planned = transaction(challenge.address, data, "Finalize the challenge, which is due")
    return Plan(
        action="challenge_finalize",
        sender=account,
        transactions=(await with_gas(caller, account, planned),),
        question=f"Finalize {challenge.address} on {caller.settings.network_name}? It costs gas.",
        summary=f"The winners of {challenge.address} can claim, and the poster gets the bond back.",
        challenge=challenge.address,
    )
