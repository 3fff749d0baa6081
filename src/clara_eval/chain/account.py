"""One wallet on one network: rehearse, sign, broadcast, and look what became of it.

Invariant: nothing is signed for a challenge before the factory has said that it knows it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from clara_eval.chain.blocks import TransactionReceipt
from clara_eval.chain.contracts.abi import ContractRefusal, decode_refusal
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.rpc import Meaning, NodeDown, NodeRefusal, RpcCall, is_refused, quantity, required
from clara_eval.chain.transaction import Attempts, ContractCall, Fees, StoredTransaction, TransactionToSign, read_signed
from clara_eval.chain.wallet import Wallet
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.errors import CannotPublish, ClaraError, NotYet, Stalled, Temporary
from clara_eval.core.hashing import keccak_hex

GAS_MARGIN = 50_000  # On top of a fifth more than the estimate: the state may change before the transaction is mined
_MAY_STILL_LAND = {
    *(Meaning.ALREADY_KNOWN, Meaning.NONCE_TOO_LOW, Meaning.NONCE_TOO_HIGH, Meaning.POOL_FULL),
    *(Meaning.REPLACEMENT_UNDERPRICED, Meaning.FEE_TOO_LOW),
}  # Refusals of signed bytes that say nothing against the call: they are sent again at the next look
POST_GAS = 600_000  # Of a post with several winners, when posts are counted in advance
_MOST_COUNT = 2**48  # No account has sent so many transactions: a higher count is an error of the node
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
        self.chain, self._blocks, self.chain_id = chain, chain.blocks, chain.chain_id
        self._wallet, self._factory, self.can_sign = wallet, factory, wallet is not None
        self._address = wallet.address if wallet else dry_address
        self.address = self._address or ZERO_ADDRESS

    def trust(self, challenge: Address) -> None:
        """Sign for this challenge although the factory may not know it: a person named it."""
        if self._wallet is not None:
            self._wallet.policy.targets.add(challenge)

    async def rehearse(self, call: ContractCall) -> None:
        """Try the call without sending; raise CannotPublish or NotYet with the contract's reason."""

        # From our address, else the contract's evaluator. A refusal counts only if no newer block is known by then.
        async def look() -> tuple[bool, Any]:
            head = await self._blocks.head()
            contract = self.chain.challenges.contract(call.to)
            sender = self._address or (await contract.state(head, ("evaluator",)))["evaluator"]
            asked = (_request(call, sender), self._blocks.parameter(head))
            answer = await self._blocks.rpc.answer("eth_call", *asked, retry_missing=True)
            is_said = not isinstance(answer, NodeRefusal)
            return is_said or (await self._blocks.head()).number <= head.number, answer

        _, answer = await self._blocks.rpc.retries.until(lambda looked: looked[0], look)
        if isinstance(answer, NodeRefusal):
            raise _in_our_terms(call, answer)

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

    async def is_pending(self, attempts: Attempts) -> bool:
        found = await self._blocks.rpc.ask_many([RpcCall("eth_getTransactionByHash", (tx.tx_hash,)) for tx in attempts])
        return any(isinstance(one, dict) and one.get("blockNumber") is None for one in found)

    async def _count(self, block: str) -> int:
        """Count our transactions at this block, as most nodes tell it; the lower if they are divided."""
        asked, rpc = ("eth_getTransactionCount", self.address, block), self._blocks.rpc
        told = [answer for _, answer in await rpc.ask_every_node(*asked)] if len(rpc.nodes) > 1 else []
        told = told or [await rpc.ask(*asked, retry_missing=True)]
        counts = list[int]()
        for answer in told:
            with suppress(NodeDown):
                counts.append(quantity(answer))
        counts = sorted(count for count in counts if count <= _MOST_COUNT)
        if not counts:
            remedy = "Set another node in CLARA_RPC_URL, or a second one."
            raise Temporary(f"A node counts {str(told[0])[:40]} transactions of {self.address}.", remedy=remedy)
        return counts[(len(counts) - 1) // 2]

    async def prepare(
        self, call: ContractCall, *, attempt: int, nonce: int, recorded: Attempts, over: StoredTransaction | None = None
    ) -> StoredTransaction:
        """Sign the call; `recorded` counts towards the day's cap, and the fee is above that of `over`."""
        gas = await estimate_gas(self.chain, call, self.address)
        fees = (await self._raised_fees(over) if over else None) or await self.fees()
        tx = TransactionToSign(self.chain_id, nonce, call.to, call.data, 0, with_margin(gas), *fees)
        return await self._sign(tx, recorded, call, attempt)

    async def bump(self, tx: StoredTransaction, *, attempt: int, recorded: Attempts) -> StoredTransaction | None:
        """Sign the same nonce and calldata with a higher fee; None if the bounds forbid it."""
        raised, signed = await self._raised_fees(tx), read_signed(tx.raw)
        if raised is None:
            return None
        return await self._sign(replace(signed, value=0, **raised._asdict()), recorded, tx, attempt)

    async def _raised_fees(self, tx: StoredTransaction) -> Fees | None:
        signed = read_signed(tx.raw)
        before = Fees(signed.max_fee_per_gas, signed.max_priority_fee_per_gas)
        return before.raised(await self.fees(), self._signer().policy.max_fee_per_gas)

    async def broadcast(self, tx: StoredTransaction) -> Meaning | None:
        """Send; return why the node does not take it now, None if it does."""
        try:
            answer = await self._blocks.rpc.ask("eth_sendRawTransaction", tx.raw)
        except NodeRefusal as refusal:
            if refusal.meaning in _MAY_STILL_LAND:
                return refusal.meaning
            raise _in_our_terms(None, refusal) from None
        if str(answer).lower() != tx.tx_hash:
            raise Temporary(f"A node took {tx.tx_hash} but calls it {str(answer)[:66]}.")
        return None

    async def outcome(self, attempts: Attempts) -> TransactionReceipt | None:
        """Return the receipt of the first attempt that is in a block of the chain."""
        rpc = self._blocks.rpc
        for answer in await rpc.ask_many([RpcCall("eth_getTransactionReceipt", (tx.tx_hash,)) for tx in attempts]):
            if is_refused(answer, Meaning.MISSING):
                continue
            found, head = TransactionReceipt.read(required(answer)), await self._blocks.head()
            block = await rpc.ask_maybe("eth_getBlockByNumber", hex(found.block_number), False)
            if block is not None and block["hash"] == found.block_hash:
                return replace(found, is_final=head.number - found.block_number + 1 >= self._confirmations)
        return None

    async def fees(self) -> Fees:
        """Return what a new transaction offers now; a node may suggest no tip."""
        asked = [RpcCall("eth_getBlockByNumber", ("latest", False)), RpcCall("eth_maxPriorityFeePerGas")]
        block, tip = await self._blocks.rpc.ask_many(asked)
        base_fee = quantity(required(block).get("baseFeePerGas", "0x0"))
        suggested = 0 if isinstance(tip, NodeRefusal) else quantity(tip)
        return Fees.first(base_fee, suggested, self._signer().policy.max_fee_per_gas)

    async def _sign(
        self, tx: TransactionToSign, recorded: Attempts, call: ContractCall | StoredTransaction, attempt: int
    ) -> StoredTransaction:
        """Sign; the policy permits a challenge or the registry once the factory has vouched for it."""
        wallet, factory, challenges = self._signer(), self._factory, self.chain.challenges
        policy = wallet.policy
        if factory is not None and tx.to not in {*policy.targets, *policy.spending, policy.own}:
            registry = await challenges.factory(factory).one(await self._blocks.head(), "identityRegistry")
            if tx.to == registry or await challenges.is_challenge_of(factory, tx.to):
                policy.targets.add(tx.to)
        raw = await wallet.sign(tx, recorded)
        fees = (tx.max_fee_per_gas, tx.max_priority_fee_per_gas)
        row = (wallet.address, tx.nonce, keccak_hex(bytes.fromhex(raw[2:])), raw, *fees, int(policy.now()))
        return StoredTransaction(call.run, call.intention, attempt, *row)

    def permit_spending(self, token: Address, units: int) -> None:
        self._signer().policy.spending[token] = units

    def _signer(self) -> Wallet:
        if self._wallet is None:
            raise CannotPublish("There is no key to sign with.", remedy="Set CLARA_EVALUATOR_KEY.")
        return self._wallet


async def posts_covered(chain: EthereumChain, address: Address) -> tuple[int, int]:
    balance = await chain.blocks.balance(address)
    price = quantity(await chain.blocks.rpc.ask("eth_gasPrice")) or 1
    return balance, balance // (price * POST_GAS)


def _request(call: ContractCall, sender: Address) -> dict[str, str]:
    return {"from": sender, "to": call.to, "data": "0x" + call.data.hex(), "value": "0x0"}


def with_margin(gas: int) -> int:
    return gas + gas // 5 + GAS_MARGIN


async def estimate_gas(chain: EthereumChain, call: ContractCall, sender: Address) -> int:
    """Ask how much gas the call would use; a contract that would refuse it says so here."""

    async def look() -> Any:
        # At a mined block: what waits in a node's pool, of a stranger for example, is no state of the contract.
        for at in ([hex((await chain.blocks.head()).number)], []):
            answer = await chain.blocks.rpc.answer("eth_estimateGas", _request(call, sender), *at, retry_missing=True)
            if not is_refused(answer, Meaning.UNSUPPORTED):
                break  # else the node takes no block here
        return answer

    # A node that is behind may not know of the wallet's money yet.
    found = await chain.blocks.rpc.retries.until(lambda told: not is_refused(told, Meaning.INSUFFICIENT_FUNDS), look)
    if isinstance(found, NodeRefusal):
        raise _in_our_terms(call, found)
    return quantity(found)


def _in_our_terms(call: ContractCall | None, refusal: NodeRefusal) -> ClaraError:
    what = call.what if call else "The transaction"
    if refusal.meaning is Meaning.INSUFFICIENT_FUNDS:
        remedy = "Send ETH to its address: it goes on then."
        return Stalled(f"{what}: the wallet cannot pay the gas.", cause="balance", remedy=remedy)
    if refusal.meaning is not Meaning.REVERTED:
        return refusal
    reason = decode_refusal(refusal.data)
    if reason is None:
        return ContractRefused(f"{what} would be reverted: {refusal.message[:200]}.", None)
    if reason.name in _LATER:
        return NotYet(f"{what}: {reason.reason}", remedy=reason.remedy)
    return ContractRefused(f"{what}: {reason.reason} ({reason.name})", reason, remedy=reason.remedy)
