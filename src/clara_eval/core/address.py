"""Parse Ethereum addresses to lower case; sign texts and recover signers (EIP-191, `personal_sign`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NewType

from clara_eval.core.errors import BadInput

if TYPE_CHECKING:
    from pydantic import SecretStr

Address = NewType("Address", str)  # 0x and 40 lower-case hex digits
ZERO_ADDRESS = Address("0x" + "0" * 40)
_HEX = frozenset("0123456789abcdef")


def to_address(text: str, *, what: str = "address") -> Address:
    lowered = text.strip().lower()
    if len(lowered) == 42 and lowered.startswith("0x") and _HEX.issuperset(lowered[2:]):
        return Address(lowered)
    remedy = "An address is 0x followed by 40 hex digits."
    raise BadInput(f"{what} {text[:80]!r} is not an address.", value=text, remedy=remedy)


def short(address: str) -> str:
    return f"{address[:6]}…{address[-4:]}"


CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141  # of secp256k1
_SIGNATURE = re.compile(r"0x([0-9a-f]{64})([0-9a-f]{64})(00|01|1b|1c)")


def normal_signature(signature: str) -> str | None:
    """Normalise a signature to its low-s form with v = 27 or 28; None if it is not a valid signature."""
    found = _SIGNATURE.fullmatch(signature.lower())
    if found is None or not 0 < int(found[2], 16) <= CURVE_ORDER // 2:
        return None
    return f"0x{found[1]}{found[2]}{int(found[3], 16) % 27 + 27:02x}"


def signer_of(message: str, signature: str) -> str | None:
    """Recover the lower-case address that signed this text; None if the signature is invalid."""
    from eth_utils.exceptions import ValidationError

    from clara_eval.core.accounts import Account, BadSignature, encode_defunct

    try:
        return str(Account.recover_message(encode_defunct(text=message), signature=signature)).lower()
    except (ValueError, TypeError, ValidationError, BadSignature):
        return None


def sign_text(key: SecretStr, text: str) -> str:
    """Sign a text as wallets do (EIP-191)."""
    from clara_eval.core.accounts import Account, encode_defunct

    return "0x" + bytes(Account.sign_message(encode_defunct(text=text), key.get_secret_value()).signature).hex()
