"""Perform an action: return unsigned transactions, or send them with the local wallet after a yes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from clara_eval.actions.plan import Action, Plan, registered_id
from clara_eval.actions.send_plan import (
    AGAIN_SECONDS,
    REHEARSALS,
    Report,
    SentStep,
    check_limit,
    naming_sent,
    send_plan,
    unfinished_plan,
)
from clara_eval.app import Caller
from clara_eval.core.address import Address
from clara_eval.core.errors import CannotAct, Temporary
from clara_eval.documents.actions import ActResult, SentTransaction, UnsignedTransaction


async def report_nothing(_done: int, _total: int, _words: str) -> None: ...


async def prepare(caller: Caller, action: Action, *, is_shown: bool = False) -> Plan:
    """Plan an action, or go on with one that was begun; if only shown, a refusal of the wallet is a warning."""
    plan = await unfinished_plan(caller, action) or await action.plan(caller, None)
    if caller.account is None:
        return plan
    try:
        check_limit(caller, plan.spends)
    except CannotAct as refused:
        if not is_shown:
            raise
        return replace(plan, warnings=(str(refused), *plan.warnings))
    return plan


async def perform(
    caller: Caller, action: Action, *, confirmed: Literal["yes", "no", "unasked"], report: Report = report_nothing
) -> ActResult:
    """Plan an action, and send it if there is a wallet and a yes."""
    if caller.account is None:
        plan = await prepare(caller, action)
        await _publish(caller, plan)
        return _document(caller, plan, "unsigned")
    if confirmed != "yes":
        plan = await prepare(caller, action, is_shown=True)
        return _document(caller, plan, "declined" if confirmed == "no" else "needs_confirmation")
    async with caller.sending:
        plan = await prepare(caller, action)
        await _publish(caller, plan)
        sent = await send_plan(caller, action, plan, report)
        if plan.is_first_part:
            with naming_sent(sent):
                plan = await _second_part(caller, action, plan, sent)
                await _publish(caller, plan)
                sent = sent + await send_plan(caller, action, plan, report)
    return _document(caller, plan, "sent", sent)


async def _publish(caller: Caller, plan: Plan) -> None:
    """Pin content once it is sure to be submitted: with a yes, or with transactions for another wallet to sign."""
    if plan.publishes is None:
        return
    pinned = await caller.contents.pin(plan.publishes)
    if pinned != plan.place:
        raise Temporary(
            f"The IPFS node first named {plan.place} for the content, and then {pinned}; nothing was sent.",
            remedy="Check CLARA_IPFS_API, or remove it to store short content on chain.",
        )


async def _second_part(caller: Caller, action: Action, first: Plan, sent: Sequence[SentStep]) -> Plan:
    """Plan what follows the first part, once the node knows that part: it must not be sent again."""
    agent_id = registered_id(first, sent[-1].receipt)
    registry = caller.chain.agents.identity(first.transactions[-1].to)
    for _ in range(REHEARSALS):
        if agent_id is None or await registry.owners_of(await caller.chain.blocks.head(), [agent_id]) == [first.sender]:
            plan = await action.plan(caller, agent_id)
            if not plan.is_first_part:
                return plan
        await caller.pace.sleep(AGAIN_SECONDS)
    raise Temporary("The node does not know the first transaction's block yet.", remedy="Call this again in a moment.")


def _document(
    caller: Caller,
    plan: Plan,
    outcome: Literal["unsigned", "needs_confirmation", "declined", "sent"],
    sent: Sequence[SentStep] = (),
) -> ActResult:
    challenge = plan.challenge or _created(caller, sent)
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
        transactions=[] if outcome == "sent" else _unsigned(caller, plan),
        sent=[
            SentTransaction(
                hash=item.tx_hash,
                blockNumber=item.receipt.block_number,
                gasUsed=item.receipt.gas_used,
                explorerUrl=caller.explorer("tx", item.tx_hash),
                description=item.description,
            )
            for item in sent
        ],
        warnings=list(plan.warnings),
        details=dict(plan.details),
    )


def _unsigned(caller: Caller, plan: Plan) -> list[UnsignedTransaction]:
    return [
        UnsignedTransaction(
            chainId=caller.chain_id, to=one.to, data=one.data, value="0", gas=one.gas, description=one.description
        )
        for one in plan.transactions
    ]


def _created(caller: Caller, sent: Sequence[SentStep]) -> Address | None:
    """Read the new challenge from the factory's own event."""
    for entry in (entry for item in sent for entry in item.receipt.logs):
        factory = caller.chain.challenges.factory(caller.factory)
        topic = factory.abi.event("ChallengeCreated").topic
        if entry["address"].lower() == factory.address and entry["topics"][:1] == [topic]:
            return factory.challenge_created(entry).address
    return None
