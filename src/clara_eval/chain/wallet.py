"""The private key, and the only module that ever holds it.

Comes in: a key or an encrypted keystore, and the signing policy. Goes out: an address, and signatures for exactly what
the policy allows. Must hold: the key appears in no text, error or repr; a keystore file is readable by its owner alone
and is never overwritten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from clara_eval.challenge.model import Address, to_address
from clara_eval.errors import ConfigError
from clara_eval.publish.policy import SigningPolicy
from clara_eval.publish.transaction import StoredTransaction, Unsigned
from clara_eval.settings import Settings


@dataclass(frozen=True, slots=True)
class SignedBytes:
    raw: str
    tx_hash: str


class Wallet:
    """One key under one policy."""

    __slots__ = ("_account", "address", "policy")

    def __init__(self, key: SecretStr, policy: SigningPolicy, *, name: str = "CLARA_EVALUATOR_KEY") -> None:
        self._account = _account(key, name)
        self.address: Address = to_address(self._account.address)
        self.policy = policy

    def __repr__(self) -> str:
        return f"Wallet({self.address})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A wallet is never written anywhere.")

    def sign(self, tx: Unsigned, recorded: Sequence[StoredTransaction] = ()) -> SignedBytes:
        """Sign what the policy allows after what is `recorded`; the hash is the one the node will know it by."""
        self.policy.check(tx, recorded)
        from eth_utils.address import to_checksum_address

        signed = self._account.sign_transaction(
            {
                "type": 2,
                "chainId": tx.chain_id,
                "nonce": tx.nonce,
                "to": to_checksum_address(tx.to),
                "data": tx.data,
                "value": tx.value,
                "gas": tx.gas,
                "maxFeePerGas": tx.max_fee_per_gas,
                "maxPriorityFeePerGas": tx.max_priority_fee_per_gas,
            }
        )
        return SignedBytes(raw="0x" + signed.raw_transaction.hex(), tx_hash="0x" + signed.hash.hex())


def open_wallet(settings: Settings, policy: SigningPolicy) -> Wallet | None:
    """The evaluator's wallet from the settings; None without a key, which means dry run."""
    if settings.evaluator_key is not None:
        wallet = Wallet(settings.evaluator_key, policy)
    elif settings.evaluator_keystore is not None:
        wallet = Wallet(read_keystore(settings.evaluator_keystore, settings.evaluator_password), policy)
    else:
        return None
    if settings.evaluator_address not in {None, wallet.address}:
        raise ConfigError(
            f"CLARA_EVALUATOR_ADDRESS is {settings.evaluator_address}, but the key belongs to {wallet.address}.",
            remedy="Give the matching key, or leave the address out.",
        )
    return wallet


def read_keystore(path: Path, password: SecretStr | None) -> SecretStr:
    """The key inside an encrypted keystore file."""
    if password is None:
        raise ConfigError(
            "CLARA_EVALUATOR_KEYSTORE is set without a password.",
            remedy="Set CLARA_EVALUATOR_PASSWORD, or CLARA_EVALUATOR_PASSWORD_FILE.",
        )
    from clara_eval.chain.accounts import Account

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        key = Account.decrypt(content, password.get_secret_value())
    except (OSError, UnicodeDecodeError) as bad:
        raise ConfigError(f"CLARA_EVALUATOR_KEYSTORE={str(path)!r} cannot be read: {type(bad).__name__}.") from None
    except Exception as bad:  # noqa: BLE001 - the library raises what it likes about a file that is no keystore
        reason = "the password is wrong" if "MAC" in str(bad) else "it is not a keystore file"
        raise ConfigError(f"CLARA_EVALUATOR_KEYSTORE={str(path)!r} cannot be opened: {reason}.") from None
    return SecretStr("0x" + bytes(key).hex())


def new_keystore(path: Path, password: SecretStr, *, work: int | None = None) -> Address:
    """Make a key, write it encrypted for its owner's eyes alone, and return its address; refuses an existing file.

    `work` is scrypt's cost, a power of two; without it the library's own, which takes about a second.
    """
    if not password.get_secret_value():
        raise ConfigError("The keystore's password is empty.", remedy="Set CLARA_EVALUATOR_PASSWORD.")
    from clara_eval.chain.accounts import Account

    account = Account.create()
    content = json.dumps(account.encrypt(password.get_secret_value(), iterations=work))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists already and is not overwritten.", remedy="Choose another file.") from None
    except OSError as bad:
        raise ConfigError(f"{path} cannot be written: {type(bad).__name__}.") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return to_address(account.address)


def _account(key: SecretStr, name: str) -> Any:
    from clara_eval.chain.accounts import Account

    text = key.get_secret_value().strip().removeprefix("0x")
    try:
        raw = bytes.fromhex(text)
        account = Account.from_key(raw) if len(raw) == 32 else None
    except Exception:  # noqa: BLE001 - whatever the library says may quote the key
        account = None
    if account is None:
        raise ConfigError(f"{name} is not a private key.", remedy="A private key is 0x and 64 hex digits.")
    return account
