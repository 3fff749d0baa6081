"""EIP-1559 transactions as signed and recorded, their fees and their nonces.

Invariant: what a recorded transaction says is read from its own bytes. Signed bytes stay valid for ever: what is
missing before them is filled with a transaction of zero to ourselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

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


class BroadcastResult(StrEnum):
    ACCEPTED = "accepted"
    NONCE_USED = "nonce_used"
    UNDERPRICED = "underpriced"
    """Another attempt with this nonce waits in the node's pool and pays as much."""
    FEE_TOO_LOW = "fee_too_low"
    NOT_TAKEN = "not_taken"
    """An earlier nonce is missing, or the node's pool is full: it is sent again at the next look."""


@dataclass(frozen=True, slots=True)
class Mined:
    tx_hash: str
    block_number: int
    has_succeeded: bool
    is_final: bool
    """Deep enough for this network."""


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


@dataclass(frozen=True, slots=True)
class SignedBytes:
    raw: str
    tx_hash: str


RlpItem = int | bytes | Sequence["RlpItem"]


def signing_payload(tx: TransactionToSign) -> bytes:
    """Return the bytes whose keccak256 is signed, without an access list."""
    return b"\x02" + _encode(_fields(tx))


def signing_hash(tx: TransactionToSign) -> bytes:
    return bytes.fromhex(keccak_hex(signing_payload(tx))[2:])


def signed_bytes(tx: TransactionToSign, parity: int, r: int, s: int) -> SignedBytes:
    """Add the signature; the hash is the one that nodes know the transaction by."""
    raw = b"\x02" + _encode([*_fields(tx), parity, r, s])
    return SignedBytes("0x" + raw.hex(), keccak_hex(raw))


def _fields(tx: TransactionToSign) -> list[RlpItem]:
    fees = (tx.max_priority_fee_per_gas, tx.max_fee_per_gas)
    return [tx.chain_id, tx.nonce, *fees, tx.gas, bytes.fromhex(tx.to[2:]), tx.value, tx.data, []]


@lru_cache(maxsize=2048)
def read_signed(raw: str) -> TransactionToSign:
    """Read what a recorded transaction says from its own bytes; CannotPublish if they are not EIP-1559."""
    payload = bytes.fromhex(raw.removeprefix("0x"))
    if payload[:1] != b"\x02":
        raise CannotPublish(f"The recorded transaction has type {payload[:1].hex() or 'none'}, not EIP-1559.")
    try:
        encoded = payload[1:]
        start, end = _span(encoded, 0)
        found: list[bytes] = []
        while start < end:
            inside, start = _span(encoded, start)
            found.append(encoded[inside:start])
        chain_id, nonce, tip, fee, gas, to, value, data = found[:8]
    except (IndexError, ValueError):
        raise CannotPublish(f"The recorded transaction {raw[:20]}… is not whole.") from None
    return TransactionToSign(
        chain_id=int.from_bytes(chain_id, "big"),
        nonce=int.from_bytes(nonce, "big"),
        to=Address("0x" + to.hex()),
        data=bytes(data),
        value=int.from_bytes(value, "big"),
        gas=int.from_bytes(gas, "big"),
        max_fee_per_gas=int.from_bytes(fee, "big"),
        max_priority_fee_per_gas=int.from_bytes(tip, "big"),
    )


def _encode(item: RlpItem) -> bytes:
    """Encode as RLP: numbers big-endian without leading zeros."""
    if isinstance(item, int):
        item = item.to_bytes((item.bit_length() + 7) // 8, "big")
    if isinstance(item, bytes):
        return item if len(item) == 1 and item[0] < 0x80 else _prefix(len(item), 0x80) + item
    inside = b"".join(map(_encode, item))
    return _prefix(len(inside), 0xC0) + inside


def _prefix(length: int, base: int) -> bytes:
    if length < 56:
        return bytes([base + length])
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([base + 55 + len(size)]) + size


def _span(encoded: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the item at `at` starts and ends."""
    first = encoded[at]
    if first < 0x80:
        return at, at + 1
    short = first - (0x80 if first < 0xC0 else 0xC0)
    if short < 56:
        return at + 1, at + 1 + short
    start = at + 1 + short - 55
    return start, start + int.from_bytes(encoded[at + 1 : start], "big")


GWEI = 10**9
LOWEST_TIP = GWEI // 1000
HIGHEST_TIP = 10 * GWEI
TIMES_THE_MARKET = 5


class Fees(NamedTuple):
    max_fee_per_gas: int
    max_priority_fee_per_gas: int


def first_fees(base_fee: int, tip: int, cap: int) -> Fees:
    """Allow for a doubled base fee, within the cap."""
    tip = min(max(tip, LOWEST_TIP), HIGHEST_TIP, cap)
    return Fees(min(2 * base_fee + tip, cap), tip)


def raised_fees(before: Fees, base_fee: int, tip: int, cap: int) -> Fees | None:
    """Return fees for a replacement, or None if the bounds allow none that a node would take."""
    pairs = list(zip(before, first_fees(base_fee, tip, cap), strict=True))
    wanted = (min(max(asked, paid + paid // 4 + 1), TIMES_THE_MARKET * asked, cap) for paid, asked in pairs)
    raised = Fees(*wanted)
    is_an_eighth_more = all(new > paid + paid // 8 for new, (paid, _) in zip(raised, pairs, strict=True))
    return raised if is_an_eighth_more and raised.max_priority_fee_per_gas <= raised.max_fee_per_gas else None


MOST_FILLED = 256
"""Missing nonces before a transaction that we would pay for: more only come from a node that told a wrong count."""
FILLED_AT_ONCE = 16
"""Pools of common nodes keep at least so many transactions of one account."""
FILLING = "fill_nonce"


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


def missing_before(mined: int, recorded: Sequence[StoredTransaction]) -> dict[int, int]:
    """Count, for each recorded nonce from `mined` on, the unrecorded ones before it."""
    nonces = sorted({tx.nonce for tx in recorded if tx.nonce >= mined})
    return {nonce: nonce - mined - before for before, nonce in enumerate(nonces)}


def within_reach(mined: int, recorded: Sequence[StoredTransaction]) -> list[int]:
    """Return the recorded nonces from `mined` on with few enough missing before them to fill."""
    return [nonce for nonce, missing in missing_before(mined, recorded).items() if missing <= MOST_FILLED]


def find_gap(wallet: Address, mined: int, recorded: Sequence[StoredTransaction]) -> NonceGap | None:
    """Find what is missing before the recorded nonces that can be reached."""
    known = set(within_reach(mined, recorded))
    missing = tuple(nonce for nonce in range(mined, max(known, default=mined)) if nonce not in known)
    return NonceGap(wallet, missing, sum(nonce > missing[0] for nonce in known)) if missing else None
