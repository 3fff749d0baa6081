"""From an action to a document: unsigned for the caller's own wallet, or carried out with the local one.

Comes in: an action, and whether somebody confirmed it. Goes out: one document of what was done or is left to do.
Without a wallet everything is left to the caller; with one, nothing is sent that was not confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from clara_eval.actions.carry_out import (
    AGAIN_SECONDS,
    REHEARSALS,
    Report,
    SentStep,
    carry_out,
    check_limit,
    telling,
    unfinished,
)
from clara_eval.actions.plan import Action, Plan, registered_id
from clara_eval.app import Caller
from clara_eval.core.address import Address
from clara_eval.core.errors import CannotAct, Temporary
from clara_eval.documents.actions import ActResult, SentTransaction, UnsignedTransaction

Outcome = Literal["unsigned", "needs_confirmation", "declined", "sent"]


async def silence(_done: int, _total: int, _words: str) -> None:
    """Report to nobody."""


async def prepare(caller: Caller, action: Action) -> Plan:
    """The plan, refused already here if the local wallet must not carry it out; one that was begun goes on."""
    plan = await unfinished(caller, action) or await action.plan(caller, None)
    if caller.account is not None:
        check_limit(caller, plan.spends)
    return plan


async def show(caller: Caller, action: Action) -> Plan:
    """The plan to look at: what the local wallet must not carry out is a warning, since nothing is sent."""
    plan = await unfinished(caller, action) or await action.plan(caller, None)
    try:
        check_limit(caller, plan.spends)
    except CannotAct as refused:
        return replace(plan, warnings=(str(refused), *plan.warnings))
    return plan


async def act(
    caller: Caller, action: Action, *, confirmed: Literal["yes", "no", "unasked"], report: Report = silence
) -> ActResult:
    """Plan, and with a wallet and a yes, do it."""
    if caller.account is None:
        plan = await prepare(caller, action)
        await _publish(caller, plan)
        return written(caller, plan, "unsigned")
    if confirmed != "yes":
        plan = await show(caller, action)
        return written(caller, plan, "declined" if confirmed == "no" else "needs_confirmation")
    async with caller.sending:
        plan = await prepare(caller, action)
        await _publish(caller, plan)
        sent = await carry_out(caller, action, plan, report)
        if plan.is_first_part:
            with telling(sent):
                plan = await _second_part(caller, action, plan, sent)
                await _publish(caller, plan)
                sent = sent + await carry_out(caller, action, plan, report)
    return written(caller, plan, "sent", sent)


async def _publish(caller: Caller, plan: Plan) -> None:
    """Content goes out when it is sure to be submitted: with a yes, or with transactions for another wallet to sign."""
    if plan.publishes is None:
        return
    pinned = await caller.contents.pin(plan.publishes)
    if pinned != plan.place:
        raise Temporary(
            f"The IPFS node first named {plan.place} for the content, and then {pinned}; nothing was sent.",
            remedy="Check CLARA_IPFS_API, or remove it to store short content on chain.",
        )


async def _second_part(caller: Caller, action: Action, first: Plan, sent: Sequence[SentStep]) -> Plan:
    """The plan after its first part; a node that does not know that part yet must not have it sent again."""
    agent_id = registered_id(first, sent[-1].receipt)
    for _ in range(REHEARSALS):
        if agent_id is None or await _is_known(caller, first, agent_id):
            plan = await action.plan(caller, agent_id)
            if not plan.is_first_part:
                return plan
        await caller.pace.sleep(AGAIN_SECONDS)
    raise Temporary("The node does not know the first transaction's block yet.", remedy="Call this again in a moment.")


async def _is_known(caller: Caller, first: Plan, agent_id: int) -> bool:
    registry = caller.chain.agents.identity(first.transactions[-1].to)
    return await registry.owners_of(await caller.chain.blocks.head(), [agent_id]) == [first.sender]


def written(caller: Caller, plan: Plan, outcome: Outcome, sent: Sequence[SentStep] = ()) -> ActResult:
    """The document of a writing action."""
    challenge = plan.challenge or _created(caller, sent)
    left = [] if outcome == "sent" else [_unsigned(caller, plan, number) for number in range(len(plan.transactions))]
    return ActResult(
        action=plan.action,
        outcome=outcome,
        network=caller.settings.network_name,
        chainId=caller.chain_id,
        sender=plan.sender,
        challenge=challenge,
        explorerUrl=caller.explorer("address", challenge) if challenge else None,
        pageUrl=caller.page(challenge) if challenge else None,
        summary=plan.summary,
        transactions=left,
        sent=[_sent(caller, item) for item in sent],
        warnings=list(plan.warnings),
        next=_next(plan, outcome),
        details=dict(plan.details),
    )


def _next(plan: Plan, outcome: Outcome) -> str:
    if outcome == "unsigned":
        return f"Sign and send the transactions in this order with your own wallet. {plan.next}".strip()
    if outcome == "needs_confirmation":
        return "Nothing was sent. Show this plan to the wallet's owner, then call again with confirm: true."
    return "Nothing was sent: it was declined." if outcome == "declined" else plan.next


def _unsigned(caller: Caller, plan: Plan, number: int) -> UnsignedTransaction:
    planned = plan.transactions[number]
    return UnsignedTransaction(
        chainId=caller.chain_id,
        to=planned.to,
        data=planned.data,
        value="0",
        gas=planned.gas,
        description=planned.description,
    )


def _sent(caller: Caller, item: SentStep) -> SentTransaction:
    return SentTransaction(
        hash=item.tx_hash,
        blockNumber=item.receipt.block_number,
        gasUsed=item.receipt.gas_used,
        explorerUrl=caller.explorer("tx", item.tx_hash),
        description=item.description,
    )


def _created(caller: Caller, sent: Sequence[SentStep]) -> Address | None:
    """The new challenge, from the factory's own event."""
    for entry in (entry for item in sent for entry in item.receipt.logs):
        factory = caller.chain.challenges.factory(caller.factory)
        topic = factory.abi.event("ChallengeCreated").topic
        if entry["address"].lower() == factory.address and entry["topics"][:1] == [topic]:
            return factory.challenge_created(entry).address
    return None
