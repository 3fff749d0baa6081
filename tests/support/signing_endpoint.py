"""A model endpoint that signs its answers in an enclave of its own, by both interfaces, and can lie in every way.

Chat completions as in `fake_endpoint`; beside them NEAR's `/signature/{id}` and `/attestation/report`, and ACI's
`/aci/receipts/{id}` and `/aci/attestation`; and the certificate service for a quote's collateral. `lie`
names the one thing that is wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eth_account import Account
from eth_account.messages import encode_defunct
from tests.support.enclave import Enclave
from tests.support.fake_endpoint import Seen, Words, completion_body
from tests.support.scripted_judge import scripted_words

from clara_eval.core.hashing import canonical_json

NEAR_LIES = (
    "no signature",
    "garbage signature",
    "other address",
    "other request hash",
    "other response hash",
    "other model",
    "changed text",
    "signed by another key",
    "no id",
)
ACI_LIES = (
    "no receipt header",
    "no signature",
    "garbage signature",
    "other request hash",
    "other response hash",
    "other model",
    "upstream not verified",
    "upstream not mentioned",
    "signed by another key",
    "unknown key",
)
KEY_LIES = (
    "no report",
    "garbage report",
    "report of another key",
    "old nonce",
    "quote without the key",
    "broken quote",
    "quote of another root",
    "not a quote",
    "revoked platform",
    "no collateral",
)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class SigningEndpoint:
    """Start it with `running()`; `url` is the base of the judge, `pccs` of the certificate service."""

    words: Words = scripted_words
    lie: str = ""
    enclave: Enclave = field(default_factory=Enclave)
    root: str = ""
    reports: int = 0
    """How often a key's attestation was asked for."""

    def __post_init__(self) -> None:
        self.account, self.other = Account.create(), Account.create()
        self.key, self.other_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        self._bodies: dict[str, tuple[bytes, bytes]] = {}
        self._foreign = Enclave()
        self._count = 0

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SigningEndpoint]:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_get("/v1/signature/{id}", self._signature)
        app.router.add_get("/v1/attestation/report", self._near_report)
        app.router.add_get("/v1/aci/receipts/{id}", self._receipt)
        app.router.add_get("/v1/aci/attestation", self._aci_report)
        app.router.add_get("/{tee:sgx|tdx}/certification/v4/{what:.*}", self._certificates)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.root = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        sent = await request.read()
        asked = json.loads(sent)
        self._count += 1
        name = f"chat-{self._count}"
        seen = Seen("/v1/chat/completions", {}, asked, self._count, 0)
        body = {**completion_body(asked, self.words(seen)), "id": name}
        if self.lie == "no id":
            del body["id"]
        content = json.dumps(body, indent=1).encode()
        self._bodies[name] = sent, content
        headers = {} if self.lie == "no receipt header" else {"X-Receipt-Id": name}
        return web.Response(body=content, content_type="application/json", headers=headers)

    def _hashes(self, name: str) -> tuple[str, str]:
        sent, content = self._bodies[name]
        asked = _sha(sent + b" ") if self.lie == "other request hash" else _sha(sent)
        return asked, _sha(content + b" ") if self.lie == "other response hash" else _sha(content)

    async def _signature(self, request: web.Request) -> web.Response:
        if self.lie == "no signature":
            return web.json_response({"error": {"message": "not found"}}, status=404)
        if self.lie == "garbage signature":
            return web.json_response(["?"])
        model = "other" if self.lie == "other model" else request.query["model"]
        text = ":".join((model, *self._hashes(request.match_info["id"])))
        signer = self.other if self.lie == "signed by another key" else self.account
        signed = signer.sign_message(encode_defunct(text=text)).signature.hex()
        named = self.other.address if self.lie == "other address" else self.account.address
        told = f"{text} " if self.lie == "changed text" else text
        return web.json_response(
            {"text": told, "signature": f"0x{signed}", "signing_address": named, "signing_algo": "ecdsa"}
        )

    async def _near_report(self, request: web.Request) -> web.Response:
        self.reports += 1
        if self.lie in ("no report", "garbage report"):
            return self._no_report()
        nonce = bytes(32) if self.lie == "old nonce" else bytes.fromhex(request.query["nonce"])
        address = bytes(20) if self.lie == "quote without the key" else bytes.fromhex(self.account.address[2:])
        named = self.other.address if self.lie == "report of another key" else self.account.address
        quoted = self._quote(address.ljust(32, b"\0") + nonce)
        report = {"signing_address": named, "intel_quote": quoted.hex(), "nvidia_payload": "{}"}
        return web.json_response({"model_attestations": [report]})

    def _no_report(self) -> web.Response:
        if self.lie == "garbage report":
            return web.Response(text="{", content_type="application/json")
        return web.json_response({"error": {"message": "no such report"}}, status=500)

    def _quote(self, carried: bytes) -> bytes:
        if self.lie == "not a quote":
            return b"quote"
        made = (self._foreign if self.lie == "quote of another root" else self.enclave).quote(carried)
        return made[:700] + bytes([made[700] ^ 1]) + made[701:] if self.lie == "broken quote" else made

    async def _receipt(self, request: web.Request) -> web.Response:
        if self.lie == "no signature":
            return web.json_response({"error": {"message": "not found"}}, status=404)
        name = request.match_info["id"]
        asked, answered = self._hashes(name)
        verified = {"seq": 1, "type": "upstream.verified", "result": "verified", "required": True}
        if self.lie == "upstream not verified":
            verified["result"] = "failed"
        events = [
            {"seq": 0, "type": "request.received", "body_hash": f"sha256:{asked}"},
            *([] if self.lie == "upstream not mentioned" else [verified]),
            {"seq": 2, "type": "response.returned", "wire_hash": f"sha256:{answered}"},
        ]
        receipt = {
            "api_version": "aci/1",
            "receipt_id": name,
            "model": "other" if self.lie == "other model" else json.loads(self._bodies[name][0])["model"],
            "workload_keyset_digest": self._keyset_digest(),
            "event_log": events,
            "signature": {"algo": "ed25519", "key_id": "r9" if self.lie == "unknown key" else "r1"},
        }
        key = self.other_key if self.lie == "signed by another key" else self.key
        value = key.sign(canonical_json(receipt)).hex()
        receipt["signature"] = {**_signature(receipt), "value": "zz" if self.lie == "garbage signature" else value}
        return web.json_response(receipt)

    def _keyset(self) -> dict[str, Any]:
        public = self.key.public_key().public_bytes_raw().hex()
        return {"not_after": 4102444800, "receipt_signing_keys": [_key("r1", public)], "tls_public_keys": []}

    def _keyset_digest(self) -> str:
        return f"sha256:{_sha(canonical_json(self._keyset()))}"

    async def _aci_report(self, request: web.Request) -> web.Response:
        self.reports += 1
        if self.lie in ("no report", "garbage report"):
            return self._no_report()
        nonce = "00" * 32 if self.lie == "old nonce" else request.query["nonce"]
        digest = self._keyset_digest()
        bound = f"sha256:{'0' * 64}" if self.lie == "quote without the key" else digest
        statement = {"purpose": "aci.report_data.v1", "workload_keyset_digest": bound, "nonce": nonce}
        keyset = self._keyset()
        if self.lie == "report of another key":
            keyset["receipt_signing_keys"] = [_key("r1", self.other_key.public_key().public_bytes_raw().hex())]
        evidence = {"quote": self._quote(hashlib.sha256(canonical_json(statement)).digest()).hex()}
        attestation = {"tee_type": "tdx", "workload_keyset": keyset, "evidence": evidence}
        return web.json_response({"workload_keyset_digest": digest, "attestation": attestation})

    async def _certificates(self, request: web.Request) -> web.Response:
        """Intel's interface to the collateral of a quote."""
        if self.lie == "no collateral":
            return web.Response(status=404)
        self.enclave.status = "Revoked" if self.lie == "revoked platform" else "UpToDate"
        told, what = json.loads(self.enclave.collateral()), request.match_info["what"]
        if what == "pckcrl":
            chain = {"SGX-PCK-CRL-Issuer-Chain": quote(told["pck_crl_issuer_chain"])}
            return web.Response(body=bytes.fromhex(told["pck_crl"]), headers=chain)
        if what == "rootcacrl":
            return web.Response(text=told["root_ca_crl"])
        part, header, name = {
            "tcb": ("tcb_info", "TCB-Info-Issuer-Chain", "tcbInfo"),
            "qe/identity": ("qe_identity", "SGX-Enclave-Identity-Issuer-Chain", "enclaveIdentity"),
        }[what]
        text = f'{{"{name}":{told[part]},"signature":"{told[f"{part}_signature"]}"}}'
        return web.Response(text=text, headers={header: quote(told[f"{part}_issuer_chain"])})


def _key(name: str, public: str) -> dict[str, str]:
    return {"key_id": name, "algo": "ed25519", "public_key": public}


def _signature(receipt: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = receipt["signature"]
    return found
