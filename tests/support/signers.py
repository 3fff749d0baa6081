"""Signers on this machine that really sign: web3signer's API, and AWS KMS's Sign and GetPublicKey.

`LocalWeb3Signer` and `LocalKms` hold a key each and speak the documented protocols. `lie` lets them sign something
else, sign with another key, give the other form of a signature, answer nonsense (also without end, or nested without
end), refuse, be busy, send elsewhere, hold another kind of key, hang, or be away.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Literal, Self

from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    Prehashed,
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from eth_keys.datatypes import PrivateKey

from clara_eval.core.address import CURVE_ORDER
from clara_eval.core.hashing import keccak_hex

Lie = Literal[
    "", "other data", "other key", "garbage", "refused", "broken", "busy", "elsewhere", "endless", "nested", "high s",
    "hanging", "kind of key", "empty",
]  # fmt: skip
OTHER = "0x" + "77" * 32
_ANSWERS = {"refused": 403, "garbage": 200, "busy": 429, "empty": 204}


class LocalSigner:
    """A server with one route for everything; subclasses answer it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lie: Lie = ""
        self.asked: list[str] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        match self.lie:
            case "broken":
                return web.Response(status=502)
            case "elsewhere":
                return web.Response(status=307, headers={"Location": f"{self.url}/stolen"})
            case "endless":
                return web.Response(text="0x" + "ab" * 1_000_000)
            case "nested":
                return web.Response(text="[" * 500_000)
            case "hanging":
                await asyncio.sleep(60)
        return await self.answer(request)

    async def answer(self, request: web.Request) -> web.Response:
        raise web.HTTPNotFound(text=request.path)

    def signing_key(self) -> PrivateKey:
        return PrivateKey(bytes.fromhex((OTHER if self.lie == "other key" else self.key)[2:]))


class LocalWeb3Signer(LocalSigner):
    """`GET /api/v1/eth1/publicKeys`, `POST /api/v1/eth1/sign/{publicKey}`."""

    async def answer(self, request: web.Request) -> web.Response:
        mine = PrivateKey(bytes.fromhex(self.key[2:])).public_key.to_hex()
        if request.path == "/api/v1/eth1/publicKeys":
            return web.json_response([PrivateKey(b"\x05" * 32).public_key.to_hex(), mine])
        if request.path != f"/api/v1/eth1/sign/{mine}":
            return web.Response(status=404)
        if self.lie in _ANSWERS:
            return web.Response(status=_ANSWERS[self.lie], text="0x1234")
        data = bytes.fromhex((await request.json())["data"][2:]) + (b"\0" if self.lie == "other data" else b"")
        signature = self.signing_key().sign_msg_hash(bytes.fromhex(keccak_hex(data)[2:]))
        s = CURVE_ORDER - signature.s if self.lie == "high s" else signature.s
        rs = signature.r.to_bytes(32, "big") + s.to_bytes(32, "big")
        return web.Response(text="0x" + (rs + bytes([27 + signature.v])).hex())


class LocalKms(LocalSigner):
    """`TrentService.Sign` and `TrentService.GetPublicKey` over AWS's JSON protocol."""

    async def answer(self, request: web.Request) -> web.Response:
        body, action = json.loads(await request.text()), request.headers["X-Amz-Target"]
        self.asked[-1] = action
        if self.lie in ("refused", "busy"):
            kind = "AccessDeniedException" if self.lie == "refused" else "ThrottlingException"
            return self._json({"__type": kind, "message": "no"}, 400)
        if self.lie == "empty":
            return self._json({"KeyId": body["KeyId"]})
        private = ec.derive_private_key(int(self.signing_key().to_hex(), 16), ec.SECP256K1())
        if action == "TrentService.GetPublicKey":
            is_other = self.lie == "kind of key"
            public = (ec.generate_private_key(ec.SECP256R1()) if is_other else private).public_key()
            der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            spec = "ECC_NIST_P256" if is_other else "ECC_SECG_P256K1"
            return self._json({"KeyId": body["KeyId"], "KeySpec": spec, "PublicKey": base64.b64encode(der).decode()})
        digest = bytes.fromhex(keccak_hex(b"")[2:]) if self.lie == "other data" else base64.b64decode(body["Message"])
        signature = private.sign(digest, ec.ECDSA(Prehashed(hashes.SHA256())))
        if self.lie == "high s":
            r, low = decode_dss_signature(signature)
            signature = encode_dss_signature(r, max(low, CURVE_ORDER - low))
        signature = b"nonsense" if self.lie == "garbage" else signature
        return self._json({"KeyId": body["KeyId"], "Signature": base64.b64encode(signature).decode()})

    def _json(self, document: dict[str, Any], status: int = 200) -> web.Response:
        return web.Response(body=json.dumps(document), status=status, content_type="application/x-amz-json-1.1")
