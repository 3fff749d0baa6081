"""EIP-1559 transactions as signed and recorded, their fees and their nonces.

Invariant: what a recorded transaction says is read from its own bytes. Signed bytes stay valid for ever: what is
missing before them is filled with a transaction of zero to ourselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import rlp  # type: ignore[import-untyped]
from rlp.exceptions import DecodingError  # type: ignore[import-untyped]

from clara_eval.core.address import Address
from clara_eval.core.errors import CannotPublish
from clara_eval.core.hashing import keccak_hex


@dataclass(frozen=True, slots=True)
class ContractCall:
    """One call with a name: equal `run` and `intention` mean one transaction, however often it is asked for."""

    run: str
    intention: str
    to: Address
    data: bytes
    description: str = ""
    replaces: frozenset[bytes] = frozenset()
    """Calldata that was signed for this intention about a block that is gone: superseded on the same nonce."""

    @property
    def what(self) -> str:
        return self.description or self.intention


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """A signed transaction, recorded before it was sent. One `intention` has one nonce, and maybe several fees."""

    run: str
    intention: str
    attempt: int
    sender: str
    nonce: int
    tx_hash: str
    raw: str
    max_fee_per_gas: int
    max_priority_fee_per_gas: int
    signed_at: int = 0
    """Unix seconds; what was signed within a day counts towards the day's cap."""


Attempts = Sequence[StoredTransaction]


@dataclass(frozen=True, slots=True)
class TransactionToSign:
    """One transaction before its signature: all that the signer's policy has to judge."""

    chain_id: int
    nonce: int
    to: Address
    data: bytes
    value: int
    gas: int
    max_fee_per_gas: int
    max_priority_fee_per_gas: int


def encoded(tx: TransactionToSign, *signature: int) -> bytes:
    """Return the bytes whose keccak256 is signed; with parity, r and s those that are sent."""
    fees = (tx.max_priority_fee_per_gas, tx.max_fee_per_gas)
    fields = (tx.chain_id, tx.nonce, *fees, tx.gas, bytes.fromhex(tx.to[2:]), tx.value, tx.data, [], *signature)
    return b"\x02" + bytes(rlp.encode(fields))


def signing_hash(tx: TransactionToSign) -> bytes:
    return bytes.fromhex(keccak_hex(encoded(tx))[2:])


@lru_cache(maxsize=2048)
def read_signed(raw: str) -> TransactionToSign:
    """Read what a recorded transaction says from its own bytes; CannotPublish if they are not EIP-1559."""
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
TIMES_THE_MARKET = 5


class Fees(NamedTuple):
    max_fee_per_gas: int
    max_priority_fee_per_gas: int

    @classmethod
    def first(cls, base_fee: int, tip: int, cap: int) -> Fees:
        """Allow for a doubled base fee, within the cap."""
        tip = min(max(tip, LOWEST_TIP), HIGHEST_TIP, cap)
        return cls(min(2 * base_fee + tip, cap), tip)

    def raised(self, market: Fees, cap: int) -> Fees | None:
        """Return fees for a replacement, or None if the bounds allow none that a node would take."""
        pairs = list(zip(self, market, strict=True))
        wanted = (min(max(asked, paid + paid // 4 + 1), TIMES_THE_MARKET * asked, cap) for paid, asked in pairs)
        raised = Fees(*wanted)
        is_an_eighth_more = all(new > paid + paid // 8 for new, paid in zip(raised, self, strict=True))
        return raised if is_an_eighth_more and raised.max_priority_fee_per_gas <= raised.max_fee_per_gas else None


MOST_FILLED = 256
"""Missing nonces before a transaction that we would pay for: more only come from a node that told a wrong count."""


@dataclass(frozen=True, slots=True)
class NonceGap:
    """Nonces that nothing of ours is signed for, and how many signed transactions wait behind them."""

    wallet: Address
    missing: tuple[int, ...]
    waiting: int

    def __str__(self) -> str:
        how = "it is filled with a transaction" if len(self.missing) == 1 else "they are filled with transactions"
        return f"{self.found}: {how} of zero to ourselves."

    @property
    def found(self) -> str:
        """Say what is missing, without what is done about it."""
        first, last = self.missing[0], self.missing[-1]
        if first == last:
            said = f"Nonce {first} of {self.wallet} is missing"
        else:
            said = f"{len(self.missing)} nonces of {self.wallet}, {first} to {last}, are missing"
        return f"{said}, and {self.waiting} signed transaction{'s wait' if self.waiting > 1 else ' waits'} for it"


def missing_before(mined: int, recorded: Attempts) -> dict[int, int]:
    """Count, for each recorded nonce from `mined` on, the unrecorded ones before it."""
    nonces = sorted({tx.nonce for tx in recorded if tx.nonce >= mined})
    return {nonce: nonce - mined - before for before, nonce in enumerate(nonces)}


def within_reach(mined: int, recorded: Attempts) -> list[int]:
    """Return the recorded nonces from `mined` on with few enough missing before them to fill."""
    return [nonce for nonce, missing in missing_before(mined, recorded).items() if missing <= MOST_FILLED]


def find_gap(wallet: Address, mined: int, recorded: Attempts) -> NonceGap | None:
    """Find what is missing before the recorded nonces that can be reached."""
    known = set(within_reach(mined, recorded))
    missing = tuple(nonce for nonce in range(mined, max(known, default=mined)) if nonce not in known)
    return NonceGap(wallet, missing, sum(nonce > missing[0] for nonce in known)) if missing else None
