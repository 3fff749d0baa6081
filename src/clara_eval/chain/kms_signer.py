"""A key in AWS KMS (ECC_SECG_P256K1, sign and verify).

Region and credentials come from AWS's own settings. KMS signs digests: our policy decides before it is asked.
"""

from __future__ import annotations

import asyncio
from typing import Any

from clara_eval.chain.signatures import address_of, signed_with
from clara_eval.chain.transaction import SignedBytes, TransactionToSign, signing_payload
from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError, ConfigError, Temporary
from clara_eval.core.extras import require
from clara_eval.core.hashing import keccak_hex

KEY_SPEC = "ECC_SECG_P256K1"
"""The one kind of key whose signatures the chain knows."""
_REFUSALS = frozenset(
    {
        "AccessDeniedException",
        "NotFoundException",
        "DisabledException",
        "KMSInvalidStateException",
        "InvalidArnException",
        "InvalidKeyUsageException",
        "UnsupportedOperationException",
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "OptInRequired",
        "ValidationException",
        "NoRegionError",
        "InvalidRegionError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "ConfigNotFound",
        "ConfigParseError",
        "ParamValidationError",
    }
)
"""Error codes that no second try repairs; the last eight are of AWS's library itself."""


class KmsSigner:
    """One asymmetric key of AWS KMS."""

    __slots__ = ("_client", "_key", "address")

    def __init__(self, key: str, address: Address) -> None:
        require("kms", "A key in AWS KMS")
        self._key = key
        self.address = address
        self._client: Any = None

    @property
    def what(self) -> str:
        return f"AWS KMS key {self._key}"

    def __repr__(self) -> str:
        return f"KmsSigner({self.what}, {self.address})"

    async def sign(self, tx: TransactionToSign) -> SignedBytes:
        digest = bytes.fromhex(keccak_hex(signing_payload(tx))[2:])
        told = await self._ask("sign", Message=digest, MessageType="DIGEST", SigningAlgorithm="ECDSA_SHA_256")
        return signed_with(self.what, self.address, tx, *_read_der(self.what, _bytes(self.what, told, "Signature")))

    async def check(self) -> None:
        """Raise ConfigError if the key is of another kind or another address."""
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
