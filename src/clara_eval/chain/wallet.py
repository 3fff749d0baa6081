"""The evaluator's key: in this process, or with a signer elsewhere.

Invariant: the key appears in no text, error or repr; a keystore file is readable by its owner alone and is never
overwritten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import SecretStr

from clara_eval.chain.remote_signers import KmsSigner, RemoteSigner
from clara_eval.chain.signing_policy import SigningPolicy
from clara_eval.chain.transaction import SignedBytes, StoredTransaction, TransactionToSign
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import ConfigError
from clara_eval.core.private_file import write_private

KMS = "aws-kms:"
"""What CLARA_SIGNER_URL begins with if the key is in AWS KMS."""
_A_KEYSTORE = "Name a keystore file that this user can read; `clara-eval keys new` makes one."


class Signer(Protocol):
    """What holds a key: this process, a remote signer, a hardware module."""

    @property
    def address(self) -> Address: ...
    @property
    def what(self) -> str:
        """Where the key is, in words; never the key."""
        ...

    async def sign(self, tx: TransactionToSign) -> SignedBytes:
        """Sign; the hash is the one that nodes know the transaction by."""
        ...

    async def check(self) -> None:
        """Raise if it could not sign now."""
        ...


class LocalKey:
    """A key in this process."""

    __slots__ = ("_account", "address", "what")

    def __init__(self, key: SecretStr, name: str, what: str = "") -> None:
        self._account = _account(key, name)
        self.address: Address = to_address(self._account.address)
        self.what = what or f"key of {name}"

    def __repr__(self) -> str:
        return f"LocalKey({self.address})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A key is never written anywhere.")

    async def sign(self, tx: TransactionToSign) -> SignedBytes:
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

    async def check(self) -> None:
        """Nothing can be missing: the key is here."""


class Wallet:
    """One key under one policy."""

    __slots__ = ("address", "policy", "signer")

    def __init__(self, key: SecretStr | Signer, policy: SigningPolicy, *, name: str = "CLARA_EVALUATOR_KEY") -> None:
        self.signer: Signer = LocalKey(key, name) if isinstance(key, SecretStr) else key
        self.address: Address = self.signer.address
        self.policy = policy
        policy.vouched.own = self.address

    def __repr__(self) -> str:
        return f"Wallet({self.address})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A wallet is never written anywhere.")

    async def sign(self, tx: TransactionToSign, recorded: Sequence[StoredTransaction] = ()) -> SignedBytes:
        """Sign what the policy allows after what is `recorded`."""
        self.policy.check(tx, recorded)
        return await self.signer.sign(tx)


def open_wallet(settings: Settings, policy: SigningPolicy) -> Wallet | None:
    """Open the evaluator's wallet from the settings; None without a key, which means dry run."""
    given = [name for name, value in _ways(settings).items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are both set.", remedy="Say in one way where the evaluator's key is.")
    signer = _signer(settings)
    if signer is None:
        return None
    if settings.evaluator_address not in {None, signer.address}:
        raise ConfigError(
            f"CLARA_EVALUATOR_ADDRESS is {settings.evaluator_address}, but the key belongs to {signer.address}.",
            remedy="Give the matching key, or leave the address out.",
        )
    return Wallet(signer, policy)


def _ways(settings: Settings) -> dict[str, object]:
    return {
        "CLARA_EVALUATOR_KEY": settings.evaluator_key,
        "CLARA_EVALUATOR_KEYSTORE": settings.evaluator_keystore,
        "CLARA_SIGNER_URL": settings.signer_url,
    }


def _signer(settings: Settings) -> Signer | None:
    if settings.evaluator_key is not None:
        return LocalKey(settings.evaluator_key, "CLARA_EVALUATOR_KEY")
    if settings.evaluator_keystore is not None:
        key = read_keystore(settings.evaluator_keystore, settings.evaluator_password)
        return LocalKey(key, "CLARA_EVALUATOR_KEYSTORE", f"keystore {settings.evaluator_keystore}")
    return _remote(settings.signer_url.get_secret_value(), settings) if settings.signer_url is not None else None


def _remote(url: str, settings: Settings) -> Signer:
    if not settings.evaluator_address:
        raise ConfigError(
            "CLARA_SIGNER_URL is set without CLARA_EVALUATOR_ADDRESS.",
            remedy="Set the address whose key the signer holds: a signer may hold several.",
        )
    address = to_address(settings.evaluator_address)
    if url.startswith(KMS) and url != KMS:
        return KmsSigner(url.removeprefix(KMS), address)
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            "CLARA_SIGNER_URL is neither http(s)://host nor aws-kms:KEY.",  # not shown: it may hold a password
            remedy="Write a web3signer's address, or aws-kms: and a key's id, ARN or alias.",
        )
    return RemoteSigner(url, address)


def read_keystore(path: Path, password: SecretStr | None) -> SecretStr:
    """Decrypt the key in a keystore file."""
    if password is None:
        raise ConfigError(
            "CLARA_EVALUATOR_KEYSTORE is set without a password.",
            remedy="Set CLARA_EVALUATOR_PASSWORD, or CLARA_EVALUATOR_PASSWORD_FILE.",
        )
    from clara_eval.chain.accounts import Account

    _check_mode(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        key = Account.decrypt(content, password.get_secret_value())
    except (OSError, UnicodeDecodeError) as bad:
        raise ConfigError(
            f"CLARA_EVALUATOR_KEYSTORE={str(path)!r} cannot be read: {type(bad).__name__}.", remedy=_A_KEYSTORE
        ) from None
    except Exception as bad:  # noqa: BLE001 - the library raises what it likes about a file that is no keystore
        is_shut = "MAC" in str(bad)
        reason = "the password is wrong" if is_shut else "it is not a keystore file"
        raise ConfigError(
            f"CLARA_EVALUATOR_KEYSTORE={str(path)!r} cannot be opened: {reason}.",
            remedy="Correct CLARA_EVALUATOR_PASSWORD, or the file it comes from." if is_shut else _A_KEYSTORE,
        ) from None
    return SecretStr("0x" + bytes(key).hex())


def _check_mode(path: Path) -> None:
    """Refuse a file that others can copy: passwords can be tried on it offline."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # reading it says why
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(
            f"CLARA_EVALUATOR_KEYSTORE={str(path)!r} can be read by other users (mode {mode & 0o777:o}).",
            remedy=f"Run `chmod 600 {path}`.",
        )


def new_keystore(path: Path, password: SecretStr, *, work: int | None = None) -> Address:
    """Make a key, write it encrypted with mode 600, and return its address; refuse an existing file.

    `work` is scrypt's cost, a power of two; without it the library's own, which takes about a second.
    """
    if not password.get_secret_value():
        raise ConfigError("The keystore's password is empty.", remedy="Set CLARA_EVALUATOR_PASSWORD.")
    from clara_eval.chain.accounts import Account

    account = Account.create()
    content = json.dumps(account.encrypt(password.get_secret_value(), iterations=work))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, content.encode())
    except FileExistsError:
        raise ConfigError(f"{path} exists already and is not overwritten.", remedy="Choose another file.") from None
    except OSError as bad:
        raise ConfigError(f"{path} cannot be written: {type(bad).__name__}.") from None
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
