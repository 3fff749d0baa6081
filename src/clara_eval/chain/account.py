"""One wallet on one network: rehearse, sign, broadcast, and look what became of it.

Invariant: nothing is signed for a challenge before the factory has said that it knows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clara_eval.chain.blocks import TransactionReceipt, is_refused
from clara_eval.chain.contracts.abi import ContractRefusal, decode_refusal
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Block
from clara_eval.chain.rpc import Meaning, NodeDown, NodeRefusal, RpcCall, quantity, required
from clara_eval.chain.transaction import (
    BroadcastResult,
    ContractCall,
    Fees,
    Mined,
    StoredTransaction,
    TransactionToSign,
    first_fees,
    raised_fees,
    read_signed,
)
from clara_eval.chain.wallet import Wallet
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.errors import CannotPublish, ClaraError, NotYet, Stalled, Temporary

GAS_MARGIN = 50_000
"""On top of a fifth more than the estimate: the state may change before the transaction is mined."""

_SENT = {
    Meaning.ALREADY_KNOWN: BroadcastResult.ACCEPTED,
    Meaning.NONCE_TOO_LOW: BroadcastResult.NONCE_USED,
    Meaning.NONCE_TOO_HIGH: BroadcastResult.NOT_TAKEN,
    Meaning.POOL_FULL: BroadcastResult.NOT_TAKEN,
    Meaning.REPLACEMENT_UNDERPRICED: BroadcastResult.UNDERPRICED,
    Meaning.FEE_TOO_LOW: BroadcastResult.FEE_TOO_LOW,
}
POST_GAS = 600_000
"""Of a post with several winners, when posts are counted in advance."""
_MOST_COUNT = 2**48
"""No account has sent so many transactions: a higher count is an error of the node."""
_OTHER_NODE = "Set another node in CLARA_RPC_URL, or a second one."
_LATER = frozenset({"DeadlineNotReached", "FinalizationDelayNotElapsed", "ScoresNotPosted"})


class ContractRefused(CannotPublish):
    """A contract would refuse the call; `refusal` is its custom error, None if it is not one that we know."""

    def __init__(self, message: str, refusal: ContractRefusal | None, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.refusal = refusal


class EthereumAccount:
    def __init__(
        self,
        chain: EthereumChain,
        wallet: Wallet | None,
        *,
        factory: Address | None = None,
        dry_address: Address | None = None,
        confirmations: int | None = None,
    ) -> None:
        """`confirmations` is how deep a success has to be; without it, as deep as the network demands."""
        self._confirmations = chain.blocks.network.confirmations if confirmations is None else confirmations
        self._chain, self._blocks = chain, chain.blocks
        self._wallet = wallet
        self._factory = factory
        self._address = wallet.address if wallet else dry_address

    @property
    def address(self) -> Address:
        return self._address or ZERO_ADDRESS

    @property
    def can_sign(self) -> bool:
        return self._wallet is not None

    def trust(self, challenge: Address) -> None:
        """Sign for this challenge although the factory may not know it: a person named it."""
        if self._wallet is not None:
            self._wallet.policy.vouched.targets.add(challenge)

    async def rehearse(self, call: ContractCall) -> None:
        """Try the call with the real sender, without sending; raise CannotPublish or NotYet with the contract's reason.

        A refusal counts only if no newer block is known by then: otherwise that one is asked.
        """

        async def look() -> tuple[bool, NodeRefusal | None]:
            head = await self._blocks.head()
            try:
                request = await self._request(call, head)
                await self._blocks.ask_present("eth_call", request, self._blocks.parameter(head))
            except NodeRefusal as refusal:
                return (await self._blocks.head()).number <= head.number, refusal
            return True, None

        _, refusal = await self._blocks.rpc.retries.until(lambda looked: looked[0], look)
        if refusal is not None:
            raise _in_our_terms(call, refusal)

    async def next_nonce(self) -> int:
        """Count mined transactions twice; if the two never agree, take the lower, which can only be used."""

        async def count() -> tuple[int, int]:
            block = hex((await self._blocks.head()).number)
            return await self._count(block), await self._count(block)

        counts = await self._blocks.rpc.retries.until(lambda told: told[0] == told[1], count)
        return min(counts)

    async def pending_nonce(self) -> int:
        try:
            return await self._count("pending")
        except NodeRefusal:
            return 0  # a node that does not tell what waits

    async def is_nonce_gone(self, nonce: int) -> bool:
        """Whether a transaction with this nonce is mined so deep that it stays."""
        head = await self._blocks.head()
        deep = max(0, head.number - self._blocks.network.confirmations + 1)
        return await self._count(hex(deep)) > nonce and await self._count(hex(head.number)) > nonce

    async def is_pending(self, attempts: Sequence[StoredTransaction]) -> bool:
        asked = [RpcCall("eth_getTransactionByHash", (tx.tx_hash,)) for tx in attempts]
        found = await self._blocks.rpc.ask_many(asked)
        return any(isinstance(one, dict) and one.get("blockNumber") is None for one in found)

    async def _count(self, block: str) -> int:
        """Count our transactions at this block, as most nodes tell it; the lower if they are divided."""
        asked = ("eth_getTransactionCount", self.address, block)
        several = len(self._blocks.rpc.nodes) > 1
        told = [answer for _, answer in await self._blocks.rpc.ask_every_node(*asked)] if several else []
        counts = sorted(count for answer in told if (count := _count_or_none(answer)) is not None)
        if counts:
            return counts[(len(counts) - 1) // 2]
        answer = await self._blocks.ask_present(*asked)
        count = _count_or_none(answer)
        if count is None:
            raise Temporary(f"A node counts {str(answer)[:40]} transactions of {self.address}.", remedy=_OTHER_NODE)
        return count

    async def prepare(
        self,
        call: ContractCall,
        *,
        attempt: int,
        nonce: int,
        recorded: Sequence[StoredTransaction],
        over: StoredTransaction | None = None,
    ) -> StoredTransaction:
        """Sign the call; `recorded` counts towards the day's cap, and the fee is above that of `over`."""
        wallet = self._signer()
        await self._make_known(call.to, wallet)
        gas = await estimate_gas(self._chain, call, self.address)
        fees = await self.fees()
        if over is not None:
            before = Fees(over.max_fee_per_gas, over.max_priority_fee_per_gas)
            fees = raised_fees(before, *await self._market(), wallet.policy.max_fee_per_gas) or fees
        tx = TransactionToSign(
            chain_id=self._chain.chain_id,
            nonce=nonce,
            to=call.to,
            data=call.data,
            value=0,
            gas=with_margin(gas),
            **fees._asdict(),
        )
        return await _signed(wallet, tx, recorded, call, attempt)

    async def bump(self, tx: StoredTransaction, *, recorded: Sequence[StoredTransaction]) -> StoredTransaction | None:
        """Sign the same nonce and calldata with a higher fee; None if the bounds forbid it."""
        wallet, signed = self._signer(), read_signed(tx.raw)
        before = Fees(signed.max_fee_per_gas, signed.max_priority_fee_per_gas)
        raised = raised_fees(before, *await self._market(), wallet.policy.max_fee_per_gas)
        if raised is None:
            return None
        await self._make_known(signed.to, wallet)
        dearer = replace(signed, value=0, **raised._asdict())
        return await _signed(wallet, dearer, recorded, tx, tx.attempt + 1)

    async def broadcast(self, tx: StoredTransaction) -> BroadcastResult:
        try:
            answer = await self._blocks.rpc.ask("eth_sendRawTransaction", tx.raw)
        except NodeRefusal as refusal:
            known = _SENT.get(refusal.meaning)
            if known is not None:
                return known
            raise _in_our_terms(None, refusal) from None
        if str(answer).lower() != tx.tx_hash:
            raise Temporary(f"A node took {tx.tx_hash} but calls it {str(answer)[:66]}.")
        return BroadcastResult.ACCEPTED

    async def outcome(self, attempts: Sequence[StoredTransaction]) -> Mined | None:
        rpc = self._blocks.rpc
        answers = await rpc.ask_many([RpcCall("eth_getTransactionReceipt", (tx.tx_hash,)) for tx in attempts])
        for answer in answers:
            if isinstance(answer, NodeRefusal):
                if answer.meaning is not Meaning.MISSING:
                    raise answer
                continue
            mined = await self._mined(answer)
            if mined is not None:
                return mined
        return None

    async def _mined(self, receipt: Any) -> Mined | None:
        """A receipt counts only while its block is in the chain."""
        found, head = TransactionReceipt.read(receipt), await self._blocks.head()
        block = await self._blocks.rpc.ask_maybe("eth_getBlockByNumber", hex(found.block_number), False)
        if block is None or block["hash"] != found.block_hash:
            return None
        depth = head.number - found.block_number + 1
        return Mined(found.tx_hash, found.block_number, found.has_succeeded, is_final=depth >= self._confirmations)

    async def fees(self) -> Fees:
        return first_fees(*await self._market(), self._signer().policy.max_fee_per_gas)

    async def _market(self) -> tuple[int, int]:
        """Return the newest base fee and the tip that the node suggests; 0 if it suggests none."""
        block, tip = await self._blocks.rpc.ask_many(
            [RpcCall("eth_getBlockByNumber", ("latest", False)), RpcCall("eth_maxPriorityFeePerGas")]
        )
        base_fee = quantity(required(block).get("baseFeePerGas", "0x0"))
        return base_fee, 0 if isinstance(tip, NodeRefusal) else quantity(tip)

    async def _make_known(self, target: Address, wallet: Wallet) -> None:
        """Permit a challenge or the registry to the policy, once the factory has vouched for it."""
        vouched, factory = wallet.policy.vouched, self._factory
        if factory is None or target in {*vouched.targets, *vouched.spending, vouched.own}:
            return
        registry = await self._chain.challenges.factory(factory).identity_registry(await self._blocks.head())
        if target == registry or await self._chain.challenges.is_challenge_of(factory, target):
            vouched.targets.add(target)

    def permit_spending(self, token: Address, units: int) -> None:
        self._signer().policy.vouched.spending[token] = units

    def _signer(self) -> Wallet:
        if self._wallet is None:
            raise CannotPublish("There is no key to sign with.", remedy="Set CLARA_EVALUATOR_KEY.")
        return self._wallet

    async def _request(self, call: ContractCall, head: Block) -> dict[str, str]:
        """Build the call; without an address of ours, as the evaluator that the contract names."""
        sender = self._address or await self._chain.challenges.evaluator(call.to, head)
        return {"from": sender, "to": call.to, "data": "0x" + call.data.hex(), "value": "0x0"}


async def posts_covered(chain: EthereumChain, address: Address) -> tuple[int, int]:
    balance = await chain.blocks.balance(address)
    price = quantity(await chain.blocks.rpc.ask("eth_gasPrice")) or 1
    return balance, balance // (price * POST_GAS)


def _count_or_none(answer: Any) -> int | None:
    try:
        count = quantity(answer)
    except NodeDown:
        return None
    return count if count <= _MOST_COUNT else None


def with_margin(gas: int) -> int:
    return gas + gas // 5 + GAS_MARGIN


async def estimate_gas(chain: EthereumChain, call: ContractCall, sender: Address) -> int:
    """Ask how much gas the call would use; a contract that would refuse it says so here."""
    request = {"from": sender, "to": call.to, "data": "0x" + call.data.hex(), "value": "0x0"}

    async def look() -> int | NodeRefusal:
        # At a mined block: what waits in a node's pool, of a stranger for example, is no state of the contract.
        block = hex((await chain.blocks.head()).number)
        try:
            return quantity(await chain.blocks.ask_present("eth_estimateGas", request, block))
        except NodeRefusal as refusal:
            return refusal

    # A node that is behind may not know of the wallet's money yet.
    found = await chain.blocks.rpc.retries.until(lambda told: not is_refused(told, Meaning.INSUFFICIENT_FUNDS), look)
    if not isinstance(found, NodeRefusal):
        return found
    if found.meaning is not Meaning.UNSUPPORTED:
        raise _in_our_terms(call, found)
    try:
        return quantity(await chain.blocks.rpc.ask("eth_estimateGas", request))
    except NodeRefusal as refusal:
        raise _in_our_terms(call, refusal) from None


async def _signed(
    wallet: Wallet,
    tx: TransactionToSign,
    recorded: Sequence[StoredTransaction],
    call: ContractCall | StoredTransaction,
    attempt: int,
) -> StoredTransaction:
    signed = await wallet.sign(tx, recorded)
    return StoredTransaction(
        run=call.run,
        intention=call.intention,
        attempt=attempt,
        sender=wallet.address,
        nonce=tx.nonce,
        tx_hash=signed.tx_hash,
        raw=signed.raw,
        max_fee_per_gas=tx.max_fee_per_gas,
        max_priority_fee_per_gas=tx.max_priority_fee_per_gas,
        signed_at=int(wallet.policy.now()),
    )


def _in_our_terms(call: ContractCall | None, refusal: NodeRefusal) -> ClaraError:
    what = call.what if call else "The transaction"
    if refusal.meaning is Meaning.INSUFFICIENT_FUNDS:
        return Stalled(
            f"{what}: the wallet cannot pay the gas.",
            cause="balance",
            remedy="Send ETH to its address: it goes on then.",
        )
    if refusal.meaning is not Meaning.REVERTED:
        return refusal
    reason = decode_refusal(refusal.data if isinstance(refusal.data, str) else None)
    if reason is None:
        return ContractRefused(f"{what} would be reverted: {refusal.message[:200]}.", None)
    if reason.name in _LATER:
        return NotYet(f"{what}: {reason.reason}", remedy=reason.remedy)
    return ContractRefused(f"{what}: {reason.reason} ({reason.name})", reason, remedy=reason.remedy)
