"""Plan an action as unsigned transactions, and send them with the local wallet once confirmed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Literal

from eth_utils.address import to_checksum_address
from pydantic import TypeAdapter

from clara_eval.actions.amounts import show_amount
from clara_eval.app import Caller
from clara_eval.chain.account import ContractRefused, estimate_gas, with_margin
from clara_eval.chain.blocks import TransactionReceipt
from clara_eval.chain.contracts.clients import IdentityRegistryContract
from clara_eval.chain.model import PrizeToken
from clara_eval.chain.sender import Receipt, SendOutcome, TransactionSender
from clara_eval.chain.transaction import ContractCall, StoredTransaction
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, CannotAct, CannotPublish, ClaraError, Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.strict_json import is_encodable
from clara_eval.core.untrusted import fence
from clara_eval.documents.actions import ActResult, SentTransaction, UnsignedTransaction
from clara_eval.store.sql_store import SqlStore

REHEARSALS = 6  # attempts: a node behind a load balancer may not have the previous transaction's block yet
RETRY_SECONDS = 0.5
ASSUMED_GAS = 500_000  # for a transaction whose gas cannot be estimated yet
FORGOTTEN_SECONDS = 600  # age after which a plan with nothing signed is planned anew

Report = Callable[[int, int, str], Awaitable[None]]
Sent = tuple[str, TransactionReceipt]  # the description of a transaction, and its receipt in a block


@dataclass(frozen=True, slots=True)
class Transaction:
    """One unsigned transaction; it never sends ether."""

    to: Address
    data: str
    description: str
    gas: int | None = None  # the node's estimate; None when it depends on a transaction before it


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens that leave the sender's wallet."""

    token: PrizeToken
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    action: str
    sender: Address | None
    transactions: tuple[Transaction, ...]
    question: str
    summary: str
    challenge: Address | None = None
    spends: Spending | None = None
    warnings: tuple[str, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    publishes: bytes | None = None  # content to pin before a transaction names its URI, but only once confirmed
    place: str = ""  # the URI of that content
    is_first_part: bool = False  # the rest is planned afterwards, because it depends on the outcome


MakePlan = Callable[[Caller, int | None], Awaitable[Plan]]  # the number is the agent id that its first part registered


@dataclass(frozen=True, slots=True)
class Action:
    """One request of a caller; equal requests have equal keys, so that a repeated one resumes."""

    key: str
    plan: MakePlan

    @classmethod
    def of(cls, verb: str, request: object, plan: MakePlan) -> Action:
        """Build an action whose key hashes the repr of `request`, a frozen dataclass or text."""
        return cls(f"{verb}/{keccak_hex(repr(request).encode('utf-8', errors='surrogatepass'))[2:34]}", plan)


def sender_of(caller: Caller, sender: str | None) -> Address | None:
    """Return the local wallet's address, else the one that the caller names."""
    named = to_address(sender, what="sender") if sender else None
    if caller.account is None:
        return named
    if named is not None and named != caller.account.address:
        raise BadInput(
            f"The sender {named} is not the local wallet {caller.account.address}.",
            path="sender",
            remedy="Omit the sender, or remove CLARA_WALLET_KEY to get unsigned transactions.",
        )
    return caller.account.address


def require_text(text: str, path: str) -> None:
    if not is_encodable(text):
        raise BadInput(f"The {path} is not text: it holds bytes that are not UTF-8.", path=path, remedy="Write UTF-8.")


def transaction(to: Address, data: bytes, description: str) -> Transaction:
    return Transaction(to, "0x" + data.hex(), description)


async def with_gas(
    caller: Caller, sender: Address | None, first: Transaction, *rest: Transaction
) -> tuple[Transaction, ...]:
    """Add the gas estimate to the first; a call that would revert raises here, before signing."""
    if sender is None:
        return first, *rest
    call = ContractCall("", "", first.to, bytes.fromhex(first.data[2:]), first.description)
    try:
        return replace(first, gas=await estimate_gas(caller.chain, call, sender)), *rest
    except ContractRefused as refused:
        raise would_be_refused(first, refused) from refused


def would_be_refused(planned: Transaction, refused: ContractRefused) -> CannotAct:
    """Build the error for a contract's refusal; its own text is untrusted and fenced."""
    refusal, reason = refused.refusal, str(refused.refusal)
    if refusal is None:
        reason = "The contract refused, without a reason that we know."
    elif refusal.name == "Error":
        reason = f"A contract refused in its own words:\n{fence(str(refusal.values[0]), 'contract')['text']}"
    return CannotAct(f"{planned.description} would be refused: {reason}")


@dataclass(frozen=True, slots=True)
class _StartedPlan:
    """A plan as recorded before its first step."""

    number: str
    at: int
    plan: Plan

    def intention(self, step: int) -> str:
        return f"{self.plan.action}:{self.number}:{step}"


_STARTED_PLAN = TypeAdapter(_StartedPlan)


async def unfinished_plan(caller: Caller, action: Action) -> Plan | None:
    """Return the plan of this action if it was started and has not ended."""
    if caller.account is None or (store := await caller.store.existing()) is None:
        return None
    run = f"{caller.chain_id}:{caller.account.address}"
    if (text := await store.entry(run, action.key)) is None:
        return None
    started = _STARTED_PLAN.validate_json(text)
    if await store.transactions(run, started.intention(0)) or started.at > time.time() - FORGOTTEN_SECONDS:
        return started.plan
    await store.forget_entry(run, action.key)
    return None


async def send_plan(caller: Caller, action: Action, plan: Plan, report: Report | None) -> list[Sent]:
    """Pin the content, check limit and balance, then send each step and wait for it."""
    await _pin_content(caller, plan)
    account = caller.account
    if account is None:
        remedy = "Set CLARA_WALLET_KEY, or sign the transactions yourself."
        raise CannotAct("No local wallet key is set.", remedy=remedy)
    if plan.sender != account.address:
        raise CannotAct(f"The plan is for {plan.sender}, not for the local wallet {account.address}.")
    check_limit(caller, plan.spends)
    balance = await caller.chain.blocks.balance(account.address)
    gas = sum(with_margin(planned.gas or ASSUMED_GAS) for planned in plan.transactions)
    needed = gas * (await account.fees()).max_fee_per_gas
    if balance < needed:
        has, wanted = (f"{Decimal(wei).scaleb(-18):.9f}".rstrip("0").rstrip(".") for wei in (balance, needed))
        raise CannotAct(
            f"The wallet {account.address} has {has} ETH, but gas may cost up to {wanted} ETH.",
            remedy=f"Send it some ETH on {caller.settings.network_name}.",
        )
    if plan.spends is not None:
        account.permit_spending(plan.spends.token.address, plan.spends.units)
    store, run = await caller.store.opened(), f"{caller.chain_id}:{account.address}"
    mine = _StartedPlan(secrets.token_hex(8), int(time.time()), replace(plan, publishes=None))
    kept = await store.add_entry(run, action.key, _STARTED_PLAN.dump_json(mine).decode())
    started = _STARTED_PLAN.validate_json(kept)
    steps = _StepSender(caller, TransactionSender(account, store, caller.pace), store, run, started)
    sent: list[Sent] = []
    try:
        for number, planned in enumerate(started.plan.transactions):
            if report is not None:
                await report(number, len(started.plan.transactions), planned.description)
            with append_sent_to_errors(sent):
                sent.append(await steps.send(number))
    except CannotAct:
        if await steps.is_over():
            await store.forget_entry(run, action.key)
        raise
    await store.forget_entry(run, action.key)
    if report is not None:
        await report(len(sent), len(sent), "done")
    return sent


@contextmanager
def append_sent_to_errors(sent: Sequence[Sent]) -> Iterator[None]:
    """Add the transactions that are already in a block to an error's remedy."""
    try:
        yield
    except ClaraError as bad:
        done = (f"Already in block {found.block_number}: {step} ({found.tx_hash})." for step, found in sent)
        bad.remedy = " ".join([bad.remedy, *done]).strip()
        raise


def check_limit(caller: Caller, spends: Spending | None) -> None:
    """Refuse spending above the wallet's limit, or in a token of unknown worth."""
    limit = caller.settings.wallet_limit_usd
    if spends is None or limit is None:
        return
    shown = show_amount(spends.units, spends.token)
    if not caller.is_dollar(spends.token.address):
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
class _StepSender:
    caller: Caller
    sender: TransactionSender
    store: SqlStore
    run: str
    started: _StartedPlan

    async def send(self, number: int) -> Sent:
        """Send one step; retry for a while if the node lags or does not answer."""
        planned, pace = self.started.plan.transactions[number], self.caller.pace
        data = bytes.fromhex(planned.data.removeprefix("0x"))
        call = ContractCall(self.run, self.started.intention(number), planned.to, data, planned.description)

        async def is_done(_attempts: Sequence[StoredTransaction]) -> Receipt | None:
            return None  # no other transaction can have done this step

        end, tries = pace.now() + pace.give_up_after_seconds, REHEARSALS if number else 1
        while True:
            try:
                return await self._confirm(planned, await self.sender.send(call, is_done))
            except CannotPublish as refused:
                tries -= 1
                if tries <= 0 and isinstance(refused, ContractRefused):
                    raise would_be_refused(planned, refused) from refused
                if tries <= 0:
                    raise CannotAct(refused.message, remedy=refused.remedy) from refused
                await pace.sleep(RETRY_SECONDS)
            except Temporary as bad:
                rows = await self._attempts(number)
                if not rows:
                    raise
                if pace.now() >= end:
                    raise self._not_in_block(planned, rows[-1].tx_hash) from bad
                await pace.sleep(pace.poll_seconds)

    async def is_over(self) -> bool:
        """Return whether no transaction of the plan is still pending."""
        rows = [row for number in range(len(self.started.plan.transactions)) for row in await self._attempts(number)]
        account = self.sender.account
        return all([await account.is_nonce_gone(row.nonce) for row in rows]) and not await account.is_pending(rows)

    async def _attempts(self, number: int) -> list[StoredTransaction]:
        return await self.store.transactions(self.run, self.started.intention(number))

    async def _confirm(self, planned: Transaction, receipt: Receipt) -> Sent:
        if receipt.outcome is SendOutcome.REVERTED:
            raise CannotAct(
                f"{planned.description}: the transaction {receipt.tx_hash} was reverted.",
                remedy="Look at the challenge again; somebody else's transaction may have come first.",
            )
        found = await self.caller.chain.blocks.receipt(receipt.tx_hash or "")
        if receipt.outcome is not SendOutcome.CONFIRMED or found is None:
            raise self._not_in_block(planned, receipt.tx_hash or "")
        return planned.description, found

    def _not_in_block(self, planned: Transaction, tx_hash: str) -> Temporary:
        place = self.caller.explorer("tx", tx_hash) or tx_hash
        return Temporary(
            f"{planned.description}: sent as {tx_hash}, but it is not in a block yet.",
            remedy=f"Repeat the request and it continues with this transaction; look at {place} before you try again "
            "in any other way: a second one could pay twice.",
        )


async def prepare(caller: Caller, action: Action, *, is_shown: bool = False) -> Plan:
    """Plan an action, or resume one; if only shown, exceeding the wallet's limit is a warning."""
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
    caller: Caller, action: Action, *, confirmed: Literal["yes", "no", "unasked"], report: Report | None = None
) -> ActResult:
    """Plan an action, and send it if a wallet is set and the caller confirmed."""
    if caller.account is None:
        plan = await prepare(caller, action)
        await _pin_content(caller, plan)
        return _build_result(caller, plan, "unsigned")
    if confirmed != "yes":
        plan = await prepare(caller, action, is_shown=True)
        return _build_result(caller, plan, "declined" if confirmed == "no" else "needs_confirmation")
    async with caller.sending:
        plan = await prepare(caller, action)
        sent = await send_plan(caller, action, plan, report)
        if plan.is_first_part:
            with append_sent_to_errors(sent):
                plan = await _plan_second_part(caller, action, plan, sent)
                sent += await send_plan(caller, action, plan, report)
    return _build_result(caller, plan, "sent", sent)


async def _pin_content(caller: Caller, plan: Plan) -> None:
    """Pin the plan's content, once it is confirmed or handed out for another wallet to sign."""
    if plan.publishes is None:
        return
    pinned = await caller.contents.pin(plan.publishes)
    if pinned != plan.place:
        raise Temporary(
            f"The IPFS node first named {plan.place} for the content, and then {pinned}; nothing was sent.",
            remedy="Check CLARA_IPFS_API, or remove it to store short content on chain.",
        )


async def _plan_second_part(caller: Caller, action: Action, first: Plan, sent: Sequence[Sent]) -> Plan:
    """Plan the second part once the node knows the first, which must not be sent again."""
    address, owner = first.transactions[-1].to, first.sender
    emitted = IdentityRegistryContract.agents_in(sent[-1][1].logs, address, owner) if owner else []
    agent_id = emitted[-1] if emitted else None  # None: the registry emits no events
    registry = caller.chain.agents.identity(address)
    for _ in range(REHEARSALS):
        if agent_id is None or await registry.owners_of(await caller.chain.blocks.head(), [agent_id]) == [owner]:
            plan = await action.plan(caller, agent_id)
            if not plan.is_first_part:
                return plan
        await caller.pace.sleep(RETRY_SECONDS)
    raise Temporary("The node does not know the first transaction's block yet.", remedy="Call this again in a moment.")


def _build_result(
    caller: Caller,
    plan: Plan,
    outcome: Literal["unsigned", "needs_confirmation", "declined", "sent"],
    sent: Sequence[Sent] = (),
) -> ActResult:
    challenge, factory = plan.challenge, caller.chain.challenges.factory(caller.factory)
    topic = factory.abi.event("ChallengeCreated").topic
    for entry in (entry for _, found in sent for entry in found.logs):
        if entry["address"].lower() == factory.address and entry["topics"][:1] == [topic]:
            challenge = challenge or factory.challenge_created(entry).address
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
        transactions=[
            UnsignedTransaction(
                **asdict(one) | {"chainId": caller.chain_id, "to": to_checksum_address(one.to), "value": "0"}
            )
            for one in (plan.transactions if outcome != "sent" else ())
        ],
        sent=[
            SentTransaction(
                hash=found.tx_hash,
                blockNumber=found.block_number,
                gasUsed=found.gas_used,
                explorerUrl=caller.explorer("tx", found.tx_hash),
                description=step,
            )
            for step, found in sent
        ],
        warnings=list(plan.warnings),
        details=dict(plan.details),
    )
