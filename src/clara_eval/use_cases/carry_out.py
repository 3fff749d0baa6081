"""Signing and sending a plan with the local wallet, one transaction after the other.

Comes in: a plan that somebody confirmed. Goes out: what was sent, with hashes and blocks. Each transaction is rehearsed
(`eth_call`) before it is signed; the limit on what the wallet may move, and its ether for gas, are checked before the
first one. A transaction whose fate is not known ends with its hash, never with a second one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from clara_eval.challenge.model import Address
from clara_eval.errors import ClaraError, Temporary
from clara_eval.publish.transaction import Unsigned
from clara_eval.use_cases.amounts import show_amount
from clara_eval.use_cases.look import newest_block
from clara_eval.use_cases.plan import Plan, Spending, Transaction
from clara_eval.use_cases.port import CannotAct, Desk, Refused, Wallet

WAIT_SECONDS = 180.0
POLL_SECONDS = 0.5
LOST_SECONDS = 10.0
"""How long a transaction is looked for when the answer to its sending got lost."""
REHEARSALS = 6
"""A node behind a balancer may not know the block of the transaction before yet: look again that often."""
UNKNOWN_GAS = 500_000
"""Assumed for a transaction whose gas cannot be estimated yet."""

Report = Callable[[int, int, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Sent:
    """One transaction that is in a block."""

    description: str
    tx_hash: str
    block_number: int
    gas_used: int
    receipt: Mapping[str, Any]


async def carry_out(desk: Desk, plan: Plan, report: Report) -> list[Sent]:
    """Send all of it, waiting for each; raises before anything is sent if the wallet must not do it."""
    wallet = desk.wallet
    if wallet is None:
        raise CannotAct(
            "No local wallet key is set.", remedy="Set CLARA_WALLET_KEY, or sign the transactions yourself."
        )
    if plan.sender != wallet.address:
        raise CannotAct(f"The plan is for {plan.sender}, not for the local wallet {wallet.address}.")
    check_limit(desk, plan.spends)
    fees = await _fees(desk)
    await _check_ether(desk, wallet.address, plan, fees)
    wallet.policy.vouched.permit(planned.to for planned in plan.transactions)
    if plan.spends is not None:
        wallet.policy.vouched.permit_spending(plan.spends.token.address, plan.spends.units)
    sent: list[Sent] = []
    for number, planned in enumerate(plan.transactions):
        await report(number, len(plan.transactions), planned.description)
        with telling(sent):
            sent.append(await _send(desk, wallet, planned, fees, is_first=number == 0))
    await report(len(plan.transactions), len(plan.transactions), "done")
    return sent


@contextmanager
def telling(sent: Sequence[Sent]) -> Iterator[None]:
    """An error in here also says what is already in a block."""
    try:
        yield
    except ClaraError as bad:
        done = (f"Already in block {item.block_number}: {item.description} ({item.tx_hash})." for item in sent)
        bad.remedy = " ".join([bad.remedy, *done]).strip()
        raise


def check_limit(desk: Desk, spends: Spending | None) -> None:
    """Refuse what is above the wallet's limit, and tokens whose worth is not known."""
    limit = desk.settings.wallet_limit_usd
    if spends is None or limit is None:
        return
    shown = show_amount(spends.units, spends.token)
    if not desk.is_dollar(spends.token.address):
        raise CannotAct(
            f"The local wallet may not move {shown}: what {spends.token.address} is worth is not known.",
            remedy="List the token in CLARA_WALLET_TOKENS to count it as a dollar, or sign the transactions yourself.",
        )
    if Decimal(spends.units).scaleb(-spends.token.decimals) > Decimal(str(limit)):
        raise CannotAct(
            f"{shown} would leave the local wallet, more than its limit of ${limit:g}.",
            remedy="Raise CLARA_WALLET_LIMIT_USD if that is meant, or sign the transactions yourself.",
        )


@dataclass(frozen=True, slots=True)
class _Fees:
    most: int
    tip: int


async def _fees(desk: Desk) -> _Fees:
    block = await newest_block(desk)
    try:
        tip = int(await desk.node.ask("eth_maxPriorityFeePerGas"), 16)
    except Temporary:
        tip = 1_000_000  # some nodes do not offer it; 0.001 gwei is Base's usual tip
    return _Fees(most=2 * int(block.get("baseFeePerGas", "0x0"), 16) + tip, tip=tip)


async def _check_ether(desk: Desk, sender: Address, plan: Plan, fees: _Fees) -> None:
    balance = int(await desk.node.ask("eth_getBalance", sender, "latest"), 16)
    needed = sum(_with_margin(planned.gas or UNKNOWN_GAS) for planned in plan.transactions) * fees.most
    if balance < needed:
        raise CannotAct(
            f"The wallet {sender} has {_ether(balance)} ETH, but gas may cost up to {_ether(needed)} ETH.",
            remedy=f"Send it some ETH on {desk.settings.network_name}.",
        )


def _ether(wei: int) -> str:
    return f"{Decimal(wei).scaleb(-18):.9f}".rstrip("0").rstrip(".")


def _with_margin(gas: int) -> int:
    return gas + gas // 4


async def _send(desk: Desk, wallet: Wallet, planned: Transaction, fees: _Fees, *, is_first: bool) -> Sent:
    request = {"from": wallet.address, "to": planned.to, "data": planned.data, "value": hex(planned.value)}
    await _rehearse(desk, request, planned, tries=1 if is_first else REHEARSALS)
    gas = int(await desk.node.ask("eth_estimateGas", request), 16)
    nonce = int(await desk.node.ask("eth_getTransactionCount", wallet.address, "pending"), 16)
    signed = wallet.sign(
        Unsigned(
            chain_id=desk.settings.network.chain_id,
            nonce=nonce,
            to=planned.to,
            data=bytes.fromhex(planned.data[2:]),
            value=planned.value,
            gas=_with_margin(gas),
            max_fee_per_gas=fees.most,
            max_priority_fee_per_gas=fees.tip,
        )
    )
    try:
        await desk.node.ask("eth_sendRawTransaction", signed.raw)
    except ClaraError as bad:
        # The node may have taken it before its answer was lost, and call the nonce used when asked again: only the
        # chain knows.
        if await _receipt(desk, signed.tx_hash, seconds=LOST_SECONDS) is None:
            if isinstance(bad, CannotAct):
                raise
            raise _unknown(desk, planned, signed.tx_hash) from bad
    receipt = await _receipt(desk, signed.tx_hash, seconds=WAIT_SECONDS)
    if receipt is None:
        raise _unknown(desk, planned, signed.tx_hash)
    if int(receipt["status"], 16) != 1:
        raise CannotAct(
            f"{planned.description}: the transaction {signed.tx_hash} was reverted.",
            remedy="Look at the challenge again; somebody else's transaction may have come first.",
        )
    block, used = int(receipt["blockNumber"], 16), int(receipt["gasUsed"], 16)
    return Sent(planned.description, signed.tx_hash, block, used, receipt)


async def _rehearse(desk: Desk, request: Mapping[str, str], planned: Transaction, *, tries: int) -> None:
    for left in reversed(range(tries)):
        try:
            await desk.node.ask("eth_call", request, "latest")
        except Refused as refused:
            if left == 0:
                raise CannotAct(f"{planned.description} would be refused: {refused}") from refused
            await asyncio.sleep(POLL_SECONDS)
        else:
            return


async def _receipt(desk: Desk, tx_hash: str, *, seconds: float) -> Mapping[str, Any] | None:
    """None if it is in no block by then, or the node does not say: it was sent, so no error may hide its hash."""
    end = asyncio.get_running_loop().time() + seconds
    pause = 0.02
    while True:
        with suppress(ClaraError):
            found: Mapping[str, Any] | None = await desk.node.ask("eth_getTransactionReceipt", tx_hash)
            if found is not None:
                return found
        if asyncio.get_running_loop().time() >= end:
            return None
        await asyncio.sleep(pause)
        pause = min(POLL_SECONDS, pause * 2)


def _unknown(desk: Desk, planned: Transaction, tx_hash: str) -> Temporary:
    place = desk.explorer("tx", tx_hash) or tx_hash
    return Temporary(
        f"{planned.description}: sent as {tx_hash}, but it is not in a block yet.",
        remedy=f"Look at {place} before you try again: a second one could pay twice.",
    )
