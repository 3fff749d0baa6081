"""From a plan to a document: unsigned for the caller's own wallet, or carried out with the local one.

Comes in: how to make the plan, and whether somebody confirmed it. Goes out: one document of what was done or is left to
do. Without a wallet everything is left to the caller; with one, nothing is sent that was not confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from clara_eval.challenge.model import Address
from clara_eval.errors import Temporary
from clara_eval.hashing import keccak_hex
from clara_eval.use_cases.carry_out import POLL_SECONDS, REHEARSALS, Report, Sent, carry_out, check_limit, telling
from clara_eval.use_cases.documents import SentTransaction, UnsignedTransaction
from clara_eval.use_cases.plan import Plan
from clara_eval.use_cases.port import Desk

MakePlan = Callable[[], Awaitable[Plan]]
Outcome = Literal["unsigned", "needs_confirmation", "declined", "sent"]
CREATED = keccak_hex(b"ChallengeCreated(address,address,address,uint256,uint256,uint256,uint256,string,string[])")


async def silence(_done: int, _total: int, _words: str) -> None:
    """Report to nobody."""


async def prepare(desk: Desk, make_plan: MakePlan) -> Plan:
    """The plan, refused already here if the local wallet must not carry it out."""
    plan = await make_plan()
    if desk.wallet is not None:
        check_limit(desk, plan.spends)
    return plan


async def act(
    desk: Desk, make_plan: MakePlan, *, confirmed: Literal["yes", "no", "unasked"], report: Report = silence
) -> dict[str, Any]:
    """Plan, and with a wallet and a yes, do it."""
    if desk.wallet is None:
        plan = await prepare(desk, make_plan)
        await _publish(desk, plan)
        return written(desk, plan, "unsigned")
    if confirmed != "yes":
        plan = await prepare(desk, make_plan)
        return written(desk, plan, "declined" if confirmed == "no" else "needs_confirmation")
    async with desk.sending:
        plan = await prepare(desk, make_plan)
        await _publish(desk, plan)
        sent = await carry_out(desk, plan, report)
        if plan.is_first_part:
            with telling(sent):
                plan = await _second_part(desk, make_plan)
                await _publish(desk, plan)
                sent = sent + await carry_out(desk, plan, report)
    return written(desk, plan, "sent", sent)


async def _publish(desk: Desk, plan: Plan) -> None:
    """Content goes out when it is sure to be submitted: with a yes, or with transactions for another wallet to sign."""
    if plan.publishes is None:
        return
    pinned = await desk.contents.pin(plan.publishes)
    if pinned != plan.place:
        raise Temporary(
            f"The IPFS node first named {plan.place} for the content, and then {pinned}; nothing was sent.",
            remedy="Check CLARA_IPFS_API, or remove it to store short content on chain.",
        )


async def _second_part(desk: Desk, make_plan: MakePlan) -> Plan:
    """The plan after its first part; a node that does not know that part yet must not have it sent again."""
    for _ in range(REHEARSALS):
        plan = await prepare(desk, make_plan)
        if not plan.is_first_part:
            return plan
        await asyncio.sleep(POLL_SECONDS)
    raise Temporary("The node does not know the first transaction's block yet.", remedy="Call this again in a moment.")


def written(desk: Desk, plan: Plan, outcome: Outcome, sent: Sequence[Sent] = ()) -> dict[str, Any]:
    """The document of a writing action."""
    challenge = plan.challenge or _created(desk, sent)
    left = [] if outcome == "sent" else [_unsigned(desk, plan, number) for number in range(len(plan.transactions))]
    return {
        "action": plan.action,
        "outcome": outcome,
        "network": desk.settings.network_name,
        "chainId": desk.settings.network.chain_id,
        "sender": plan.sender,
        "challenge": challenge,
        "explorerUrl": desk.explorer("address", challenge) if challenge else None,
        "summary": plan.summary,
        "transactions": left,
        "sent": [_sent(desk, item) for item in sent],
        "warnings": list(plan.warnings),
        "next": _next(plan, outcome),
        "details": dict(plan.details),
    }


def _next(plan: Plan, outcome: Outcome) -> str:
    if outcome == "unsigned":
        return f"Sign and send the transactions in this order with your own wallet. {plan.next}".strip()
    if outcome == "needs_confirmation":
        return "Nothing was sent. Show this plan to the wallet's owner, then call again with confirm: true."
    return "Nothing was sent: it was declined." if outcome == "declined" else plan.next


def _unsigned(desk: Desk, plan: Plan, number: int) -> UnsignedTransaction:
    planned = plan.transactions[number]
    return UnsignedTransaction(
        chainId=desk.settings.network.chain_id,
        to=planned.to,
        data=planned.data,
        value=str(planned.value),
        gas=planned.gas,
        description=planned.description,
    )


def _sent(desk: Desk, item: Sent) -> SentTransaction:
    return SentTransaction(
        hash=item.tx_hash,
        blockNumber=item.block_number,
        gasUsed=item.gas_used,
        explorerUrl=desk.explorer("tx", item.tx_hash),
        description=item.description,
    )


def _created(desk: Desk, sent: Sequence[Sent]) -> Address | None:
    """The new challenge, from the factory's own event."""
    for item in sent:
        for entry in item.receipt.get("logs", ()):
            if entry["address"].lower() == desk.factory and entry["topics"][0] == CREATED:
                return Address("0x" + entry["topics"][1][-40:].lower())
    return None
