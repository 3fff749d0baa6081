"""Rehearse, sign and broadcast the calls of one wallet on one network, and read their receipts.

Invariant: a call to a challenge is signed only if the factory lists that challenge or a person named it.
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

GAS_MARGIN = 50_000  # Gas above 120 % of the estimate: the state may change before the transaction is mined
_MAY_STILL_LAND = {
    *(Meaning.ALREADY_KNOWN, Meaning.NONCE_TOO_LOW, Meaning.NONCE_TOO_HIGH, Meaning.POOL_FULL),
    *(Meaning.REPLACEMENT_UNDERPRICED, Meaning.FEE_TOO_LOW),
}  # Refusals after which the signed bytes may still be mined: they are sent again at the next poll
POST_GAS = 600_000  # Gas of a post with several winners, to estimate how many posts a balance covers
_MAX_NONCE = 2**48  # No account has sent so many transactions: a higher count is an error of the node
_NOT_YET_ERRORS = frozenset({"DeadlineNotReached", "FinalizationDelayNotElapsed", "ScoresNotPosted"})


class ContractRefused(CannotPublish):
    """A contract would refuse the call; `refusal` is its decoded custom error, None if unknown."""

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
        """Use `confirmations` as the depth at which a success is final; by default the network's."""
        self._confirmations = chain.blocks.network.confirmations if confirmations is None else confirmations
        self.chain, self._blocks, self.chain_id = chain, chain.blocks, chain.chain_id
        self._wallet, self._factory, self.can_sign = wallet, factory, wallet is not None
        self._address = wallet.address if wallet else dry_address
        self.address = self._address or ZERO_ADDRESS

    def trust(self, challenge: Address) -> None:
        """Allow signing for this challenge even if the factory does not list it: a person named it."""
        if self._wallet is not None:
            self._wallet.policy.targets.add(challenge)

    async def rehearse(self, call: ContractCall) -> None:
        """Try the call without sending; raise CannotPublish or NotYet with the contract's reason."""

        # Without an address of ours, call as the contract's evaluator. A refusal counts only at the newest block.
        async def try_call() -> tuple[bool, Any]:
            head = await self._blocks.head()
            contract = self.chain.challenges.contract(call.to)
            sender = self._address or (await contract.values(head, [contract.view("evaluator")]))[0][0]
            params = (_request(call, sender), self._blocks.parameter(head))
            answer = await self._blocks.rpc.answer("eth_call", *params, retry_missing=True)
            is_accepted = not isinstance(answer, NodeRefusal)
            return is_accepted or (await self._blocks.head()).number <= head.number, answer

        _, answer = await self._blocks.rpc.retries.until(lambda result: result[0], try_call)
        if isinstance(answer, NodeRefusal):
            raise _translate_refusal(call, answer)

    async def next_nonce(self) -> int:
        """Return the count of mined transactions, read twice; the lower one if the two never agree."""

        # A nonce that is too low is rejected at once; one that is too high would wait behind a gap.
        async def count_twice() -> tuple[int, int]:
            block = hex((await self._blocks.head()).number)
            return await self._count(block), await self._count(block)

        counts = await self._blocks.rpc.retries.until(lambda found: found[0] == found[1], count_twice)
        return min(counts)

    async def pending_nonce(self) -> int:
        try:
            return await self._count("pending")
        except NodeRefusal:
            return 0  # this node does not report pending transactions

    async def is_nonce_gone(self, nonce: int) -> bool:
        """Return whether a transaction with this nonce is final."""
        head = await self._blocks.head()
        deep = max(0, head.number - self._blocks.network.confirmations + 1)
        return await self._count(hex(deep)) > nonce and await self._count(hex(head.number)) > nonce

    async def is_pending(self, attempts: Attempts) -> bool:
        found = await self._blocks.rpc.ask_many([RpcCall("eth_getTransactionByHash", (tx.tx_hash,)) for tx in attempts])
        return any(isinstance(one, dict) and one.get("blockNumber") is None for one in found)

    async def _count(self, block: str) -> int:
        """Return our transaction count at this block: the median over all nodes, the lower of two."""
        request, rpc = ("eth_getTransactionCount", self.address, block), self._blocks.rpc
        answers = [answer for _, answer in await rpc.ask_every_node(*request)] if len(rpc.nodes) > 1 else []
        answers = answers or [await rpc.ask(*request, retry_missing=True)]
        counts = list[int]()
        for answer in answers:
            with suppress(NodeDown):
                counts.append(quantity(answer))
        counts = sorted(count for count in counts if count <= _MAX_NONCE)
        if not counts:
            remedy = "Set another node in CLARA_RPC_URL, or a second one."
            raise Temporary(f"A node counts {str(answers[0])[:40]} transactions of {self.address}.", remedy=remedy)
        return counts[(len(counts) - 1) // 2]

    async def prepare(
        self, call: ContractCall, *, attempt: int, nonce: int, recorded: Attempts, over: StoredTransaction | None = None
    ) -> StoredTransaction:
        """Sign the call; `recorded` counts towards the daily cap, and the fee replaces that of `over`."""
        gas = await estimate_gas(self.chain, call, self.address)
        fees = (await self._raised_fees(over) if over else None) or await self.fees()
        tx = TransactionToSign(self.chain_id, nonce, call.to, call.data, 0, with_margin(gas), *fees)
        return await self._sign(tx, recorded, call, attempt)

    async def bump(self, tx: StoredTransaction, *, attempt: int, recorded: Attempts) -> StoredTransaction | None:
        """Sign `tx` again with a higher fee; None if the caps forbid it."""
        raised, signed = await self._raised_fees(tx), read_signed(tx.raw)
        if raised is None:
            return None
        return await self._sign(replace(signed, value=0, **raised._asdict()), recorded, tx, attempt)

    async def _raised_fees(self, tx: StoredTransaction) -> Fees | None:
        signed = read_signed(tx.raw)
        before = Fees(signed.max_fee_per_gas, signed.max_priority_fee_per_gas)
        return before.raised(await self.fees(), self._signer().policy.max_fee_per_gas)

    async def broadcast(self, tx: StoredTransaction) -> Meaning | None:
        """Send; return why the node does not accept it now, None if it does."""
        try:
            answer = await self._blocks.rpc.ask("eth_sendRawTransaction", tx.raw)
        except NodeRefusal as refusal:
            if refusal.meaning in _MAY_STILL_LAND:
                return refusal.meaning
            raise _translate_refusal(None, refusal) from None
        if str(answer).lower() != tx.tx_hash:
            raise Temporary(f"A node took {tx.tx_hash} but calls it {str(answer)[:66]}.")
        return None

    async def outcome(self, attempts: Attempts) -> TransactionReceipt | None:
        """Return the receipt of the first attempt that is mined in a canonical block."""
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
        """Return the fees of a new transaction at the current market."""
        calls = [RpcCall("eth_getBlockByNumber", ("latest", False)), RpcCall("eth_maxPriorityFeePerGas")]
        block, tip = await self._blocks.rpc.ask_many(calls)
        base_fee = quantity(required(block).get("baseFeePerGas", "0x0"))
        suggested = 0 if isinstance(tip, NodeRefusal) else quantity(tip)  # not every node suggests a tip
        return Fees.first(base_fee, suggested, self._signer().policy.max_fee_per_gas)

    async def _sign(
        self, tx: TransactionToSign, recorded: Attempts, call: ContractCall | StoredTransaction, attempt: int
    ) -> StoredTransaction:
        """Sign; add the target to the policy if it is the factory's registry or one of its challenges."""
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
    """Return the balance in wei, and how many posts it pays for at the current gas price."""
    balance = await chain.blocks.balance(address)
    return balance, balance // ((quantity(await chain.blocks.rpc.ask("eth_gasPrice")) or 1) * POST_GAS)


def _request(call: ContractCall, sender: Address) -> dict[str, str]:
    return {"from": sender, "to": call.to, "data": "0x" + call.data.hex(), "value": "0x0"}


def with_margin(gas: int) -> int:
    return gas + gas // 5 + GAS_MARGIN


async def estimate_gas(chain: EthereumChain, call: ContractCall, sender: Address) -> int:
    """Return the gas that the call would use; raise the contract's reason if it would revert."""

    async def estimate() -> Any:
        # At a mined block: pending transactions of others must not change the estimate.
        for at in ([hex((await chain.blocks.head()).number)], []):
            answer = await chain.blocks.rpc.answer("eth_estimateGas", _request(call, sender), *at, retry_missing=True)
            if not is_refused(answer, Meaning.UNSUPPORTED):
                break  # some nodes accept no block parameter here
        return answer

    # A node that is behind may not know of the wallet's money yet.
    gas = await chain.blocks.rpc.retries.until(lambda gas: not is_refused(gas, Meaning.INSUFFICIENT_FUNDS), estimate)
    if isinstance(gas, NodeRefusal):
        raise _translate_refusal(call, gas)
    return quantity(gas)


def _translate_refusal(call: ContractCall | None, refusal: NodeRefusal) -> ClaraError:
    what = call.what if call else "The transaction"
    if refusal.meaning is Meaning.INSUFFICIENT_FUNDS:
        remedy = "Send ETH to its address; the transaction is then tried again."
        return Stalled(f"{what}: the wallet cannot pay the gas.", cause="balance", remedy=remedy)
    if refusal.meaning is not Meaning.REVERTED:
        return refusal
    reason = decode_refusal(refusal.data)
    if reason is None:
        return ContractRefused(f"{what} would be reverted: {refusal.message[:200]}.", None)
    if reason.name in _NOT_YET_ERRORS:
        return NotYet(f"{what}: {reason.reason}", remedy=reason.remedy)
    return ContractRefused(f"{what}: {reason.reason} ({reason.name})", reason, remedy=reason.remedy)
