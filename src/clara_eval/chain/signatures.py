"""Check signatures of remote signers against the address before they count."""

from __future__ import annotations

from clara_eval.chain.transaction import SignedBytes, TransactionToSign, signed_bytes, signing_payload
from clara_eval.core.address import Address
from clara_eval.core.eip191 import ORDER
from clara_eval.core.errors import ConfigError
from clara_eval.core.hashing import keccak_hex


def address_of(public_key: str) -> Address | None:
    """Derive the address of an uncompressed public key in hex, with or without 04; None if it is not one."""
    try:
        raw = bytes.fromhex(public_key.removeprefix("0x"))
    except ValueError:
        return None
    raw = raw[1:] if len(raw) == 65 and raw[0] == 4 else raw
    return Address("0x" + keccak_hex(raw)[-40:]) if len(raw) == 64 else None


def signed_with(what: str, address: Address, tx: TransactionToSign, r: int, s: int) -> SignedBytes:
    """Add a signature in the low form; ConfigError if it is not this address's over this transaction."""
    low = min(s, ORDER - s)
    digest = bytes.fromhex(keccak_hex(signing_payload(tx))[2:])
    for parity in (0, 1):
        if _signer(digest, parity, r, low) == address:
            return signed_bytes(tx, parity, r, low)
    raise ConfigError(
        f"The {what} gave a signature that is not {address}'s over this transaction.",
        remedy="Nothing was sent: check the signer before anything else. It is asked again by itself.",
    )


def _signer(digest: bytes, parity: int, r: int, s: int) -> Address | None:
    from eth_keys.datatypes import Signature
    from eth_keys.exceptions import BadSignature
    from eth_utils.exceptions import ValidationError

    try:
        found = Signature(vrs=(parity, r, s)).recover_public_key_from_msg_hash(digest)
    except (BadSignature, ValidationError, ValueError):
        return None
    return Address(found.to_address())
