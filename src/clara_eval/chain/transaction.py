"""EIP-1559 transactions as signed and recorded, their fees and nonces, and what a key may sign.

Invariant: the content of a recorded transaction is read from its signed bytes, which stay valid for ever; nonces that
are missing before it are filled. A key signs for one chain, moves no ether, calls only listed functions of known
contracts, and has a cap on fees and on gas per day, which counts recorded transactions and so survives a restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import rlp  # type: ignore[import-untyped]
from rlp.exceptions import DecodingError  # type: ignore[import-untyped]

from clara_eval.chain.contracts.abi import abi
from clara_eval.chain.model import scoring_function
from clara_eval.core.address import Address
from clara_eval.core.errors import CannotPublish, Stalled
from clara_eval.core.hashing import keccak_hex


@dataclass(frozen=True, slots=True)
class ContractCall:
    """One call to send; calls with equal `run` and `intention` become one transaction."""

    run: str
    intention: str
    to: Address
    data: bytes
    description: str = ""
    replaces: frozenset[bytes] = frozenset()  # Calldata signed before a reorg: superseded with its own nonce

    @property
    def what(self) -> str:
        return self.description or self.intention


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """A signed transaction, recorded before it was sent; attempts of one `intention` share a nonce."""

    run: str
    intention: str
    attempt: int
    sender: str
    nonce: int
    tx_hash: str
    raw: str
    max_fee_per_gas: int
    max_priority_fee_per_gas: int
    signed_at: int = 0  # Unix seconds, for the daily cap on gas


Attempts = Sequence[StoredTransaction]


@dataclass(frozen=True, slots=True)
class TransactionToSign:
    """A transaction before its signature, as the signing policy checks it."""

    chain_id: int
    nonce: int
    to: Address
    data: bytes
    value: int
    gas: int
    max_fee_per_gas: int
    max_priority_fee_per_gas: int


def encoded(tx: TransactionToSign, *signature: int) -> bytes:
    """Return the bytes whose keccak256 is signed; with parity, r and s, the bytes to send."""
    fees = (tx.max_priority_fee_per_gas, tx.max_fee_per_gas)
    fields = (tx.chain_id, tx.nonce, *fees, tx.gas, bytes.fromhex(tx.to[2:]), tx.value, tx.data, [], *signature)
    return b"\x02" + bytes(rlp.encode(fields))


def signing_hash(tx: TransactionToSign) -> bytes:
    return bytes.fromhex(keccak_hex(encoded(tx))[2:])


@lru_cache(maxsize=2048)
def read_signed(raw: str) -> TransactionToSign:
    """Decode a recorded transaction from its signed bytes; CannotPublish if they are not EIP-1559."""
    payload = bytes.fromhex(raw.removeprefix("0x"))
    if payload[:1] != b"\x02":
        raise CannotPublish(f"The recorded transaction has type {payload[:1].hex() or 'none'}, not EIP-1559.")
    try:
        chain_id, nonce, tip, fee, gas, to, value, data, *_ = rlp.decode(payload[1:])
    except (DecodingError, ValueError):
        raise CannotPublish(f"The recorded transaction {raw[:20]}… is not whole.") from None
    chain_id, nonce, tip, fee, gas, value = (int.from_bytes(n, "big") for n in (chain_id, nonce, tip, fee, gas, value))
    return TransactionToSign(chain_id, nonce, Address("0x" + to.hex()), data, value, gas, fee, tip)


GWEI = 10**9
LOWEST_TIP = GWEI // 1000
HIGHEST_TIP = 10 * GWEI
TIMES_THE_MARKET = 5  # The highest raised fee, as a multiple of the fee of a new transaction


class Fees(NamedTuple):
    max_fee_per_gas: int
    max_priority_fee_per_gas: int

    @classmethod
    def first(cls, base_fee: int, tip: int, cap: int) -> Fees:
        """Return fees that cover a doubled base fee, within the cap."""
        tip = min(max(tip, LOWEST_TIP), HIGHEST_TIP, cap)
        return cls(min(2 * base_fee + tip, cap), tip)

    def raised(self, market: Fees, cap: int) -> Fees | None:
        """Return fees for a replacement, or None if the caps allow none that a node would accept."""
        pairs = list(zip(self, market, strict=True))
        raised = Fees(*(min(max(asked, paid + paid // 4 + 1), TIMES_THE_MARKET * asked, cap) for paid, asked in pairs))
        is_enough = all(new > paid + paid // 8 for new, paid in zip(raised, self, strict=True))  # nodes ask for 10 %
        return raised if is_enough and raised.max_priority_fee_per_gas <= raised.max_fee_per_gas else None


MOST_FILLED = 256  # Missing nonces that we pay to fill: more can only result from a node's wrong count


@dataclass(frozen=True, slots=True)
class NonceGap:
    """Nonces without a recorded transaction, and how many signed transactions wait behind them."""

    wallet: Address
    missing: tuple[int, ...]
    waiting: int

    def __str__(self) -> str:
        how = "it is filled with a transaction" if len(self.missing) == 1 else "they are filled with transactions"
        return f"{self.found}: {how} of zero to ourselves."

    @property
    def found(self) -> str:
        """Return which nonces are missing, as text."""
        first, last = self.missing[0], self.missing[-1]
        if first == last:
            text = f"Nonce {first} of {self.wallet} is missing"
        else:
            text = f"{len(self.missing)} nonces of {self.wallet}, {first} to {last}, are missing"
        return f"{text}, and {self.waiting} signed transaction{'s wait' if self.waiting > 1 else ' waits'} for it"


def missing_before(mined: int, recorded: Attempts) -> dict[int, int]:
    """Count the unrecorded nonces before each recorded one, from `mined` on."""
    nonces = sorted({tx.nonce for tx in recorded if tx.nonce >= mined})
    return {nonce: nonce - mined - before for before, nonce in enumerate(nonces)}


def within_reach(mined: int, recorded: Attempts) -> list[int]:
    """Return the recorded nonces from `mined` on that filling the missing ones can reach."""
    return [nonce for nonce, missing in missing_before(mined, recorded).items() if missing <= MOST_FILLED]


def find_gap(wallet: Address, mined: int, recorded: Attempts) -> NonceGap | None:
    """Find the nonces that are missing before recorded ones within reach."""
    known = set(within_reach(mined, recorded))
    missing = tuple(nonce for nonce in range(mined, max(known, default=mined)) if nonce not in known)
    return NonceGap(wallet, missing, sum(nonce > missing[0] for nonce in known)) if missing else None


MAX_FEE_PER_GAS = 50 * GWEI  # A post of 25 winners then costs at most 0.15 ETH; Base's usual fee is a thousandth
MAX_GAS = 8_000_000
MAX_WEI_PER_DAY = 5 * 10**17  # 0.5 ETH of gas: hundreds of posts at Base's usual fees, and a bound on any loop


@dataclass(slots=True)
class SigningPolicy:
    chain_id: int
    max_gas: int
    check_call: Callable[[SigningPolicy, TransactionToSign], str | None]  # Returns why a call must not be signed
    targets: set[Address] = field(default_factory=set)  # Contracts that the factory lists or a person named
    spending: dict[Address, int] = field(default_factory=dict)  # The most of each token that a transaction may move
    own: Address | None = None  # The key's own address: an empty call to it fills a missing nonce
    max_fee_per_gas: int = MAX_FEE_PER_GAS
    max_wei_per_day: int = MAX_WEI_PER_DAY
    now: Callable[[], float] = time.time

    def check(self, tx: TransactionToSign, recorded: Attempts = ()) -> None:
        """Raise if `tx` breaks a rule; `recorded` is what this key has signed on this chain."""
        if problem := self._find_problem(tx):
            raise CannotPublish(f"The wallet does not sign this: {problem}.")
        # Only one of several attempts with one nonce is ever paid, so the dearest counts.
        since, costs = self.now() - 24 * 3600, {tx.nonce: tx.gas * tx.max_fee_per_gas}
        for row in recorded:
            if row.nonce != tx.nonce and row.signed_at > since:
                costs[row.nonce] = max(costs.get(row.nonce, 0), read_signed(row.raw).gas * row.max_fee_per_gas)
        today = sum(costs.values())
        if today > self.max_wei_per_day:
            over = f"gas for {today} wei in a day is above the cap of {self.max_wei_per_day}"
            remedy = "It is tried again when a day has passed since the oldest of them."
            raise Stalled(f"The wallet does not sign this now: {over}.", cause="gas_cap", remedy=remedy)

    def _find_problem(self, tx: TransactionToSign) -> str | None:
        if tx.chain_id != self.chain_id:
            return f"it is for chain {tx.chain_id}, not {self.chain_id}"
        if tx.value:
            return f"it moves {tx.value} wei"
        if max(tx.max_fee_per_gas, tx.max_priority_fee_per_gas) > self.max_fee_per_gas:
            return f"its fee of {tx.max_fee_per_gas} wei per gas is above the cap of {self.max_fee_per_gas}"
        if tx.gas > self.max_gas:
            return f"its gas limit {tx.gas} is above {self.max_gas}"
        return None if tx.to == self.own and not tx.data else self.check_call(self, tx)


def evaluator_policy(chain_id: int, *, contracts: str = "1", reputation: Address | None = None) -> SigningPolicy:
    """Allow three functions of known challenges, and feedback at one reputation registry."""
    bare = {scoring_function(name, contracts).call() for name in ("advanceToScoring", "finalize")}
    post = scoring_function("postScores", contracts).selector
    give = abi("ReputationRegistry").function("giveFeedback").selector

    def check_call(policy: SigningPolicy, tx: TransactionToSign) -> str | None:
        if reputation is not None and tx.to == reputation:
            return None if tx.data[:4] == give else f"0x{tx.data[:4].hex()} is not giveFeedback"
        if tx.to not in policy.targets:
            return f"{tx.to} is not a known challenge"
        if tx.data in bare or tx.data[:4] == post:
            return None
        return f"0x{tx.data[:4].hex()} is not postScores, advanceToScoring or finalize"

    return SigningPolicy(chain_id, MAX_GAS, check_call)
