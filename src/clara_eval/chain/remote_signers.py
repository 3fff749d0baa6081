"""Keys elsewhere: behind web3signer's HTTP API, or in AWS KMS (ECC_SECG_P256K1, sign and verify).

Invariant: what is not the signature of the configured address over this transaction is refused before it is recorded.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from clara_eval.chain.transaction import SignedBytes, TransactionToSign, signed_bytes, signing_hash, signing_payload
from clara_eval.core.address import ORDER, Address
from clara_eval.core.errors import ClaraError, ConfigError, Temporary
from clara_eval.core.extras import require
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.web import TooLong, read_at_most


def address_of(public_key: str) -> Address | None:
    try:
        raw = bytes.fromhex(public_key.removeprefix("0x"))
    except ValueError:
        return None
    raw = raw[1:] if len(raw) == 65 and raw[0] == 4 else raw
    return Address("0x" + keccak_hex(raw)[-40:]) if len(raw) == 64 else None


def signed_with(what: str, address: Address, tx: TransactionToSign, r: int, s: int) -> SignedBytes:
    """Add a signature in the low form; ConfigError if it is not this address's over this transaction."""
    low = min(s, ORDER - s)
    for parity in (0, 1):
        if _signer(signing_hash(tx), parity, r, low) == address:
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


_SECONDS = aiohttp.ClientTimeout(total=20, sock_connect=5)
_MOST_ANSWER = 1_000_000


class RemoteSigner:
    """One key of one web3signer. Its public key is looked up once."""

    __slots__ = ("_identifier", "_url", "address", "what")

    def __init__(self, url: str, address: Address) -> None:
        self.what = f"remote signer {_place(url)}"
        """Where the key is, without a user or password that the URL may hold."""
        self._url = url.rstrip("/")
        self.address = address
        self._identifier: str | None = None

    def __repr__(self) -> str:
        return f"RemoteSigner({self.what}, {self.address})"

    async def sign(self, tx: TransactionToSign) -> SignedBytes:
        payload = signing_payload(tx)
        path = f"/api/v1/eth1/sign/{await self._key()}"
        text = (await self._ask("POST", path, {"data": "0x" + payload.hex()})).strip().strip('"')
        return signed_with(self.what, self.address, tx, *_read_signature(self.what, text))

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
            found = [str(key) for key in listed if address_of(str(key)) == self.address]
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
                text = (await read_at_most(response, _MOST_ANSWER)).decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError, TooLong) as bad:
            raise Temporary(
                f"The {self.what} does not answer ({type(bad).__name__}).", remedy="It is asked again by itself."
            ) from None
        if response.status == 200:
            return text
        if response.status == 404:
            self._identifier = None
            raise ConfigError(f"The {self.what} does not know the key of {self.address}.", remedy="Load it there.")
        if 300 <= response.status < 400:
            raise ConfigError(
                f"The {self.what} sends us elsewhere (HTTP {response.status}), and no key is asked for there.",
                remedy="Write the signer's own address into CLARA_SIGNER_URL.",
            )
        if response.status in (400, 401, 403, 412):
            raise ConfigError(
                f"The {self.what} refuses to sign (HTTP {response.status}).",
                remedy="Its own log says why. It is asked again by itself.",
            )
        raise Temporary(f"The {self.what} answers HTTP {response.status}.", remedy="It is asked again by itself.")


def _place(url: str) -> str:
    """Return host and port; an error does not quote the URL, which may hold a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not url.startswith(("http://", "https://")) or "?" in url or "#" in url:
        raise ConfigError(
            "CLARA_SIGNER_URL is not http(s)://host:port.",
            remedy="Write a web3signer's address without ? and #; a / or @ in a password is written %2F or %40.",
        )
    shown = f"[{host}]" if ":" in host else host
    return shown + (f":{port}" if port else "")


def _read_signature(what: str, text: str) -> tuple[int, int]:
    try:
        raw = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raw = b""
    if len(raw) != 65:
        raise Temporary(f"The {what} gave something that is not a signature.", remedy="It is asked again by itself.")
    return int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:64], "big")


KEY_SPEC = "ECC_SECG_P256K1"
"""The one kind of key whose signatures the chain knows."""
_REFUSALS = frozenset(
    {
        *("AccessDeniedException", "NotFoundException", "DisabledException", "KMSInvalidStateException"),
        *("InvalidArnException", "InvalidKeyUsageException", "UnsupportedOperationException", "ValidationException"),
        *("UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "IncompleteSignature"),
        *("MissingAuthenticationToken", "OptInRequired", "NoRegionError", "InvalidRegionError", "NoCredentialsError"),
        *("PartialCredentialsError", "ProfileNotFound", "ConfigNotFound", "ConfigParseError", "ParamValidationError"),
    }
)
"""Error codes that no second try repairs; the last eight are of AWS's library itself."""


class KmsSigner:
    __slots__ = ("_client", "_key", "address", "what")

    def __init__(self, key: str, address: Address) -> None:
        require("kms", "A key in AWS KMS")
        self.what = f"AWS KMS key {key}"
        self._key = key
        self.address = address
        self._client: Any = None

    def __repr__(self) -> str:
        return f"KmsSigner({self.what}, {self.address})"

    async def sign(self, tx: TransactionToSign) -> SignedBytes:
        told = await self._ask("sign", Message=signing_hash(tx), MessageType="DIGEST", SigningAlgorithm="ECDSA_SHA_256")
        return signed_with(self.what, self.address, tx, *_read_der(self.what, _bytes(self.what, told, "Signature")))

    async def check(self) -> None:
        told = await self._ask("get_public_key")
        spec = told.get("KeySpec") or KEY_SPEC
        if spec != KEY_SPEC:
            raise ConfigError(
                f"The {self.what} is of the kind {spec}, and the chain knows only {KEY_SPEC}.",
                remedy=f"Make a key of the kind {KEY_SPEC} for sign and verify: the kind of a key cannot be changed.",
            )
        found = address_of(_bytes(self.what, told, "PublicKey")[-65:].hex())
        if found != self.address:
            raise ConfigError(
                f"The {self.what} is the key of {found or 'no address'}, not of {self.address}.",
                remedy="Correct CLARA_SIGNER_URL or CLARA_EVALUATOR_ADDRESS.",
            )

    async def _ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            told: dict[str, Any] = await asyncio.to_thread(self._call, what, arguments)
        except ClientError as bad:
            raise self._in_our_terms(str(bad.response.get("Error", {}).get("Code", ""))) from None
        except (BotoCoreError, ValueError, RecursionError) as bad:  # the latter two where an answer is nonsense
            raise self._in_our_terms(type(bad).__name__) from None
        return told

    def _call(self, what: str, arguments: dict[str, Any]) -> Any:
        if self._client is None:
            from boto3 import client
            from botocore.config import Config

            config = Config(connect_timeout=5, read_timeout=15, retries={"max_attempts": 3, "mode": "standard"})
            self._client = client("kms", config=config)
        return getattr(self._client, what)(KeyId=self._key, **arguments)

    def _in_our_terms(self, code: str) -> ClaraError:
        if code in _REFUSALS:
            return ConfigError(
                f"The {self.what} cannot be used ({code}).",
                remedy="Check the key, its policy (kms:Sign, kms:GetPublicKey) and AWS's region and credentials.",
            )
        return Temporary(f"The {self.what} does not answer ({code}).", remedy="It is asked again by itself.")


def _bytes(what: str, told: dict[str, Any], name: str) -> bytes:
    found = told.get(name)
    if not isinstance(found, bytes):
        raise Temporary(f"The {what} gave an answer without {name}.", remedy="It is asked again by itself.")
    return found


def _read_der(what: str, der: bytes) -> tuple[int, int]:
    """Read r and s of a DER signature: a sequence of two integers, and nothing after them."""
    try:
        middle = 4 + der[3]
        is_one = (der[0], der[1], der[2]) == (0x30, len(der) - 2, 2)
        is_one = is_one and der[middle] == 2 and middle + 2 + der[middle + 1] == len(der)
    except IndexError:
        is_one = False
    if not is_one:
        raise Temporary(f"The {what} gave something that is not a signature.", remedy="It is asked again by itself.")
    return int.from_bytes(der[4:middle], "big"), int.from_bytes(der[middle + 2 :], "big")
