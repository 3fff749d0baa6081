"""Keys elsewhere: behind web3signer's HTTP API, or in AWS KMS (ECC_SECG_P256K1, sign and verify).

Invariant: what is not the signature of the configured address over this transaction is refused before it is recorded.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from typing import Any

import aiohttp

from clara_eval.chain.rpc import place_of
from clara_eval.chain.transaction import TransactionToSign, encoded, signing_hash
from clara_eval.core.address import ORDER, Address
from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.core.extras import require
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.web import TooLong, read_at_most

_SECONDS = aiohttp.ClientTimeout(total=20, sock_connect=5)
_MOST_ANSWER = 1_000_000


class Signer(ABC):
    """What holds a key: this process, a remote signer, a hardware module."""

    def __init__(self, what: str, address: Address) -> None:
        self.what = what
        """Where the key is, in words; never the key, and no user or password that a URL may hold."""
        self.address = address

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.what}, {self.address})"

    @abstractmethod
    async def sign(self, tx: TransactionToSign) -> str:
        """Return the signed bytes as 0x text."""

    async def check(self) -> None:  # noqa: B027 - a key in this process can always sign
        """Raise if it could not sign now."""

    def _signed(self, tx: TransactionToSign, r: int, s: int) -> str:
        """Add a signature in the low form; ConfigError if it is not this address's over this transaction."""
        low = min(s, ORDER - s)
        for parity in (0, 1):
            if _signer(signing_hash(tx), parity, r, low) == self.address:
                return "0x" + encoded(tx, parity, r, low).hex()
        raise ConfigError(
            f"The {self.what} gave a signature that is not {self.address}'s over this transaction.",
            remedy="Nothing was sent: check the signer before anything else. It is asked again by itself.",
        )

    def _later(self, said: str) -> Temporary:
        return Temporary(f"The {self.what} {said}.", remedy="It is asked again by itself.")


def _signer(digest: bytes, parity: int, r: int, s: int) -> Address | None:
    from eth_keys.datatypes import Signature
    from eth_keys.exceptions import BadSignature
    from eth_utils.exceptions import ValidationError

    try:
        found = Signature(vrs=(parity, r, s)).recover_public_key_from_msg_hash(digest)
    except (BadSignature, ValidationError, ValueError):
        return None
    return Address(found.to_address())


def _address_of(public_key: bytes) -> Address | None:
    key = public_key[1:] if len(public_key) == 65 and public_key[0] == 4 else public_key
    return Address("0x" + keccak_hex(key)[-40:]) if len(key) == 64 else None


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return b""


class RemoteSigner(Signer):
    """One key of one web3signer. Its public key is looked up once."""

    def __init__(self, url: str, address: Address) -> None:
        place = place_of(url)
        if place is None or "?" in url or "#" in url:  # the URL is not shown, it may hold a password
            raise ConfigError(
                "CLARA_SIGNER_URL is not http(s)://host:port.",
                remedy="Write a web3signer's address without ? and #; a / or @ in a password is written %2F or %40.",
            )
        super().__init__(f"remote signer {place}", address)
        self._url = url.rstrip("/")
        self._identifier: str | None = None

    async def sign(self, tx: TransactionToSign) -> str:
        path = f"/api/v1/eth1/sign/{await self._key()}"
        raw = _from_hex((await self._ask("POST", path, {"data": "0x" + encoded(tx).hex()})).strip().strip('"'))
        if len(raw) != 65:
            raise self._later("gave something that is not a signature")
        return self._signed(tx, int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:64], "big"))

    async def check(self) -> None:
        self._identifier = None
        await self._key()

    async def _key(self) -> str:
        """Look up the public key of our address, by which the API names a key."""
        if self._identifier is None:
            try:
                listed = json.loads(await self._ask("GET", "/api/v1/eth1/publicKeys"))
            except (ValueError, RecursionError):
                listed = None
            if not isinstance(listed, list):
                raise Temporary(f"The {self.what} gave no list of keys.", remedy="Check CLARA_SIGNER_URL.")
            found = [str(key) for key in listed if _address_of(_from_hex(str(key))) == self.address]
            if not found:
                raise ConfigError(
                    f"The {self.what} holds no key of {self.address}.",
                    remedy="Load the key there, or correct CLARA_EVALUATOR_ADDRESS.",
                )
            self._identifier = found[0]
        return self._identifier

    async def _ask(self, method: str, path: str, body: Any = None) -> str:
        try:
            async with (
                aiohttp.ClientSession(timeout=_SECONDS) as session,
                session.request(method, self._url + path, json=body, allow_redirects=False) as response,
            ):
                text, status = (await read_at_most(response, _MOST_ANSWER)).decode(errors="replace"), response.status
        except (aiohttp.ClientError, TimeoutError, OSError, TooLong) as bad:
            raise self._later(f"does not answer ({type(bad).__name__})") from None
        if status == 404:
            self._identifier = None
            raise ConfigError(f"The {self.what} does not know the key of {self.address}.", remedy="Load it there.")
        if 300 <= status < 400:
            raise ConfigError(
                f"The {self.what} sends us elsewhere (HTTP {status}), and no key is asked for there.",
                remedy="Write the signer's own address into CLARA_SIGNER_URL.",
            )
        if status in (400, 401, 403, 412):
            raise ConfigError(
                f"The {self.what} refuses to sign (HTTP {status}).",
                remedy="Its own log says why. It is asked again by itself.",
            )
        if status != 200:
            raise self._later(f"answers HTTP {status}")
        return text


KEY_SPEC = "ECC_SECG_P256K1"
"""The one kind of key whose signatures the chain knows."""
_REFUSALS = {
    *("AccessDeniedException", "NotFoundException", "DisabledException", "KMSInvalidStateException"),
    *("InvalidArnException", "InvalidKeyUsageException", "UnsupportedOperationException", "ValidationException"),
    *("UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "IncompleteSignature"),
    *("MissingAuthenticationToken", "OptInRequired", "NoRegionError", "InvalidRegionError", "NoCredentialsError"),
    *("PartialCredentialsError", "ProfileNotFound", "ConfigNotFound", "ConfigParseError", "ParamValidationError"),
}
"""Error codes that no second try repairs; the last eight are of AWS's library itself."""


class KmsSigner(Signer):
    def __init__(self, key: str, address: Address) -> None:
        require("kms", "A key in AWS KMS")
        super().__init__(f"AWS KMS key {key}", address)
        self._key = key
        self._client: Any = None

    async def sign(self, tx: TransactionToSign) -> str:
        told = await self._ask("sign", Message=signing_hash(tx), MessageType="DIGEST", SigningAlgorithm="ECDSA_SHA_256")
        numbers = read_der(self._bytes(told, "Signature"))
        if numbers is None:
            raise self._later("gave something that is not a signature")
        return self._signed(tx, *numbers)

    async def check(self) -> None:
        told = await self._ask("get_public_key")
        spec = told.get("KeySpec") or KEY_SPEC
        if spec != KEY_SPEC:
            raise ConfigError(
                f"The {self.what} is of the kind {spec}, and the chain knows only {KEY_SPEC}.",
                remedy=f"Make a key of the kind {KEY_SPEC} for sign and verify: the kind of a key cannot be changed.",
            )
        found = _address_of(self._bytes(told, "PublicKey")[-65:])
        if found != self.address:
            raise ConfigError(
                f"The {self.what} is the key of {found or 'no address'}, not of {self.address}.",
                remedy="Correct CLARA_SIGNER_URL or CLARA_EVALUATOR_ADDRESS.",
            )

    def _bytes(self, told: dict[str, Any], name: str) -> bytes:
        found = told.get(name)
        if not isinstance(found, bytes):
            raise self._later(f"gave an answer without {name}")
        return found

    async def _ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            told: dict[str, Any] = await asyncio.to_thread(self._call, what, arguments)
        except (BotoCoreError, ClientError, ValueError, RecursionError) as bad:  # the latter two if it is nonsense
            code = bad.response.get("Error", {}).get("Code") if isinstance(bad, ClientError) else type(bad).__name__
            if code not in _REFUSALS:
                raise self._later(f"does not answer ({code})") from None
            raise ConfigError(
                f"The {self.what} cannot be used ({code}).",
                remedy="Check the key, its policy (kms:Sign, kms:GetPublicKey) and AWS's region and credentials.",
            ) from None
        return told

    def _call(self, what: str, arguments: dict[str, Any]) -> Any:
        if self._client is None:
            from boto3 import client
            from botocore.config import Config

            config = Config(connect_timeout=5, read_timeout=15, retries={"max_attempts": 3, "mode": "standard"})
            self._client = client("kms", config=config)
        return getattr(self._client, what)(KeyId=self._key, **arguments)


def read_der(der: bytes) -> tuple[int, int] | None:
    """Read r and s of a DER signature: a sequence of two integers, and nothing after them."""
    try:
        middle = 4 + der[3]
        is_one = (der[0], der[1], der[2]) == (0x30, len(der) - 2, 2)
        is_one = is_one and der[middle] == 2 and middle + 2 + der[middle + 1] == len(der)
    except IndexError:
        return None
    return (int.from_bytes(der[4:middle], "big"), int.from_bytes(der[middle + 2 :], "big")) if is_one else None
