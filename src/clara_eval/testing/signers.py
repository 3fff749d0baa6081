"""Signers on this machine that really sign: web3signer's API, and AWS KMS's Sign and GetPublicKey.

`LocalWeb3Signer` and `LocalKms` hold a key each and speak the documented protocols. `lie` lets them sign something
else, sign with another key, answer nonsense, refuse, or be away.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Literal, Self

from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from eth_keys.datatypes import PrivateKey

from clara_eval.hashing import keccak_hex

Lie = Literal["", "other data", "other key", "garbage", "refused", "broken"]
OTHER = "0x" + "77" * 32


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
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.lie == "broken":
            return web.Response(status=502)
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
        if self.lie in ("refused", "garbage"):
            return web.Response(status=403 if self.lie == "refused" else 200, text="0x1234")
        data = bytes.fromhex((await request.json())["data"][2:]) + (b"\0" if self.lie == "other data" else b"")
        signature = self.signing_key().sign_msg_hash(bytes.fromhex(keccak_hex(data)[2:]))
        rs = signature.r.to_bytes(32, "big") + signature.s.to_bytes(32, "big")
        return web.Response(text="0x" + (rs + bytes([27 + signature.v])).hex())


class LocalKms(LocalSigner):
    """`TrentService.Sign` and `TrentService.GetPublicKey` over AWS's JSON protocol."""

    async def answer(self, request: web.Request) -> web.Response:
        body, action = json.loads(await request.text()), request.headers["X-Amz-Target"]
        self.asked[-1] = action
        if self.lie == "refused":
            return self._json({"__type": "AccessDeniedException", "message": "no"}, 400)
        private = ec.derive_private_key(int(self.signing_key().to_hex(), 16), ec.SECP256K1())
        if action == "TrentService.GetPublicKey":
            der = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            return self._json({"KeyId": body["KeyId"], "PublicKey": base64.b64encode(der).decode()})
        digest = bytes.fromhex(keccak_hex(b"")[2:]) if self.lie == "other data" else base64.b64decode(body["Message"])
        signature = private.sign(digest, ec.ECDSA(Prehashed(hashes.SHA256())))
        signature = b"nonsense" if self.lie == "garbage" else signature
        return self._json({"KeyId": body["KeyId"], "Signature": base64.b64encode(signature).decode()})

    def _json(self, document: dict[str, Any], status: int = 200) -> web.Response:
        return web.Response(body=json.dumps(document), status=status, content_type="application/x-amz-json-1.1")
