"""Who signed a text with an Ethereum key (EIP-191, `personal_sign`): text and signature in, the address out."""

from __future__ import annotations


def signer_of(message: str, signature: str) -> str | None:
    """The lower-case address of whoever signed this text; None where that is not a signature."""
    from eth_account import Account
    from eth_account.messages import encode_defunct
    from eth_keys.exceptions import BadSignature
    from eth_utils.exceptions import ValidationError

    try:
        return str(Account.recover_message(encode_defunct(text=message), signature=signature)).lower()
    except (ValueError, TypeError, ValidationError, BadSignature):
        return None
