"""A signed transaction as it is kept: recorded before it is sent, so that a crash can only repeat it, never double it.

Comes in: an EIP-1559 transaction before or after its signature. Goes out: the bytes to sign, the signed bytes, and what
those say, read back from the bytes themselves. Refuses every other kind of transaction: what we cannot read we do not
send.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import rlp  # type: ignore[import-untyped] # ships no types

from clara_eval.core.address import Address
from clara_eval.core.errors import CannotPublish
from clara_eval.core.hashing import keccak_hex


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


def signing_payload(tx: TransactionToSign) -> bytes:
    """The bytes whose keccak256 is signed: EIP-1559, without an access list."""
    return bytes(b"\x02" + rlp.encode(_fields(tx)))


def signed_bytes(tx: TransactionToSign, parity: int, r: int, s: int) -> SignedBytes:
    """The transaction with its signature, and the hash that nodes know it by."""
    raw = bytes(b"\x02" + rlp.encode([*_fields(tx), parity, r, s]))
    return SignedBytes("0x" + raw.hex(), keccak_hex(raw))


def _fields(tx: TransactionToSign) -> list[object]:
    fees = (tx.max_priority_fee_per_gas, tx.max_fee_per_gas)
    return [tx.chain_id, tx.nonce, *fees, tx.gas, bytes.fromhex(tx.to[2:]), tx.value, tx.data, []]


@lru_cache(maxsize=2048)
def read_signed(raw: str) -> TransactionToSign:
    """What a recorded transaction says, from its own bytes."""
    payload = bytes.fromhex(raw.removeprefix("0x"))
    if payload[:1] != b"\x02":
        raise CannotPublish(f"The recorded transaction has type {payload[:1].hex() or 'none'}, not EIP-1559.")
    chain_id, nonce, tip, fee, gas, to, value, data = rlp.decode(payload[1:])[:8]
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
