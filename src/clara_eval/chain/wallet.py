"""Sign with the evaluator's key: in this process, behind web3signer's HTTP API, or in AWS KMS.

Invariant: the key is in no text, error or repr; a signature that is not the configured address's over this transaction
is refused before it is recorded.
"""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import SecretStr

from clara_eval.chain.contracts.abi import Undecodable, abi, contract_version
from clara_eval.chain.rpc import place_of
from clara_eval.chain.transaction import Attempts, SigningPolicy, TransactionToSign, encoded, signing_hash
from clara_eval.config.settings import Settings
from clara_eval.core.address import CURVE_ORDER, Address, to_address
from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.core.extras import require
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.private_file import write_private
from clara_eval.core.web import TooLong, read_at_most

_TIMEOUT = aiohttp.ClientTimeout(total=20, sock_connect=5)  # Seconds
_MAX_BYTES = 1_000_000


class Signer(ABC):
    """Holder of a key: this process, a remote signer or a hardware module."""

    def __init__(self, what: str, address: Address) -> None:
        self.what = what  # The place of the key, for messages: never the key, nor the user and password of a URL
        self.address = address

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.what}, {self.address})"

    @abstractmethod
    async def sign(self, tx: TransactionToSign) -> str:
        """Return the signed bytes as 0x text."""

    async def check(self) -> None:  # noqa: B027 - a key in this process can always sign
        """Raise if the key cannot sign now."""

    def _signed(self, tx: TransactionToSign, r: int, s: int) -> str:
        """Add the signature with low s; ConfigError if it is not this address's over this transaction."""
        from eth_keys.datatypes import Signature
        from eth_keys.exceptions import BadSignature
        from eth_utils.exceptions import ValidationError

        low = min(s, CURVE_ORDER - s)
        for parity in (0, 1):
            with suppress(BadSignature, ValidationError, ValueError):
                key = Signature(vrs=(parity, r, low)).recover_public_key_from_msg_hash(signing_hash(tx))
                if key.to_address() == self.address:
                    return "0x" + encoded(tx, parity, r, low).hex()
        raise ConfigError(
            f"The {self.what} gave a signature that is not {self.address}'s over this transaction.",
            remedy="Nothing was sent: check the signer before anything else. It is retried automatically.",
        )

    def _outage(self, problem: str) -> Temporary:
        return Temporary(f"The {self.what} {problem}.", remedy="It is retried automatically.")


def _address_of(public_key: bytes) -> Address | None:
    key = public_key[1:] if len(public_key) == 65 and public_key[0] == 4 else public_key
    return Address("0x" + keccak_hex(key)[-40:]) if len(key) == 64 else None


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return b""


class RemoteSigner(Signer):
    """One key of one web3signer."""

    def __init__(self, url: str, address: Address) -> None:
        place = place_of(url)
        if place is None or "?" in url or "#" in url:  # the URL is not shown: it may contain a password
            remedy = "Write a web3signer's address without ? and #; a / or @ in a password is written %2F or %40."
            raise ConfigError("CLARA_SIGNER_URL is not http(s)://host:port.", remedy=remedy)
        super().__init__(f"remote signer {place}", address)
        self._url = url.rstrip("/")
        self._identifier: str | None = None

    async def sign(self, tx: TransactionToSign) -> str:
        path = f"/api/v1/eth1/sign/{await self._public_key()}"
        raw = _from_hex((await self._ask("POST", path, {"data": "0x" + encoded(tx).hex()})).strip().strip('"'))
        if len(raw) != 65:
            raise self._outage("gave something that is not a signature")
        return self._signed(tx, int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:64], "big"))

    async def check(self) -> None:
        self._identifier = None
        await self._public_key()

    async def _public_key(self) -> str:
        """Return the public key of our address, which identifies the key in the API; looked up once."""
        if self._identifier is None:
            try:
                listed = json.loads(await self._ask("GET", "/api/v1/eth1/publicKeys"))
            except (ValueError, RecursionError):
                listed = None
            if not isinstance(listed, list):
                raise Temporary(f"The {self.what} gave no list of keys.", remedy="Check CLARA_SIGNER_URL.")
            found = [str(key) for key in listed if _address_of(_from_hex(str(key))) == self.address]
            if not found:
                remedy = "Load the key there, or correct CLARA_EVALUATOR_ADDRESS."
                raise ConfigError(f"The {self.what} holds no key of {self.address}.", remedy=remedy)
            self._identifier = found[0]
        return self._identifier

    async def _ask(self, method: str, path: str, body: Any = None) -> str:
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                session.request(method, self._url + path, json=body, allow_redirects=False) as response,
            ):
                text, status = (await read_at_most(response, _MAX_BYTES)).decode(errors="replace"), response.status
        except (aiohttp.ClientError, TimeoutError, OSError, TooLong) as bad:
            raise self._outage(f"does not answer ({type(bad).__name__})") from None
        if status == 404:
            self._identifier = None
            raise ConfigError(f"The {self.what} does not know the key of {self.address}.", remedy="Load it there.")
        if 300 <= status < 400:
            problem = f"The {self.what} redirects (HTTP {status}), and redirects are not followed."
            raise ConfigError(problem, remedy="Write the signer's own address into CLARA_SIGNER_URL.")
        if status in (400, 401, 403, 412):
            remedy = "Its own log says why. It is retried automatically."
            raise ConfigError(f"The {self.what} refuses to sign (HTTP {status}).", remedy=remedy)
        if status != 200:
            raise self._outage(f"answers HTTP {status}")
        return text


KEY_SPEC = "ECC_SECG_P256K1"  # AWS's name of secp256k1, the curve of Ethereum
_REFUSALS = {
    *("AccessDeniedException", "NotFoundException", "DisabledException", "KMSInvalidStateException"),
    *("InvalidArnException", "InvalidKeyUsageException", "UnsupportedOperationException", "ValidationException"),
    *("UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "IncompleteSignature"),
    *("MissingAuthenticationToken", "OptInRequired", "NoRegionError", "InvalidRegionError", "NoCredentialsError"),
    *("PartialCredentialsError", "ProfileNotFound", "ConfigNotFound", "ConfigParseError", "ParamValidationError"),
}  # Error codes that a retry cannot cure; the last eight are those of AWS's own library


class KmsSigner(Signer):
    def __init__(self, key: str, address: Address) -> None:
        require("kms", "A key in AWS KMS")
        super().__init__(f"AWS KMS key {key}", address)
        self._key = key
        self._client: Any = None

    async def sign(self, tx: TransactionToSign) -> str:
        arguments = {"Message": signing_hash(tx), "MessageType": "DIGEST", "SigningAlgorithm": "ECDSA_SHA_256"}
        numbers = read_der(self._bytes(await self._ask("sign", **arguments), "Signature"))
        if numbers is None:
            raise self._outage("gave something that is not a signature")
        return self._signed(tx, *numbers)

    async def check(self) -> None:
        answer = await self._ask("get_public_key")
        spec = answer.get("KeySpec") or KEY_SPEC
        if spec != KEY_SPEC:
            raise ConfigError(
                f"The {self.what} is of the kind {spec}, and the chain knows only {KEY_SPEC}.",
                remedy=f"Make a key of the kind {KEY_SPEC} for sign and verify: the kind of a key cannot be changed.",
            )
        found = _address_of(self._bytes(answer, "PublicKey")[-65:])
        if found != self.address:
            text = f"The {self.what} is the key of {found or 'no address'}, not of {self.address}."
            raise ConfigError(text, remedy="Correct CLARA_SIGNER_URL or CLARA_EVALUATOR_ADDRESS.")

    def _bytes(self, answer: dict[str, Any], name: str) -> bytes:
        found = answer.get(name)
        if not isinstance(found, bytes):
            raise self._outage(f"gave an answer without {name}")
        return found

    async def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = await asyncio.to_thread(self._call, operation, arguments)
        except (BotoCoreError, ClientError, ValueError, RecursionError) as bad:  # the last two if it is not JSON
            code = bad.response.get("Error", {}).get("Code") if isinstance(bad, ClientError) else type(bad).__name__
            if code not in _REFUSALS:
                raise self._outage(f"does not answer ({code})") from None
            remedy = "Check the key, its policy (kms:Sign, kms:GetPublicKey) and AWS's region and credentials."
            raise ConfigError(f"The {self.what} cannot be used ({code}).", remedy=remedy) from None
        return answer

    def _call(self, operation: str, arguments: dict[str, Any]) -> Any:
        if self._client is None:
            from boto3 import client
            from botocore.config import Config

            config = Config(connect_timeout=5, read_timeout=15, retries={"max_attempts": 3, "mode": "standard"})
            self._client = client("kms", config=config)
        return getattr(self._client, operation)(KeyId=self._key, **arguments)


def read_der(der: bytes) -> tuple[int, int] | None:
    """Read r and s from a DER signature: a sequence of two integers with nothing after them."""
    try:
        middle = 4 + der[3]
        is_valid = (der[0], der[1], der[2]) == (0x30, len(der) - 2, 2)
        is_valid = is_valid and der[middle] == 2 and middle + 2 + der[middle + 1] == len(der)
    except IndexError:
        return None
    return (int.from_bytes(der[4:middle], "big"), int.from_bytes(der[middle + 2 :], "big")) if is_valid else None


MAX_AGENT_GAS = 30_000_000  # A submission may have its whole content in the calldata
_TOKEN_CALLS = {made.selector: made for made in map(abi("TestUSDC").function, ("approve", "transfer"))}


def agent_policy(
    chain_id: int, *, factory: Address | None, evaluator: Address | None, contracts: str = "1"
) -> SigningPolicy:
    """Allow a poster or agent the calls of posting, submitting and claiming, at known contracts."""
    version = contract_version(contracts)
    claims = ("submit", "claimPrize", "claimExpiredRefund", "finalize", "expire", "advanceToScoring", "postScores")
    create = version.factory.function("createChallenge").selector
    register = abi("IdentityRegistry").function("register(string)").selector
    known = {create, register, *(version.challenge.function(name).selector for name in claims), *_TOKEN_CALLS}

    def check_call(policy: SigningPolicy, tx: TransactionToSign) -> str | None:
        selector = tx.data[:4]
        if selector not in known:
            return f"0x{selector.hex()} is not a call that posting, submitting or claiming needs"
        if called := _TOKEN_CALLS.get(selector):
            try:
                to, units = called.arguments(tx.data)
            except Undecodable:
                return f"its arguments are not those of {called.name}"
            if called.name == "approve" and to != factory:
                return f"it would let {to} take tokens, which is not the challenge factory"
            if called.name == "transfer" and (evaluator is None or to != evaluator):
                return f"it would pay {to}, which is not the evaluator that CLARA_EVALUATOR_ADDRESS names"
            most = policy.spending.get(tx.to, 0)
            return None if units <= most else f"it gives away {units} units of {tx.to}, and {most} were agreed to"
        if selector == create and tx.to != factory:
            return f"{tx.to} is not the challenge factory"
        return None if tx.to in policy.targets else f"{tx.to} is not a contract of the challenge factory"

    return SigningPolicy(chain_id, MAX_AGENT_GAS, check_call, {factory} if factory else set())


KMS = "aws-kms:"  # Prefix of CLARA_SIGNER_URL if the key is in AWS KMS
_KEYSTORE_REMEDY = "Name a keystore file that this user can read; `clara-eval keys new` makes one."


class LocalKey(Signer):
    def __init__(self, key: SecretStr, name: str, what: str = "") -> None:
        from clara_eval.core.accounts import Account

        try:
            raw = bytes.fromhex(key.get_secret_value().strip().removeprefix("0x"))
            account: Any = Account.from_key(raw) if len(raw) == 32 else None
        except Exception:  # noqa: BLE001 - any error of the library may quote the key
            account = None
        if account is None:
            raise ConfigError(f"{name} is not a private key.", remedy="A private key is 0x and 64 hex digits.")
        super().__init__(what or f"key of {name}", to_address(account.address))
        self._account = account

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A key is never written anywhere.")

    async def sign(self, tx: TransactionToSign) -> str:
        made = self._account.unsafe_sign_hash(signing_hash(tx))
        return "0x" + encoded(tx, made.v - 27, made.r, made.s).hex()


class Wallet:
    def __init__(self, key: SecretStr | Signer, policy: SigningPolicy, *, name: str = "CLARA_EVALUATOR_KEY") -> None:
        self.signer: Signer = LocalKey(key, name) if isinstance(key, SecretStr) else key
        self.address: Address = self.signer.address
        self.policy = policy
        policy.own = self.address

    def __repr__(self) -> str:
        return f"Wallet({self.address})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A wallet is never written anywhere.")

    async def sign(self, tx: TransactionToSign, recorded: Attempts = ()) -> str:
        self.policy.check(tx, recorded)
        return await self.signer.sign(tx)


def open_wallet(settings: Settings, policy: SigningPolicy) -> Wallet | None:
    """Open the evaluator's wallet from the settings; None without a key, which means dry run."""
    sources = ("evaluator_key", "evaluator_keystore", "signer_url")
    given = [f"CLARA_{name.upper()}" for name in sources if getattr(settings, name) is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are both set.", remedy="Say in one way where the evaluator's key is.")
    if not given:
        return None
    signer = _open_signer(settings)
    if settings.evaluator_address not in {None, signer.address}:
        text = f"CLARA_EVALUATOR_ADDRESS is {settings.evaluator_address}, but the key belongs to {signer.address}."
        raise ConfigError(text, remedy="Give the matching key, or leave the address out.")
    return Wallet(signer, policy)


def _open_signer(settings: Settings) -> Signer:
    if settings.evaluator_key is not None:
        return LocalKey(settings.evaluator_key, "CLARA_EVALUATOR_KEY")
    if settings.evaluator_keystore is not None:
        key = read_keystore(settings.evaluator_keystore, settings.evaluator_password)
        return LocalKey(key, "CLARA_EVALUATOR_KEYSTORE", f"keystore {settings.evaluator_keystore}")
    url = settings.signer_url.get_secret_value() if settings.signer_url else ""
    if not settings.evaluator_address:
        remedy = "Set the address whose key the signer holds: a signer may hold several."
        raise ConfigError("CLARA_SIGNER_URL is set without CLARA_EVALUATOR_ADDRESS.", remedy=remedy)
    address = to_address(settings.evaluator_address)
    if url.startswith(KMS) and url != KMS:
        return KmsSigner(url.removeprefix(KMS), address)
    if not url.startswith(("http://", "https://")):
        remedy = "Write a web3signer's address, or aws-kms: and a key's id, ARN or alias."
        # The URL is not shown: it may contain a password.
        raise ConfigError("CLARA_SIGNER_URL is neither http(s)://host nor aws-kms:KEY.", remedy=remedy)
    return RemoteSigner(url, address)


def read_keystore(path: Path, password: SecretStr | None) -> SecretStr:
    if password is None:
        remedy = "Set CLARA_EVALUATOR_PASSWORD, or CLARA_EVALUATOR_PASSWORD_FILE."
        raise ConfigError("CLARA_EVALUATOR_KEYSTORE is set without a password.", remedy=remedy)
    from clara_eval.core.accounts import Account

    shown = f"CLARA_EVALUATOR_KEYSTORE={str(path)!r}"
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        raise ConfigError(f"{shown} cannot be read: {type(bad).__name__}.", remedy=_KEYSTORE_REMEDY) from None
    if os.name == "posix" and mode & 0o077:  # passwords can be tried offline on a file that others can copy
        text = f"{shown} can be read by other users (mode {mode & 0o777:o})."
        raise ConfigError(text, remedy=f"Run `chmod 600 {path}`.")
    try:
        key = Account.decrypt(json.loads(text), password.get_secret_value())
    except Exception as bad:  # noqa: BLE001 - the library raises many types of error if the file is no keystore
        reason, remedy = "it is not a keystore file", _KEYSTORE_REMEDY
        if "MAC" in str(bad):
            reason, remedy = "the password is wrong", "Correct CLARA_EVALUATOR_PASSWORD, or the file it comes from."
        raise ConfigError(f"{shown} cannot be opened: {reason}.", remedy=remedy) from None
    return SecretStr("0x" + bytes(key).hex())


def new_keystore(path: Path, password: SecretStr, *, work: int | None = None) -> Address:
    """Make a key, write it encrypted with mode 600, and return its address; refuse an existing file."""
    # `work` is scrypt's cost, a power of two; the library's default takes about 1 s.
    if not password.get_secret_value():
        raise ConfigError("The keystore's password is empty.", remedy="Set CLARA_EVALUATOR_PASSWORD.")
    from clara_eval.core.accounts import Account

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
